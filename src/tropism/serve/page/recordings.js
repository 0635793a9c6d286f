// The recordings of this server: latest episodes first, older ones on demand.

import { get } from "./api.js";
import { make, notify, number } from "./dom.js";

const COLUMNS = ["Episode", "Seed", "Steps", "Return", "Ended", ""];
const ENDED = { terminated: "ended", truncated: "out of steps", ready: "not ended" };

export async function recordings() {
  const environments = (await get("/list_environments")).filter(({ recordings: count }) => count > 0);
  environments.sort((one, other) => other.recordings - one.recordings);
  const shelves = environments.map((environment, place) => shelf(environment, place === 0));
  const empty = make("p", { class: "empty" }, "This server does not record. ", make("code", {}, "tropism serve --record DIR"), " records every session.");
  const lead = make("p", { class: "lead" }, "Episodes on disk, the latest first. Open one to scrub it, and to fork a session of your own from any of its steps.");
  const element = make("section", { class: "recordings" }, make("h1", { tabindex: -1 }, "Recordings"), lead, shelves.length ? shelves : empty);
  return { element, close() {} };
}

/** The episodes of one environment, fetched when it is opened. */
function shelf({ name, url, recordings: count }, open) {
  const body = make("tbody");
  const head = make("thead", {}, make("tr", {}, COLUMNS.map((word) => make("th", { scope: "col" }, word))));
  const table = make("table", { class: "sessions", "aria-label": `Recordings of ${name}` }, head, body);
  const older = make("button", { type: "button", onclick: () => more() }, "Older ones");
  const title = make("summary", {}, make("h2", {}, name), " ", make("span", { class: "tag" }, count === 1 ? "1 episode" : `${count} episodes`));
  const element = make("details", { class: "panel shelf", "data-environment": name }, title, make("div", { class: "live" }, table), older);
  let last;

  async function more() {
    older.disabled = true;
    try {
      const { episodes } = await get(`${url}/recordings${last === undefined ? "" : `?before=${last}`}`);
      body.append(...episodes.map((episode) => line(name, episode)));
      last = episodes.at(-1)?.number ?? 0;
      older.hidden = last === 0;
    } catch (error) {
      notify(error.message);
    }
    older.disabled = false;
  }
  element.addEventListener("toggle", more, { once: true });
  element.open = open;
  return element;
}

function line(name, { number: episode, seed, steps, return: total, lifecycle, parent, error }) {
  const title = make("th", { scope: "row" }, `#${episode}`, parent ? make("span", { class: "tag" }, `fork of #${parent[0]} at ${parent[1]}`) : null);
  const row = make("tr", { "data-number": episode }, title);
  if (error) row.append(make("td", { colspan: COLUMNS.length - 1 }, error));
  else {
    const go = make("a", { class: "button", href: `#/recording/${encodeURIComponent(name)}/${episode}`, "aria-label": `Open episode ${episode} of ${name}` }, "Open");
    for (const word of [seed ?? "–", steps, number(total), ENDED[lifecycle], go]) row.append(make("td", {}, typeof word === "number" ? String(word) : word));
  }
  return row;
}
