// Controls generated from the schema of an action: buttons, sliders or fields, and their keys.

import { make } from "./dom.js";

const MOST_BUTTONS = 24;
const MOST_SLIDERS = 16;
const COMPASS = ["up-left", "up", "up-right", "left", "stay", "right", "down-left", "down", "down-right"];
const ARROWS = {
  up: "ArrowUp", down: "ArrowDown", left: "ArrowLeft", right: "ArrowRight",
  forward: "ArrowUp", "turn left": "ArrowLeft", "turn right": "ArrowRight",
};
const SIGNS = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→" };

/** Controls that call `act` with an action; each has `element`, `key(event)` and `update(row, enabled)`. */
export function controls(schema, act) {
  const form = schema.oneOf[0];
  const names = Object.keys(form.properties);
  if (names.length === 1 && names[0] === "value") {
    const value = form.properties.value;
    const parts = [valueControls(value, (chosen) => act({ value: chosen }))];
    if ("text" in schema.properties) parts.push(command((text) => act({ text })));
    return together(parts);
  }
  return record(form, act);
}

function valueControls(schema, act) {
  if (schema.type === "integer" && schema.maximum - schema.minimum < MOST_BUTTONS) return buttons(schema, act);
  const entries = entriesOf(schema);
  if (entries) return sliders(entries, act);
  return record({ properties: { value: schema }, required: ["value"] }, ({ value }) => act(value));
}

function entriesOf(schema) {
  if (schema.type !== "array" || schema.minItems !== schema.maxItems || schema.minItems > MOST_SLIDERS) return null;
  const entries = schema.prefixItems ?? Array(schema.minItems).fill(schema.items);
  return entries.every(({ minimum, maximum }) => Number.isFinite(minimum) && Number.isFinite(maximum)) ? entries : null;
}

function together(parts) {
  return {
    element: make("div", { class: "controls" }, parts.map(({ element }) => element)),
    key: (event) => parts.some((part) => part.key(event)),
    update: (row, enabled) => parts.forEach((part) => part.update(row, enabled)),
  };
}

function buttons({ minimum, maximum, oneOf }, act) {
  const choices = oneOf ?? Array.from({ length: maximum - minimum + 1 }, (_, i) => ({ const: minimum + i, title: String(minimum + i) }));
  const pad = choices.length > 3 && choices.every(({ title }) => COMPASS.includes(title));
  const keys = new Map();
  const all = choices.map(({ const: value, title }) => {
    const arrow = ARROWS[title];
    if (arrow) keys.set(arrow, value);
    if (value >= 0 && value <= 9) keys.set(String(value), value);
    const hint = SIGNS[arrow] ?? (value <= 9 && title !== String(value) ? String(value) : "");
    const button = make("button", { type: "button", "data-action": value, onclick: () => act(value) }, title);
    if (hint) button.append(make("kbd", { "aria-hidden": "true" }, hint));
    if (pad) button.style.gridArea = `${Math.floor(COMPASS.indexOf(title) / 3) + 1} / ${(COMPASS.indexOf(title) % 3) + 1}`;
    return button;
  });
  const usable = (value) => all.some((button) => button.dataset.action === String(value) && !button.disabled);
  return {
    element: make("div", { class: pad ? "choices pad" : "choices", role: "group", "aria-label": "Actions" }, all),
    key: (event) => {
      const value = keys.get(event.key);
      if (value === undefined) return false;
      if (usable(value)) act(value);
      return true;
    },
    update: (row, enabled) =>
      all.forEach((button, i) => (button.disabled = !enabled || row?.legal?.[choices[i].const - minimum] === false)),
  };
}

