// Keyboard shortcuts: single characters can be turned off, for users whose input device types them by accident.

import { make } from "./dom.js";

const KEY = "tropism.shortcuts";
const EDITED = ["TEXTAREA", "SELECT"];
const NATIVE = { range: /^(Arrow(Up|Down|Left|Right)|Page(Up|Down)|Home|End)$/, checkbox: /^ $/ }; // by type of input
const SCROLLED = "summary, a, pre"; // these handle Space and arrow keys while focused
const WORDS = [[", .", "scrub"], ["p", "play back"], ["e", "end"], ["f", "fork"], ["r", "reset"]];

const on = () => localStorage.getItem(KEY) !== "off";

/** Whether a key press is meant for the episode. */
export function isOurs(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || isNative(event)) return false;
  if (document.querySelector("dialog[open]")) return false;
  if (event.key === " " || event.key.startsWith("Arrow")) return !event.target.closest?.(SCROLLED);
  return on() || event.key.length > 1;
}

/** Whether the focused field handles this key itself: a text field any key, a slider only the keys that move it. */
function isNative({ key, target }) {
  if (target.tagName !== "INPUT") return EDITED.includes(target.tagName);
  return NATIVE[target.type]?.test(key) ?? true;
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
