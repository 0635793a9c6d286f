// Sources of episodes. A source has `rows`, `refresh`, `picture(step, of)` and `fork(step)`;
// a live session or a recording: both serve the same three requests under their URLs.

import { get, own, post, request } from "./api.js";
import { encoded } from "./images.js";

const MAX_PICTURES = 120;

export class Source {
  constructor(address, title = "") {
    this.address = address;
    this.title = title; // may be empty
    this.rows = [];
    this.take = null; // the server's version of the timeline of these rows
    this.reply = {};
    this.pictures = new Map();
    this.pending = Promise.resolve();
  }

  get last() {
    return this.rows.length - 1;
  }

  /** Fetch new rows; returns whether there were any. Runs one request at a time. */
  refresh() {
    this.pending = this.pending.catch(() => {}).then(() => this.#fetchAll());
    return this.pending;
  }

  async #fetchAll() {
    const [take, length] = [this.take, this.rows.length];
    for (;;) {
      const start = this.rows.length;
      this.reply = await get(`${this.address}/history?from=${start}`);
      if (this.reply.take !== this.take) {
        this.take = this.reply.take;
        this.rows = [];
        this.#forgetPictures();
        if (start > 0) continue;
      }
      this.rows.push(...this.reply.rows);
      if (this.reply.rows.length === 0 || this.last >= this.reply.step_count) break;
    }
    return take !== this.take || length !== this.rows.length;
  }

  /** Start over with a known first row, or append a row. */
  add(row) {
    if (row.step === 0) {
      this.rows = [];
      this.#forgetPictures();
    }
    this.rows.push(row);
  }

  /** The URL of a step's picture, or of the image in the field `of` of its observation; null if there is none. */
  async picture(step, of = "") {
    const key = `${this.take}/${step}/${of}`;
    if (!this.pictures.has(key)) {
      const blob = await this.#load(step, of);
      this.pictures.set(key, blob && URL.createObjectURL(blob));
      if (this.pictures.size > MAX_PICTURES) this.#forgetPicture(this.pictures.keys().next().value);
    }
    return this.pictures.get(key);
  }

  async #load(step, of) {
    const known = this.rows[step].images?.[of];
    if (known) return encoded(known);
    const reply = await request(`${this.address}/picture?step=${step}${of && `&of=${encodeURIComponent(of)}`}`);
    return reply.status === 204 ? null : reply.blob();
  }

  /** Fork at this step; returns the watch id of the new session. */
  async fork(step) {
    const twin = await post(`${this.address}/fork`, { step });
    own.add(twin.view, twin.session_id, this.reply.environment);
    return twin.view;
  }

  close() {
    this.#forgetPictures();
  }

  #forgetPictures() {
    for (const key of [...this.pictures.keys()]) this.#forgetPicture(key);
  }

  #forgetPicture(key) {
    const url = this.pictures.get(key);
    if (url) URL.revokeObjectURL(url);
    this.pictures.delete(key);
  }
}

export const liveSource = (view) => new Source(`/sessions/${view}`);

export const recordedSource = (name, number) => new Source(`/envs/${encodeURIComponent(name)}/recordings/${number}`, `episode ${number} · `);