function sliders(entries, act) {
  const fields = entries.map((entry, i) => {
    const whole = entry.type === "integer";
    const title = entry.title ?? `entry ${i}`;
    const value = whole ? entry.minimum : Math.min(entry.maximum, Math.max(entry.minimum, 0));
    const step = whole ? 1 : (entry.maximum - entry.minimum) / 200;
    const input = make("input", { type: "range", min: entry.minimum, max: entry.maximum, step, value, "aria-label": title });
    const output = make("output", {}, String(value));
    input.addEventListener("input", () => (output.textContent = String(Number(Number(input.value).toPrecision(3)))));
    const element = make("label", { class: "slider" }, make("span", {}, title), input, output);
    return { element, input };
  });
  const go = () => act(fields.map(({ input }) => Number(input.value)));
  const step = make("button", { type: "button", class: "primary", onclick: go }, "Step", make("kbd", { "aria-hidden": "true" }, "space"));
  const nudges = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowDown: [1, -1], ArrowUp: [1, 1] };
  return {
    element: make("div", { class: "sliders", role: "group", "aria-label": "Action" }, fields.map(({ element }) => element), step),
    key: (event) => {
      if (event.key === " " && event.target.tagName !== "BUTTON") return step.disabled || go(), true;
      const [place, sign] = nudges[event.key] ?? [];
      const input = fields[place]?.input;
      if (!input) return false;
      input.value = Number(input.value) + (sign * (input.max - input.min)) / 10;
      input.dispatchEvent(new Event("input"));
      return true;
    },
    update: (_, enabled) => (step.disabled = !enabled),
  };
}

function command(act) {
  const input = make("input", { type: "text", name: "text", placeholder: "or type the action", "aria-label": "The action in words", autocomplete: "off" });
  const send = make("button", { type: "submit" }, "Say");
  const element = make("form", { class: "command" }, input, send);
  element.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (input.value.trim() && (await act(input.value))) input.value = "";
  });
  return { element, key: () => false, update: (_, enabled) => (send.disabled = !enabled) };
}

/** A form with a field for each property. */
function record({ properties, required = [] }, act) {
  const fields = Object.entries(properties).map(([name, schema]) => field(name, schema, required.includes(name)));
  const main = fields.find(({ input }) => input.tagName === "TEXTAREA") ?? fields[0]; // the field to type into repeatedly
  const send = make("button", { type: "submit", class: "primary" }, "Send");
  const element = make("form", { class: "record" }, fields.map((each) => each.element), send);
  element.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (send.disabled) return;
    const action = {};
    try {
      for (const { name, read } of fields) {
        const value = read();
        if (value !== undefined) action[name] = value;
      }
    } catch (error) {
      main.input.focus();
      return document.dispatchEvent(new CustomEvent("refused", { detail: `that is not JSON: ${error.message}` }));
    }
    if (await act(action)) fields.forEach(({ clear }) => clear());
    if (document.activeElement === document.body || document.activeElement === send) main.input.focus({ preventScroll: true });
  });
  element.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && event.target.tagName === "TEXTAREA" && event.target.rows <= 3) {
      event.preventDefault();
      element.requestSubmit();
    }
  });
  return { element, key: () => false, update: (_, enabled) => (send.disabled = !enabled) };
}

function field(name, schema, required) {
  const { input, read, clear = () => {} } = editor(name, schema);
  if (required && input.type !== "checkbox") input.required = true; // unchecked is a valid value
  const element = make("label", { class: `field ${input.type ?? ""}` }, make("span", {}, schema.title ?? name), input);
  return { name, element, input, read, clear };
}

function editor(name, schema) {
  if (schema.enum) {
    const options = schema.enum.map((value) => make("option", { value, selected: value === schema.default }, value));
    const input = make("select", { name }, options);
    return { input, read: () => input.value };
  }
  if (schema.type === "boolean") {
    const input = make("input", { type: "checkbox", name, checked: schema.default === true });
    return { input, read: () => input.checked, clear: () => (input.checked = schema.default === true) };
  }
  if (schema.type === "integer" || schema.type === "number") {
    const step = schema.type === "integer" ? 1 : "any";
    const input = make("input", { type: "number", name, min: schema.minimum, max: schema.maximum, step, value: schema.default });
    return { input, read: () => (input.value === "" ? undefined : Number(input.value)) };
  }
  const input = make("textarea", { name, rows: name === "code" ? 8 : 2, spellcheck: "false" });
  const text = schema.type === "string";
  const read = () => (text ? input.value : input.value.trim() === "" ? undefined : JSON.parse(input.value));
  return { input, read, clear: () => (input.value = "") };
}
