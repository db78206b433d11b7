// The state of the moment: what the stream said last, and who wants to know. One paint a state.

import { Stream } from "./stream.js";

const STALE_MS = 3000, HIDDEN_MS = 30000, MOST_EVENTS = 1000;
// A violated guarantee is shown for HOLD_MS longer; of the loop it is shown from LATE on, down to ON_TIME.
const HOLD_MS = 5000, WINDOW_MS = 60000, LEAST_MS = 10000, LATE = 0.05, ON_TIME = 0.02;

export const live = {
  keys: null,
  state: null,
  latest: null, // the last state of any stream: what the status bar shows while another view loads
  events: [],
  at: -Infinity,
  connected: false,
  paused: false,
  session: null,
  late: 0, // the part of the intervals of the last minute that the loop missed
  isLate: false,
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
    tell("state");
  });
}

const violated = new Map(); // by row: how many VNs violate, and when that was said
let rounds = []; // of the last minute: when, rounds made, rounds missed

/** How many guarantees of a row are violated, or were a moment ago; without a row, of the fabric. */
export const violatedCount = (row = "all") => violated.get(row)?.[0] ?? 0;

export function note(state, now = performance.now()) {
  const rows = live.keys?.vlans ? [...state.violated.entries()] : state.violated.map((row) => [row, 1]);
  for (const [row, count] of [...rows, ["all", state.violated_vns]]) if (count) violated.set(row, [count, now]);
  for (const [row, [, at]] of violated) if (now - at > HOLD_MS) violated.delete(row);
  if (state.rounds < rounds.at(-1)?.[1]) rounds = [];
  rounds.push([now, state.rounds, state.skipped]);
  rounds = rounds.filter(([at]) => at >= now - WINDOW_MS);
  const [began, made, missed] = rounds[0], all = state.rounds - made + state.skipped - missed;
  live.late = all ? (state.skipped - missed) / all : 0;
  live.isLate = now - began >= LEAST_MS && live.late > (live.isLate ? ON_TIME : LATE);
}

function take(name, data) {
  if (name === "keys") {
    live.keys = data;
    live.state = null;
    for (const row of violated.keys()) if (row !== "all") violated.delete(row);
    tell("keys");
  } else if (name === "state") {
    live.state = data;
    live.latest = data;
    live.at = performance.now();
    note(data);
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
  return kbps == null ? null : 1000 * kbps;
}

export function rowOfVn(vid, switchName, portNo) {
  return live.keys?.vns?.findIndex((vn) => vn[0] === vid && vn[1] === switchName && vn[2] === portNo) ?? -1;
}

/** What all views have. `parts` are ended with it. */
export class View {
  query = "";
  parts = [];

  paint() {}

  /** Loads it again after so long, unless it has ended by then. */
  again(ms = 10000, load = "load") {
    clearTimeout(this.timer);
    if (!this.gone) this.timer = setTimeout(() => this[load]().catch(() => {}), ms);
  }

  /** Loads it again when a limit was changed since. */
  follow(load = "load") {
    const now = live.state?.revision ?? this.revision, changed = this.revision !== undefined && now !== this.revision;
    if (changed) this[load]().catch(() => {});
    if (changed) this.revision = now;
  }

  destroy() {
    this.gone = true;
    clearTimeout(this.timer);
    for (const part of this.parts) part.destroy();
  }
}
