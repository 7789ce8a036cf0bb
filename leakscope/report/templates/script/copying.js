/* Copying, also where the clipboard is not to be had. */
const copyByHand = (text) => {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done ? Promise.resolve() : Promise.reject(new Error("refused"));
};
const copy = (text) => (navigator.clipboard ? navigator.clipboard.writeText(text).catch(() => copyByHand(text)) : copyByHand(text));
const copiesOn = (button, text) => {
  const label = button.textContent;
  const say = (word) => {
    button.textContent = word;
    announce(word);
    setTimeout(() => { button.textContent = label; }, 1600);
  };
  button.hidden = false;
  button.addEventListener("click", () => copy(text()).then(() => say("Copied"), () => say("Could not copy")));
};
for (const button of document.querySelectorAll("[data-copy]")) {
  const text = data.copies[button.dataset.copy];
  if (typeof text === "string") copiesOn(button, () => text);
}
for (const button of document.querySelectorAll("[data-copy-link]")) {
  copiesOn(button, () => `${location.href.split("#")[0]}#${button.dataset.copyLink}`);
}
