// Which keys are the page's: single characters can be turned off, for whom a device types them unasked.

import { make } from "./dom.js";

const KEY = "tropism.shortcuts";
const EDITED = ["INPUT", "TEXTAREA", "SELECT"];
const SCROLLED = "summary, a, pre"; // Space and arrows are theirs while they have the focus
const WORDS = [[", .", "scrub"], ["p", "play back"], ["e", "end"], ["f", "fork"], ["r", "reset"]];

const on = () => localStorage.getItem(KEY) !== "off";

/** Whether a key that was pressed is meant for what is on stage. */
export function isOurs(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || EDITED.includes(event.target.tagName)) return false;
  if (document.querySelector("dialog[open]")) return false;
  if (event.key === " " || event.key.startsWith("Arrow")) return !event.target.closest?.(SCROLLED);
  return on() || event.key.length > 1;
}

/** The list of shortcuts, and the switch. */
export function shortcuts(canReset) {
  const keys = make("p", { class: "keys" }, WORDS.filter(([key]) => canReset || key !== "r").map(([key, word]) => [make("kbd", {}, key), ` ${word} `]).flat());
  const input = make("input", { type: "checkbox", role: "switch", checked: on() });
  const show = () => keys.classList.toggle("off", !on());
  input.addEventListener("change", () => {
    localStorage.setItem(KEY, input.checked ? "on" : "off");
    show();
  });
  show();
  return [keys, make("label", { class: "switch" }, input, "Keyboard shortcuts")];
}
