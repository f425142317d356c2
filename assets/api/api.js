// The example calls the server of this page.
element.querySelector(".origin").textContent = new URL(".", document.baseURI).href;
