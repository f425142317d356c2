// The example is for the server that this page came from.
element.querySelector(".origin").textContent = new URL(".", document.baseURI).href;
