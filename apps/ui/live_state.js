// The state of the moment: what the stream said last, and who wants to know. One paint a state.

import { Stream } from "./stream.js";

const STALE_MS = 3000, HIDDEN_MS = 30000, MOST_EVENTS = 1000;

export const live = {
  keys: null,
  state: null,
  latest: null, // the last state of any stream: what the status bar shows while another view loads
  events: [],
  at: -Infinity,
  connected: false,
  paused: false,
  session: null,
  isStale: () => performance.now() - live.at > STALE_MS,
};

const listeners = new Set();
let due = false;

/** `paint(what)` is called with "state", "keys", "event" or "connection"; the answer ends that. */
export function subscribe(paint) {
  listeners.add(paint);
  return () => listeners.delete(paint);
}

function tell(what) {
  for (const paint of [...listeners]) paint(what);
}

function paintSoon() {
  if (due || live.paused) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    performance.mark("dets-paint-begins");
    tell("state");
    performance.measure("dets-paint", "dets-paint-begins");
    performance.clearMarks("dets-paint-begins");
  });
}

function take(name, data) {
  if (name === "keys") {
    live.keys = data;
    live.state = null;
    tell("keys");
  } else if (name === "state") {
    live.state = data;
    live.latest = data;
    live.at = performance.now();
    paintSoon();
  } else if (name === "event") {
    live.events.push(data);
    if (live.events.length > MOST_EVENTS) live.events.splice(0, live.events.length - MOST_EVENTS);
    tell("event");
  } else if (name === "gone") {
    tell("gone");
  }
}

const stream = new Stream(take, (connected) => {
  if (connected !== live.connected) {
    live.connected = connected;
    tell("connection");
  }
});
let query = "";

export function follow(next) {
  query = next;
  if (stream.query !== next) {
    live.keys = null;
    live.state = null;
  }
  stream.open(next);
}

export function setPaused(paused) {
  live.paused = paused;
  tell("connection");
  if (!paused) paintSoon();
}

let hiddenTimer = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiddenTimer);
  if (document.hidden) {
    hiddenTimer = setTimeout(() => {
      stream.close();
      live.connected = false;
    }, HIDDEN_MS);
  } else stream.open(query);
});

/** Mean rates of a row of the state, in bit/s, by the name of their column; null is unknown. */
export function rateOf(column, row) {
  const at = live.keys.columns.indexOf(column), kbps = live.state?.rows[at]?.[row];
  return kbps === null || kbps === undefined ? null : 1000 * kbps;
}

export function rowOfVn(vid, switchName, portNo) {
  return live.keys?.vns?.findIndex((vn) => vn[0] === vid && vn[1] === switchName && vn[2] === portNo) ?? -1;
}
