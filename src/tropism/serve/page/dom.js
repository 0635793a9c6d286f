// Elements in one expression: make("button", { class: "primary", onclick: play }, "Play").

export const COARSE = 160; // pixels; an image that has fewer across is enlarged without smoothing
const SVG = "http://www.w3.org/2000/svg";

/** The path below which a proxy serves this server; empty if there is none. */
export const root = document.documentElement.dataset.root;

export function make(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function draw(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") element.toggleAttribute(name, value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set the text of an element only if it changes, so that nothing is announced or laid out twice. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

let hiding;

/** Show a temporary message at the foot of the page; one already shown is not announced again. */
export function notify(text) {
  const box = document.querySelector("#notice");
  clearTimeout(hiding);
  if (box.hidden || box.textContent !== text) {
    box.textContent = text;
    box.hidden = false;
  }
  hiding = setTimeout(() => (box.hidden = true), 8000);
}

/** Hide a message that no longer applies. */
export function withdraw(text) {
  const box = document.querySelector("#notice");
  if (box.textContent === text) box.hidden = true;
}

export const pause = (time) => new Promise((done) => setTimeout(done, time));

export function number(value) {
  if (!Number.isFinite(value)) return "–";
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e6)) return value.toExponential(1);
  return String(Number(value.toPrecision(4)));
}

export function duration(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h`;
}
