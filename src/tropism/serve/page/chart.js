// Small line charts, one lane per number, with a common time axis and cursor.

import { draw, make, number, say } from "./dom.js";

const [WIDTH, HEIGHT, MARGIN] = [600, 48, 4];
const SHORTEST = 20; // the minimum number of steps across a chart
const MOST_POINTS = 1200;

/** A lane for `label`; `seek(step)` is called when the user points at a step. */
export function lane(label, seek) {
  const line = draw("path", { class: "line" });
  const area = draw("path", { class: "area" });
  const cursor = draw("line", { class: "cursor", y1: 0, y2: HEIGHT });
  const value = make("span", { class: "value" });
  const [top, bottom] = [make("span", { class: "top" }), make("span", { class: "bottom" })];
  const svg = draw(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label} over the episode` },
    area, line, cursor,
  );
  const element = make("div", { class: "lane" }, make("div", { class: "legend" }, make("span", {}, label), value), make("div", { class: "plot" }, svg, top, bottom));
  let span = SHORTEST;
  const point = (event) => {
    if (event.type === "pointermove" && event.buttons === 0) return;
    const box = svg.getBoundingClientRect();
    seek(Math.round(((event.clientX - box.left) / box.width) * span));
  };
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("pointermove", point);

  function update(values, at) {
    span = Math.max(SHORTEST, values.length - 1);
    const finite = values.filter(Number.isFinite);
    const [low, high] = finite.length ? [Math.min(...finite), Math.max(...finite)] : [0, 0];
    const tall = high - low || 1;
    const x = (step) => (step / span) * WIDTH;
    const y = (each) => HEIGHT - MARGIN - ((each - low) / tall) * (HEIGHT - 2 * MARGIN);
    const every = Math.max(1, Math.ceil(values.length / MOST_POINTS));
    const points = [];
    values.forEach((each, step) => {
      if (Number.isFinite(each) && (step % every === 0 || step === values.length - 1)) points.push([x(step), y(each)]);
    });
    const path = points.map(([right, down]) => `${right.toFixed(1)} ${down.toFixed(1)}`).join("L");
    line.setAttribute("d", path && `M${path}`);
    area.setAttribute("d", path && `M${points[0][0]} ${HEIGHT}L${path}L${points.at(-1)[0]} ${HEIGHT}Z`);
    cursor.setAttribute("x1", x(at));
    cursor.setAttribute("x2", x(at));
    say(top, high > low ? number(high) : "");
    say(bottom, high > low ? number(low) : "");
    say(value, number(values[at]));
  }

  return { element, update };
}
