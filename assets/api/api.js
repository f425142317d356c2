// The examples call the server of this page.
const origin = new URL(".", document.baseURI).href;
for (const place of element.querySelectorAll(".origin")) place.textContent = origin;
