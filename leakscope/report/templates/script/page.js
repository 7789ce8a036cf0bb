/* What all of the script shares: the page's data, a word to screen readers, new elements. */
const data = JSON.parse(document.getElementById("data").textContent);
const announce = (text) => { document.getElementById("announce").textContent = text; };
const element = (name, style) => {
  const made = document.createElement(name);
  made.className = style;
  return made;
};
addEventListener("beforeprint", () => { for (const details of document.querySelectorAll("details")) details.open = true; });
