// One episode: of a session of this tab, of another client's session, or recorded; all can be scrubbed and forked.

import { get, own, post, token } from "./api.js";
import { clickable } from "./clicks.js";
import { connect } from "./connect.js";
import { controls } from "./controls.js";
import { make, notify, number, pause, say } from "./dom.js";
import { EVERY, follow } from "./follow.js";
import { Images, imageNames, pixels } from "./images.js";
import { Player } from "./player.js";
import { isOurs, shortcuts } from "./shortcuts.js";
import { liveSource, recordedSource } from "./source.js";

const MAX_REQUESTS = 4; // running and queued requests
const SURE = 2000; // milliseconds within which a key that ends an episode must be pressed again

const MODES = { play: "playing", watch: "watching", recorded: "recorded" };

const opened = new Map(); // first replies of sessions that cannot be replayed, by watch id

let begun = 0;

/** Open a session of an environment and go to it. */
export async function begin(name) {
  const [mine, address] = [++begun, location.hash];
  const environment = (await get("/list_environments")).find((each) => each.name === name);
  if (!environment) throw new Error(`this server has no environment ${name}`);
  const reply = await post(`${environment.url}/reset`, environment.replayable ? seeded(randomSeed()) : {});
  const { view, session_id: id } = reply;
  if (mine !== begun || location.hash !== address) {
    await post(`${environment.url}/close`, {}, id); // the user has left
    return;
  }
  own.add(view, id, name);
  if (!environment.replayable) opened.set(view, reply);
  location.replace(`#/session/${view}`);
}

const randomSeed = () => String(Math.floor(Math.random() * 10_000));

/** A seed as JSON; it may exceed JavaScript's integers. */
const seeded = (text) => (/^\d+$/.test(text) ? `{"seed":${BigInt(text)}}` : "{}");

export async function session(view) {
  const source = liveSource(view);
  if (opened.has(view)) {
    source.add(moment(opened.get(view), null));
    source.reply = { environment: opened.get(view).environment, seed: null };
  } else await revived(source, view);
  return staged(source, own.id(view) ? "play" : "watch", view);
}

/** Fetch the episode; an evicted session of this tab is resumed by a request with its id. */
async function revived(source, view) {
  try {
    await source.refresh();
  } catch (error) {
    if (error.code !== "SESSION_ERROR" || !own.id(view)) throw error;
    await get(`/envs/${encodeURIComponent(own.environment(view))}/state`, { session: own.id(view) });
    await source.refresh();
  }
}

export async function recording(name, number) {
  const source = recordedSource(name, number);
  await source.refresh();
  const stage = await staged(source, "recorded", "");
  stage.player.seek(0);
  return stage;
}

async function staged(source, mode, view) {
  const environments = await get("/list_environments");
  const environment = environments.find(({ name }) => name === source.reply.environment);
  const stage = new Stage(view, mode, source, environment);
  await stage.build();
  return stage;
}

class Stage {
  constructor(view, mode, source, environment) {
    Object.assign(this, { view, mode, source, environment });
    this.id = own.id(view);
    this.requestCount = 0; // running and queued requests
    this.working = Promise.resolve();
  }

  async build() {
    this.player = new Player(this.source, { moved: () => this.show(), draws: this.environment.replayable });
    this.seed = make("input", { id: "seed", type: "text", inputmode: "numeric", pattern: "[0-9]*", value: this.source.reply.seed ?? "", "aria-label": "Seed" });
    this.facts = Object.fromEntries(["step", "action", "reward", "return"].map((name) => [name, make("dd")]));
    this.banner = make("p", { class: "banner", role: "status" });
    this.fork = make("button", { disabled: !this.environment.replayable, type: "button", id: "fork", onclick: () => this.forkHere() }, "Fork here", make("kbd", { "aria-hidden": "true" }, "f"));
    this.player.transport.append(this.fork);
    this.player.figure.append(this.banner);
    this.heard = make("p", { class: "hidden", "aria-live": "polite" });
    const schema = await get(`${this.environment.url}/schema`);
    this.action = schema.action.oneOf[0].properties.value ?? {};
    this.controls = this.id && controls(schema.action, (action) => this.act(action));
    this.images = new Images(this.source, imageNames(schema.observation));
    const clicks = schema.action["x-clicks"];
    if (this.id && clicks) clickable(this.player, clicks, { accepts: (action) => this.accepts(action), act: (action) => this.act(action) });
    this.element = this.#layout(schema);
    this.onKey = (event) => this.key(event);
    this.onRefused = (event) => notify(event.detail);
    document.addEventListener("keydown", this.onKey);
    document.addEventListener("refused", this.onRefused);
    this.onReconnected = () => this.#resume();
    if (this.mode === "play") document.addEventListener("reconnected", this.onReconnected);
    await this.player.update();
    if (this.mode !== "play") follow(this);
  }

