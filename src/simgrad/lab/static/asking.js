// Keys for the answers: each presses the button or follows the link that names it.
"use strict";

let sent = false;

document.addEventListener("keydown", (event) => {
  if (sent || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const target = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (!target) return;
  event.preventDefault();
  sent = true;
  target.click();
});
