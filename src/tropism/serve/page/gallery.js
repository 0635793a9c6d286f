// The environments of this server: one card each, with a picture, or with text if it does not render.

import { get, reconnected, request } from "./api.js";
import { COARSE, make } from "./dom.js";

export async function gallery(environments) {
  const grid = make("div", { class: "grid" });
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((each) => each.isIntersecting)) {
      seen.unobserve(entry.target);
      portray(entry.target);
    }
  }, { rootMargin: "200px" });
  for (const environment of environments) {
    const element = card(environment);
    grid.append(element);
    seen.observe(element.querySelector(".portrait"));
  }
  return { element: grid, close: () => seen.disconnect() };
}

function card({ name, description, url, pure }) {
  const play = `#/play/${encodeURIComponent(name)}`;
  const details = make("details", { class: "schema" }, make("summary", {}, "Schema"));
  details.addEventListener("toggle", () => schema(details, url), { once: true });
  return make(
    "article",
    { class: "card", "data-environment": name },
    make("a", { class: "portrait loading", href: play, tabindex: -1, "aria-hidden": "true", "data-url": url }),
    make("div", { class: "about" },
      make("h3", {}, make("a", { href: play }, name)),
      make("p", {}, description)),
    make("footer", {},
      make("a", { class: "button primary", href: play, "aria-label": `Play ${name}` }, "Play"),
      make("span", { class: "tag", title: pure ? "Runs compiled; any step can be replayed" : "Runs in Python" }, pure ? "pure" : "host"),
      details),
  );
}

async function portray(frame) {
  try {
    const reply = await request(`${frame.dataset.url}/picture`);
    if (reply.headers.get("content-type").startsWith("image/")) await show(frame, await reply.blob());
    else frame.append(make("pre", {}, await reply.text()));
  } catch (error) {
    if (error.code === "OFFLINE") return reconnected().then(() => portray(frame));
    frame.append(make("pre", {}, error.message));
  }
  frame.classList.remove("loading");
}

/** A picture on a background of the colour near its corner. */
async function show(frame, blob) {
  const bitmap = await createImageBitmap(blob);
  const corner = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
  corner.drawImage(bitmap, -3, -3);
  const [red, green, blue] = corner.getImageData(0, 0, 1, 1).data;
  frame.style.backgroundColor = `rgb(${red} ${green} ${blue})`;
  const url = URL.createObjectURL(blob);
  const image = make("img", { alt: "", src: url, class: bitmap.width < COARSE ? "coarse" : null });
  await image.decode().finally(() => URL.revokeObjectURL(url));
  frame.append(image);
}

async function schema(details, url) {
  const { action, observation } = await get(`${url}/schema`);
  for (const [title, part] of [["Action", action], ["Observation", observation]])
    details.append(make("h4", {}, title), make("pre", { tabindex: 0 }, JSON.stringify(part, null, 1)));
}