  #layout(schema) {
    const { name, description } = this.environment;
    const facts = make("dl", { class: "facts" }, Object.entries(this.facts).map(([word, value]) => make("div", {}, make("dt", {}, word), value)));
    const code = make("details", { class: "schema" }, make("summary", {}, "Schema"), make("pre", { tabindex: 0 }, JSON.stringify(schema, null, 1)));
    return make(
      "section",
      { class: "session", "data-view": this.view, "data-mode": this.mode },
      make("header", { class: "title" },
        make("div", {}, make("h1", { tabindex: -1 }, name, " ", make("span", { class: "tag" }, MODES[this.mode])), make("p", {}, description)),
        this.id ? this.#begin() : make("p", { class: "seeded" }, `${this.source.title}seed ${this.source.reply.seed}`)),
      make("div", { class: "left" }, this.player.figure, this.player.transport, make("div", { class: "panel trace" }, make("h2", {}, "Trace"), this.player.charts)),
      make("div", { class: "right" },
        facts,
        this.controls ? make("div", { class: "panel act" }, make("h2", {}, "Act"), this.controls.element) : null,
        make("div", { class: "panel" }, make("h2", {}, "Observation"), this.images.element, this.player.words),
        ...shortcuts(Boolean(this.id)), code, make("details", { class: "schema" }, make("summary", {}, "Connect"), connect(name, Boolean(token.get())))),
      this.heard,
    );
  }

