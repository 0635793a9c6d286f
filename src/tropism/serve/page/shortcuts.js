// Which keys are the page's: single characters can be turned off, for whom a device types them unasked.

import { make } from "./dom.js";

const KEY = "tropism.shortcuts";
const EDITED = ["TEXTAREA", "SELECT"];
const NATIVE = { range: /^(Arrow(Up|Down|Left|Right)|Page(Up|Down)|Home|End)$/, checkbox: /^ $/ }; // by type of input
const SCROLLED = "summary, a, pre"; // Space and arrows are theirs while they have the focus
const WORDS = [[", .", "scrub"], ["p", "play back"], ["e", "end"], ["f", "fork"], ["r", "reset"]];

const on = () => localStorage.getItem(KEY) !== "off";

/** Whether a key that was pressed is meant for what is on stage. */
export function isOurs(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || isNative(event)) return false;
  if (document.querySelector("dialog[open]")) return false;
  if (event.key === " " || event.key.startsWith("Arrow")) return !event.target.closest?.(SCROLLED);
  return on() || event.key.length > 1;
}

/** Whether the focused field handles this key itself: a text field any key, a slider only those that move it. */
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
