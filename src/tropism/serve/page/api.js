// All HTTP requests of the page: with the token, without cookies; error replies become exceptions.

import { pause, root } from "./dom.js";

const TOKEN = "tropism.token";
const SESSIONS = "tropism.sessions";
const [FIRST_PROBE, LAST_PROBE] = [500, 4000]; // milliseconds between probes of an unreachable server

export const OFFLINE = "the server cannot be reached";

export class Refusal extends Error {
  constructor(status, { code = "UNKNOWN", message = `the server answered ${status}` } = {}) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (text) => (text ? sessionStorage.setItem(TOKEN, text) : sessionStorage.removeItem(TOKEN)),
};

/** The sessions that this tab may step: their ids and environments by watch id. */
export const own = {
  all: () => JSON.parse(sessionStorage.getItem(SESSIONS) ?? "{}"),
  id: (view) => own.all()[view]?.id,
  environment: (view) => own.all()[view]?.environment,
  add: (view, id, environment) => sessionStorage.setItem(SESSIONS, JSON.stringify({ ...own.all(), [view]: { id, environment } })),
  forget(view) {
    const { [view]: _, ...others } = own.all();
    sessionStorage.setItem(SESSIONS, JSON.stringify(others));
  },
};

export async function request(path, { body, session } = {}) {
  const sent = token.get();
  const headers = {};
  if (sent) headers.authorization = `Bearer ${sent}`;
  if (session) headers["x-session-id"] = session;
  if (body !== undefined) headers["content-type"] = "application/json";
  const reply = await reach(path, { method: body === undefined ? "GET" : "POST", headers, body, credentials: "omit" });
  if (reply.status === 401) {
    await ask(sent);
    return request(path, { body, session });
  }
  if (!reply.ok) throw new Refusal(reply.status, await reply.json().catch(() => ({})));
  return reply;
}

export const get = async (path, options) => (await request(path, options)).json();

export const post = async (path, data, session) =>
  (await request(path, { body: typeof data === "string" ? data : JSON.stringify(data), session })).json();

async function reach(path, options) {
  try {
    const reply = await fetch(root + path, options);
    announce(reply.status === 401 ? "locked" : "connected");
    return reply;
  } catch {
    announce("offline");
    throw new Refusal(0, { code: "OFFLINE", message: OFFLINE });
  }
}

let connection;

/** Dispatch "connection" on each reply, and "reconnected" on the first one after the server could not be reached. */
function announce(state) {
  const before = connection;
  connection = state;
  document.dispatchEvent(new CustomEvent("connection", { detail: state }));
  if (state === "offline" && before !== "offline") probe();
  if (state !== "offline" && before === "offline") document.dispatchEvent(new Event("reconnected"));
}

/** Poll the server's health until it replies, so that an idle page notices too. */
async function probe() {
  for (let wait = FIRST_PROBE; connection === "offline"; wait = Math.min(2 * wait, LAST_PROBE)) {
    await pause(wait);
    if (connection === "offline") await reach("/health", { credentials: "omit" }).catch(() => {});
  }
}

export const reconnected = () => new Promise((done) => document.addEventListener("reconnected", done, { once: true }));

let asking;

/** Prompt for a token, once for all rejected requests; `refused` is the token they had sent. */
function ask(refused) {
  if (token.get() !== refused) return Promise.resolve(); // the token was changed by another request's prompt
  asking ??= open(refused).finally(() => (asking = undefined));
  return asking;
}

/** The token dialog; also to change a valid token. */
export function open(refused) {
  const dialog = document.querySelector("#ask");
  const field = dialog.querySelector("input");
  dialog.querySelector("#ask-title").textContent = refused ? "The token is not valid on this server" : "This server needs a token";
  field.value = "";
  dialog.returnValue = "cancel";
  dialog.querySelector("#ask-cancel").onclick = () => dialog.close("cancel");
  dialog.showModal();
  return new Promise((done, failed) => {
    const closed = () => {
      const given = field.value.trim();
      if (dialog.returnValue !== "ok" || !given) return failed(new Refusal(401, { message: "no token was given" }));
      token.set(given);
      return done();
    };
    dialog.addEventListener("close", closed, { once: true });
  });
}
