// The list of live sessions; a row keeps its element while its session is live, to keep the focus.

import { get, own } from "./api.js";
import { duration, make, number, say } from "./dom.js";

const EVERY = 1000; // milliseconds
const COLUMNS = ["Environment", "Step", "Return", "State", "Age", ""];

export function sessions() {
  const body = make("tbody");
  const empty = make("p", { class: "empty" }, "No session is open. Play something, or connect an agent.");
  const head = make("thead", {}, make("tr", {}, COLUMNS.map((name) => make("th", { scope: "col" }, name))));
  const table = make("table", { class: "sessions", "aria-label": "Live sessions", hidden: true }, head, body);
  const rows = new Map();
  let timer, closed = false;

  async function update() {
    if (!document.hidden) {
      const { sessions: listed, count } = await get("/sessions");
      document.dispatchEvent(new CustomEvent("sessions", { detail: count }));
      const live = new Set(listed.map(({ view }) => view));
      for (const [view, row] of rows) if (!live.has(view)) (row.element.remove(), rows.delete(view));
      for (const session of listed) show(session);
      table.hidden = listed.length === 0;
      empty.hidden = listed.length > 0;
    }
  }

  function show(session) {
    if (!rows.has(session.view)) {
      const row = line(session);
      rows.set(session.view, row);
      body.append(row.element);
    }
    rows.get(session.view).update(session);
  }

  async function again() {
    try {
      await update();
    } catch (error) {
      if (error.status === 401) return; // the user dismissed the token dialog
    }
    if (!closed) timer = setTimeout(again, EVERY);
  }
  again();

  return {
    element: make("div", { class: "live" }, table, empty),
    close: () => {
      closed = true;
      clearTimeout(timer);
    },
  };
}

function line({ view, environment }) {
  const mine = own.id(view) !== undefined;
  const [step, total, state, age] = Array.from({ length: 4 }, () => make("td"));
  const word = mine ? "Play on" : "Watch";
  const go = make("a", { class: "button", href: `#/session/${view}`, "aria-label": `${word} ${environment}` }, word);
  const element = make("tr", { "data-view": view }, make("th", { scope: "row" }, environment), step, total, state, age, make("td", {}, go));
  const update = (session) => {
    element.dataset.state = session.lifecycle;
    say(step, String(session.step_count));
    say(total, number(session.total_reward));
    say(state, session.lifecycle);
    state.dataset.state = session.lifecycle;
    say(age, duration(session.age));
  };
  return { element, update };
}
