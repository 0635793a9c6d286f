// Shows an episode: its picture with the trail, or its text; the scrubber; the charts.

import { lane } from "./chart.js";
import { icon } from "./icons.js";
import { COARSE, draw, make, notify, number, say } from "./dom.js";

const MOST_LANES = 6;
const NEAR = 8; // pixels of the picture
const FRAME = 90; // minimum milliseconds per step during playback

export class Player {
  constructor(source, { moved, draws }) {
    this.source = source;
    this.moved = moved; // called when the shown step changes
    this.cursor = 0;
    this.following = true; // stay at the live end
    this.playing = false;
    this.plays = 0;
    this.drawn = draws ? undefined : false; // undefined until the first picture is fetched
    this.lanes = new Map();
    this.#build();
  }

  #build() {
    this.image = make("img", { alt: "", hidden: true });
    this.past = draw("polyline", { class: "past" });
    this.edge = draw("polyline", { class: "edge" });
    this.ahead = draw("polyline", { class: "ahead" });
    this.start = draw("circle", { class: "start", r: 4 });
    this.trail = draw("g", {}, this.ahead, this.edge, this.past, this.start);
    this.overlay = draw("svg", { class: "trail", "aria-hidden": "true" }, this.trail);
    this.frame = make("div", { class: "frame" }, this.image, this.overlay);
    this.words = make("pre", { class: "words", tabindex: 0, "aria-label": "Observation" });
    this.figure = make("figure", { class: "stage" }, this.frame);
    this.charts = make("div", { class: "charts", "aria-label": "Charts" });
    this.slider = make("input", { type: "range", min: 0, max: 0, value: 0, step: 1, "aria-label": "Step of the episode" });
    this.slider.addEventListener("input", () => this.seek(Number(this.slider.value)));
    this.place = make("span", { class: "place" });
    const button = (label, sign, onclick) => make("button", { type: "button", class: "icon", "aria-label": label, title: label, onclick }, icon(sign));
    this.toggle = button("Play the episode", "play", () => this.play(!this.playing));
    this.transport = make(
      "div",
      { class: "transport", role: "group", "aria-label": "Scrubber" },
      button("To the beginning", "first", () => this.seek(0)),
      button("One step back", "back", () => this.seek(this.cursor - 1)),
      this.toggle,
      button("One step on", "on", () => this.seek(this.cursor + 1)),
      button("To the end", "last", () => this.seek(this.source.last)),
      this.slider,
      this.place,
    );
  }

  get row() {
    return this.source.rows[this.cursor];
  }

  get atEnd() {
    return this.cursor === this.source.last;
  }

  /** Show a step; the last step keeps following the live end. */
  seek(step, { keepPlaying = false } = {}) {
    if (!keepPlaying) this.play(false);
    this.cursor = Math.max(0, Math.min(step, this.source.last));
    this.following = this.atEnd;
    return this.show();
  }

  /** Update after the source has changed. */
  update() {
    if (this.following || this.cursor > this.source.last) this.cursor = Math.max(0, this.source.last);
    return this.show();
  }

  async play(on) {
    if (on === this.playing) return;
    this.playing = on;
    const mine = ++this.plays; // after pause and play, only the latest loop continues
    this.toggle.replaceChildren(icon(on ? "pause" : "play"));
    for (const name of ["aria-label", "title"]) this.toggle.setAttribute(name, on ? "Pause" : "Play the episode");
    if (on && this.atEnd) this.cursor = 0;
    while (this.playing && mine === this.plays) {
      const shown = this.seek(this.cursor + 1, { keepPlaying: true });
      await Promise.all([shown, new Promise((done) => setTimeout(done, FRAME))]);
      if (mine === this.plays && this.atEnd) this.play(false);
    }
  }

  show() {
    if (!this.row) return Promise.resolve();
    this.slider.max = this.source.last;
    this.slider.value = this.cursor;
    say(this.place, `${this.cursor} / ${this.source.last}`);
    this.slider.setAttribute("aria-valuetext", `step ${this.cursor} of ${this.source.last}`);
    say(this.words, this.drawn === false ? said(this.row.action) + this.row.text : this.row.text);
    this.#chart();
    this.moved(this.row);
    return this.#picture();
  }

  /** Fetch the picture of this step; while one is being fetched, only the latest request is queued. */
  #picture() {
    this.fetching ??= this.#fetchPictures().finally(() => (this.fetching = undefined));
    return this.fetching;
  }

  async #fetchPictures() {
    for (let shown = null; shown !== this.row && this.drawn !== false && !this.closed; ) {
      const [step, row] = [this.cursor, this.row];
      try {
        const url = await this.source.picture(step);
        this.drawn = url !== null;
        if (!this.drawn) break;
        this.image.src = url;
        await this.image.decode().catch(() => {}); // replaced by another picture
        this.image.alt = `The environment after step ${step}`;
        this.image.dataset.step = step;
        this.image.classList.toggle("coarse", this.image.naturalWidth < COARSE);
        this.image.hidden = false;
        this.#trail(step);
      } catch (error) {
        if (!this.closed) notify(error.message);
        break;
      }
      shown = row;
    }
    if (this.drawn === false) say(this.words, said(this.row.action) + this.row.text);
    this.figure.classList.toggle("wordy", this.drawn === false);
    if (this.drawn === false && this.words.parentElement !== this.figure) this.frame.replaceWith(this.words);
  }

  /** The path up to the shown step, and the rest of it. */
  #trail(step) {
    const [width, height] = [this.image.naturalWidth, this.image.naturalHeight];
    this.overlay.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const points = this.source.rows.map(({ spot }) => spot && [spot[0] * width, spot[1] * height]);
    const path = (some) => some.filter(Boolean).map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
    const way = points.slice(0, step + 1);
    while (way.length > 2 && near(way.at(-1), points[step])) way.pop(); // do not draw over the agent
    for (const line of [this.edge, this.past]) line.setAttribute("points", path(way));
    this.ahead.setAttribute("points", path(points.slice(step)));
    this.trail.toggleAttribute("hidden", !points[0] || points.length < 2);
    if (points[0]) [this.start.cx.baseVal.value, this.start.cy.baseVal.value] = points[0];
  }

  #chart() {
    const { rows } = this.source;
    const series = [["return", rows.map((row) => row.total_reward)]];
    const names = [...new Set([...Object.keys(rows[0].numbers), ...Object.keys(this.row.numbers)])];
    for (const name of names.slice(0, MOST_LANES)) series.push([name, rows.map((row) => row.numbers[name])]);
    for (const [name, values] of series) {
      if (!this.lanes.has(name)) {
        const made = lane(name, (step) => this.seek(step));
        this.lanes.set(name, made);
        this.charts.append(made.element);
      }
      this.lanes.get(name).update(values, this.cursor);
    }
  }

  summary() {
    const { step, reward, total_reward: total } = this.row;
    return `Step ${step}, reward ${number(reward)}, return ${number(total)}`;
  }

  close() {
    this.closed = true;
    this.playing = false;
    this.source.close();
  }
}

/** The action of a step, for environments that have only text. */
function said(action) {
  if (!action) return "";
  const values = Object.values(action).filter((value) => value !== false).map((value) => (typeof value === "string" ? value : JSON.stringify(value)));
  return `› ${values.join(" · ")}\n\n`;
}

const near = (one, other) => one && other && Math.hypot(one[0] - other[0], one[1] - other[1]) < NEAR;
