// Image observations: shown beside the text, fetched from the server or drawn from the values of a reply.

import { make, notify } from "./dom.js";

const OPAQUE = 255;

/** The names of the fields of an observation that are images. */
export const imageNames = ({ properties }) => Object.keys(properties).filter((name) => properties[name]["x-image"]);

/** ImageData of rows of pixels, each a list of one or three numbers; null for any other value. */
export function pixels(rows) {
  const channels = rows?.[0]?.[0]?.length;
  if (channels !== 1 && channels !== 3) return null;
  const image = new ImageData(rows[0].length, rows.length);
  rows.flat().forEach(([red, green = red, blue = red], place) => image.data.set([red, green, blue, OPAQUE], 4 * place));
  return image;
}

/** A PNG of ImageData. */
export function encoded(image) {
  const canvas = new OffscreenCanvas(image.width, image.height);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas.convertToBlob();
}

/** The images of the observation at the current step. */
export class Images {
  constructor(source, names) {
    this.source = source;
    this.images = names.map((name) => [name, make("img", { alt: `The observation's image ${name}`, hidden: true })]);
    const captioned = ([name, image]) => make("figure", {}, image, names.length > 1 ? make("figcaption", {}, name) : null);
    this.element = names.length ? make("div", { class: "images" }, this.images.map(captioned)) : null;
  }

  /** Show the images of this step; while some are being fetched, only the latest requested step is queued. */
  async show(step) {
    this.wanted = step;
    if (this.loading || !this.images.length) return;
    this.loading = true;
    for (let shown; shown !== this.wanted; ) {
      shown = this.wanted;
      await Promise.all(this.images.map(([name, image]) => this.#load(name, image, shown)));
    }
    this.loading = false;
  }

  async #load(name, image, step) {
    try {
      image.src = await this.source.picture(step, name);
      await image.decode();
      Object.assign(image.dataset, { step, field: name });
      image.hidden = false;
    } catch (error) {
      if (!this.closed) notify(error.message);
    }
  }

  close() {
    this.closed = true;
  }
}
