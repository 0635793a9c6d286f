// Dark or light: the system's preference, unless the user chooses.

import { icon } from "./icons.js";

const KEY = "tropism.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const chosen = () => localStorage.getItem(KEY);
const current = () => chosen() ?? (system.matches ? "dark" : "light");

function show(button) {
  document.documentElement.dataset.theme = current();
  button.replaceChildren(icon(current() === "dark" ? "sun" : "moon"));
  button.setAttribute("aria-label", `Switch to ${current() === "dark" ? "light" : "dark"}`);
}

export function theme(button) {
  show(button);
  system.addEventListener("change", () => show(button));
  button.addEventListener("click", () => {
    localStorage.setItem(KEY, current() === "dark" ? "light" : "dark");
    show(button);
  });
}
