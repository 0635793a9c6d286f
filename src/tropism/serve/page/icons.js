// Icons as SVG paths, independent of fonts.

import { draw } from "./dom.js";

const PATHS = {
  first: "M3 3h2v10H3zM13 3v10L6 8z",
  back: "M10 3v10L4 8z",
  play: "M4 2.5v11L13 8z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  on: "M6 3v10l6-5z",
  last: "M11 3h2v10h-2zM3 3v10l7-5z",
  moon: "M6 1.5a6.7 6.7 0 1 0 8.5 8.5A6 6 0 0 1 6 1.5z",
  sun: "M8 5a3 3 0 1 1 0 6 3 3 0 0 1 0-6zM7.3 1h1.4v2.2H7.3zM7.3 12.8h1.4V15H7.3zM1 7.3h2.2v1.4H1zM12.8 7.3H15v1.4h-2.2zM2.6 3.6l1-1 1.5 1.5-1 1zM10.9 11.9l1-1 1.5 1.5-1 1zM2.6 12.4l1.5-1.5 1 1-1.5 1.5zM10.9 4.1l1.5-1.5 1 1-1.5 1.5z",
};

export const icon = (name) => draw("svg", { class: "glyph", viewBox: "0 0 16 16", "aria-hidden": "true" }, draw("path", { d: PATHS[name] }));
