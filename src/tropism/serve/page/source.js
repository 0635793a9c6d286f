// Where an episode comes from. A source has `rows` (its moments), `refresh`, `picture(step, of)` and `fork(step)`;
// a live session is one, and so is a recording: both answer the same three requests, each under its address.

import { get, own, post, request } from "./api.js";
import { encoded } from "./images.js";

const MOST_PICTURES = 120;

export class Source {
  constructor(address, title = "") {
    this.address = address;
    this.title = title; // where it has a name
    this.rows = [];
    this.take = null; // the server's name for the episode that these rows are of
    this.told = {};
    this.pictures = new Map();
    this.pending = Promise.resolve();
  }

  get last() {
    return this.rows.length - 1;
  }

  /** Fetch what is new; true where there was anything. One at a time. */
  refresh() {
    this.pending = this.pending.catch(() => {}).then(() => this.#fetchAll());
    return this.pending;
  }

  async #fetchAll() {
    const [take, length] = [this.take, this.rows.length];
    for (;;) {
      const start = this.rows.length;
      this.told = await get(`${this.address}/history?from=${start}`);
      if (this.told.take !== this.take) {
        this.take = this.told.take;
        this.rows = [];
        this.#forgetPictures();
        if (start > 0) continue;
      }
      this.rows.push(...this.told.rows);
      if (this.told.rows.length === 0 || this.last >= this.told.step_count) break;
    }
    return take !== this.take || length !== this.rows.length;
  }

  /** Begin anew with a first moment that is known already, or add one. */
  add(row) {
    if (row.step === 0) {
      this.rows = [];
      this.#forgetPictures();
    }
    this.rows.push(row);
  }

  /** The address of a step's picture, or of the image in the field `of` of its observation; null where there is none. */
  async picture(step, of = "") {
    const key = `${this.take}/${step}/${of}`;
    if (!this.pictures.has(key)) {
      const blob = await this.#load(step, of);
      this.pictures.set(key, blob && URL.createObjectURL(blob));
      if (this.pictures.size > MOST_PICTURES) this.#forgetPicture(this.pictures.keys().next().value);
    }
    return this.pictures.get(key);
  }

  async #load(step, of) {
    const known = this.rows[step].images?.[of];
    if (known) return encoded(known);
    const reply = await request(`${this.address}/picture?step=${step}${of && `&of=${encodeURIComponent(of)}`}`);
    return reply.status === 204 ? null : reply.blob();
  }

  /** The view of a new session of our own that goes on from this step. */
  async fork(step) {
    const twin = await post(`${this.address}/fork`, { step });
    own.add(twin.view, twin.session_id, this.told.environment);
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
