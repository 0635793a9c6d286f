// Follows an episode that this page does not step: another client's session, or a recording being replayed.

import { reconnected } from "./api.js";
import { notify, pause } from "./dom.js";

export const EVERY = 400; // milliseconds between polls
const LONGEST = 15_000; // milliseconds between polls while the server returns errors
const GRACE = 30_000; // milliseconds that a client has to resume its session after the server could not be reached

export async function follow(stage) {
  const { mode, source } = stage;
  const trouble = { message: "", until: 0 };
  for (let wait = EVERY; wait && (mode === "watch" || source.last < source.reply.step_count); ) {
    await pause(wait);
    if (stage.closed) return;
    if (!document.hidden) wait = await update(stage, wait, trouble);
  }
}

/** Show new rows; returns the milliseconds until the next poll, or null to stop. */
async function update(stage, wait, trouble) {
  try {
    if (await stage.source.refresh()) stage.player.update();
    trouble.message = "";
    return EVERY;
  } catch (error) {
    return stage.closed ? null : afterTrouble(stage, wait, trouble, error);
  }
}

async function afterTrouble(stage, wait, trouble, error) {
  if (error.status === 404) {
    if (performance.now() < trouble.until) return EVERY;
    stage.gone = true;
    stage.player.update();
    return null;
  }
  if (error.message !== trouble.message) notify(error.message);
  trouble.message = error.message;
  if (error.code === "OFFLINE") {
    await reconnected();
    trouble.until = performance.now() + GRACE;
    return EVERY;
  }
  const final = error.status >= 400 && error.status < 500; // the same request would fail again
  return final ? null : Math.min(2 * wait, LONGEST);
}
