// The page: routes addresses to views, and updates the top bar.

import { OFFLINE, get, open, token } from "./api.js";
import { make, root, say, withdraw } from "./dom.js";
import { gallery } from "./gallery.js";
import { recordings } from "./recordings.js";
import { reference } from "./reference.js";
import { begin, recording, session } from "./session.js";
import { sessions } from "./sessions.js";
import { theme } from "./theme.js";

const STATES = { connected: "Connected", offline: "Server not reached", locked: "Token needed" };
const main = document.querySelector("#main");
let views = [];
let turn = 0;

async function home() {
  const environments = await get("/list_environments");
  const [cards, live] = [await gallery(environments), sessions()];
  const count = environments.length === 1 ? "1 environment" : `${environments.length} environments`;
  const element = make(
    "div",
    { class: "home" },
    make("section", { "aria-labelledby": "environments" }, make("h1", { id: "environments", tabindex: -1 }, "Environments"), make("p", { class: "lead" }, `${count} on this server. Play one by hand, watch an agent, go back to any step and fork from there.`), cards.element),
    make("section", { id: "sessions", "aria-labelledby": "live", class: "panel" }, make("h2", { id: "live", tabindex: -1 }, "Live sessions"), live.element),
  );
  return { element, close: () => [cards, live].forEach((view) => view.close()) };
}

async function listing() {
  const live = sessions();
  const heading = make("h1", { tabindex: -1 }, "Live sessions");
  const lead = make("p", { class: "lead" }, "All live sessions of your token on this server. Sessions of other clients can be watched and forked, but not stepped.");
  return { element: make("section", { class: "panel listing" }, heading, lead, live.element), close: live.close };
}

const ROUTES = [
  [/^\/?$/, home, "home", "Tropism"],
  [/^\/sessions$/, listing, "sessions", "Sessions · Tropism"],
  [/^\/play\/(.+)$/, begin, "home", "Tropism"],
  [/^\/recordings$/, recordings, "recordings", "Recordings · Tropism"],
  [/^\/recording\/([^/]+)\/(\d+)$/, recording, "recordings", "Recording · Tropism"],
  [/^\/session\/([\w-]+)$/, session, "session", "Session · Tropism"],
  [/^(?:\/envs\/([^/]+))?\/docs\/?([^/]*)$/, reference, "docs", "API · Tropism"],
];

/** The route of the address: the path of the API reference with the hash, or the hash alone. */
const address = () => (location.pathname.endsWith("/docs") ? location.pathname.slice(root.length) : "") + location.hash.slice(1);

async function route() {
  const mine = ++turn;
  const path = address();
  const [pattern, show, name, title] = ROUTES.find(([each]) => each.test(path)) ?? ROUTES[0];
  views.splice(0).forEach((view) => view.close());
  for (const link of document.querySelectorAll("[data-nav]")) {
    if (link.dataset.nav === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.setAttribute("aria-busy", "true");
  try {
    const view = await show(...(path.match(pattern)?.slice(1).map((part) => part && decodeURIComponent(part)) ?? []));
    if (!view) return;
    if (mine !== turn) return view.close();
    views = [view];
    present(view.element, title);
  } catch (error) {
    if (mine !== turn) return;
    present(trouble(error), "Error · Tropism");
  } finally {
    if (mine === turn) main.removeAttribute("aria-busy");
  }
}

/** Show a view from its top; its heading gets the focus. */
function present(element, title) {
  main.replaceChildren(element);
  document.title = title;
  main.querySelector("h1")?.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function trouble(error) {
  const again = make("button", { type: "button", class: "primary", onclick: route }, "Try again");
  return make("section", { class: "panel trouble", "data-code": error.code ?? "" }, make("h1", { tabindex: -1 }, "Something went wrong"), make("p", {}, error.message), make("div", { class: "row" }, again, make("a", { class: "button", href: `${root}/#/` }, "All environments")));
}

document.addEventListener("connection", ({ detail }) => {
  const state = document.querySelector("#state");
  state.dataset.state = detail;
  say(state.querySelector("span"), STATES[detail]);
  document.querySelector("#token").hidden = !token.get();
});
document.addEventListener("reconnected", () => {
  withdraw(OFFLINE);
  if (main.querySelector(".trouble[data-code=OFFLINE]")) route();
});
document.addEventListener("sessions", ({ detail }) => {
  const count = document.querySelector("#count");
  count.textContent = detail;
  count.hidden = detail === 0;
});
document.querySelector("#token").addEventListener("click", () => open(null).then(route, () => {}));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
theme(document.querySelector("#theme"));
addEventListener("hashchange", () => {
  document.querySelector("#notice").hidden = true; // it belongs to the previous page
  route();
});
route();