  #begin() {
    const end = make("button", { type: "button", class: "quiet", onclick: () => this.end() }, "End session");
    const form = make("form", { class: "begin" }, make("label", { for: "seed" }, "Seed"), this.seed, make("button", { type: "submit" }, "Reset", make("kbd", { "aria-hidden": "true" }, "r")), end);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.reset();
    });
    return form;
  }

  /** Update everything beside the picture that depends on the shown step. */
  show() {
    const { row, atEnd } = this.player;
    say(this.facts.step, String(row.step));
    say(this.facts.action, row.action ? spelled(row.action, this.action.oneOf ?? []) : "–");
    this.facts.action.title = row.action ? JSON.stringify(row.action) : "";
    say(this.facts.reward, number(row.reward));
    say(this.facts.return, number(row.total_reward));
    const over = row.lifecycle !== "ready";
    this.controls?.update(row, atEnd && !over);
    this.images.show(this.player.cursor);
    this.element.classList.toggle("over", over);
    say(this.banner, this.#verdict(row, atEnd, over));
    this.banner.classList.toggle("ended", atEnd && over);
  }

  #verdict(row, atEnd, over) {
    if (!atEnd) return this.mode === "recorded" ? "" : "This is an earlier step: fork here to continue from it.";
    if (over) return `The episode has ${row.lifecycle === "truncated" ? "run out of steps" : "ended"}: return ${number(row.total_reward)}.`;
    if (this.mode === "recorded") return "The recording ends here: fork to play on.";
    if (this.gone) return "This session was closed. What is seen here stays; it cannot be forked any more.";
    return this.id ? "" : "Live: you see each step as it is made.";
  }

  /** Whether this action can be taken now: the episode has not ended, and the action is legal. */
  accepts(action) {
    const { row, atEnd } = this.player;
    return atEnd && row.lifecycle === "ready" && row.legal?.[action.value - this.action.minimum] !== false;
  }

  /** Take a step; returns whether it succeeded. */
  async act(action) {
    return this.#inTurn(async () => {
      if (!this.player.atEnd || this.player.row.lifecycle !== "ready") return;
      const reply = await post(`${this.environment.url}/step`, { action }, this.id);
      if (reply.observation.error) throw new Error(reply.observation.error);
      await this.#learn(reply, action);
      say(this.heard, this.player.summary());
    });
  }

  reset() {
    return this.#inTurn(async () => {
      const typed = this.seed.value;
      const seed = typed.trim() || randomSeed();
      const reply = await post(`${this.environment.url}/reset`, this.environment.replayable ? seeded(seed) : {}, this.id);
      if (this.environment.replayable && /^\d+$/.test(seed)) this.source.reply = { ...this.source.reply, seed: String(BigInt(seed)) };
      this.player.following = true;
      await this.#learn(reply, null);
      if (this.source.reply.seed && this.seed.value === typed) this.seed.value = this.source.reply.seed; // unless the user has typed another
      say(this.heard, "A new episode begins.");
    });
  }

  /** The key must be pressed twice to end a running episode. */
  resetIfSure() {
    const row = this.source.rows.at(-1);
    if (row.step === 0 || row.lifecycle !== "ready" || performance.now() - this.warned < SURE) return this.reset();
    this.warned = performance.now();
    notify("An episode is under way: press r again to begin another.");
  }

  /** Add the row of a reply; if a replay is cheap, fetch the row from the server instead. */
  async #learn(reply, action) {
    if (this.environment.blocking || !this.environment.replayable) this.source.add(moment(reply, action, this.source.rows.at(-1)));
    else {
      await this.source.refresh();
      while (this.source.last < this.source.reply.step_count && !this.closed) {
        await pause(EVERY); // the server is still replaying it
        await this.source.refresh();
      }
    }
    this.player.update();
  }

  /** After a reconnect: a restarted server resumes the session when it gets a request with its id. */
  #resume() {
    return this.#inTurn(async () => {
      try {
        await get(`${this.environment.url}/state`, { session: this.id });
        if (this.environment.replayable) await this.source.refresh();
      } catch (error) {
        if (error.code !== "SESSION_ERROR") throw error;
        this.gone = true;
      }
      this.player.update();
    });
  }

  async forkHere() {
    if (this.fork.disabled) return;
    await this.#inTurn(async () => {
      const view = await this.source.fork(this.player.cursor);
      location.hash = `#/session/${view}`;
    });
  }

  async end() {
    await this.#inTurn(async () => {
      await post(`${this.environment.url}/close`, {}, this.id);
      own.forget(this.view);
      location.hash = "#/";
    });
  }

  /** Queue requests, so that no key press is lost while one is running; returns whether it succeeded. */
  #inTurn(work) {
    if (this.requestCount >= MAX_REQUESTS) return Promise.resolve(false);
    this.requestCount += 1;
    this.working = this.working.then(async () => {
      try {
        await work();
        return true;
      } catch (error) {
        notify(error.message);
        return false;
      } finally {
        this.requestCount -= 1;
      }
    });
    return this.working;
  }

  key(event) {
    if (!isOurs(event)) return;
    if (event.repeat && this.requestCount > 0) return event.preventDefault(); // a held key repeats as fast as its steps
    const does = {
      ",": () => this.player.seek(this.player.cursor - 1),
      ".": () => this.player.seek(this.player.cursor + 1),
      p: () => this.player.play(!this.player.playing),
      e: () => this.player.seek(this.source.last),
      f: () => this.forkHere(),
      r: () => this.id && !event.repeat && this.resetIfSure(),
    }[event.key];
    if (does) does();
    if (does || this.controls?.key(event)) event.preventDefault();
  }

  close() {
    this.closed = true;
    document.removeEventListener("keydown", this.onKey);
    document.removeEventListener("refused", this.onRefused);
    document.removeEventListener("reconnected", this.onReconnected);
    this.images.close();
    this.player.close();
  }
}

/** A short text for an action: its name, numbers or text. */
function spelled(action, words) {
  const named = words.find((word) => word.const === action.value)?.title;
  if (named) return named;
  return Object.values(action)
    .filter((value) => value !== false)
    .map((value) => (Array.isArray(value) ? value.map((each) => (typeof each === "number" ? number(each) : "…")).join(", ") : String(value)))
    .join(" ");
}

function moment(reply, action, before) {
  const { metadata: _, text, ...fields } = reply.observation;
  const images = Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, pixels(value)]));
  const lines = Object.entries(fields)
    .filter(([name]) => !images[name])
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
  const first = action === null;
  return {
    step: first ? 0 : before.step + 1,
    action,
    reward: reply.reward ?? 0,
    total_reward: first ? 0 : before.total_reward + (reply.reward ?? 0),
    lifecycle: reply.terminated ? "terminated" : reply.truncated ? "truncated" : "ready",
    text: text ?? lines.join("\n"),
    numbers: Object.fromEntries(Object.entries(fields).filter(([, value]) => typeof value === "number")),
    spot: null,
    legal: null,
    images,
  };
}
