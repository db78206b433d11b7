// Server-Sent Events read with fetch: EventSource cannot send a token.

import { Refusal, send } from "./api.js";

const FIRST_BACK_OFF_MS = 1000, MOST_BACK_OFF_MS = 30000;
// A stream that says nothing for so long has gone, whatever the socket says.
const SILENT_MS = 15000;

/** Takes whole frames from the text received so far: {events, rest}. Lines that are no field are left out. */
export function takeFrames(text) {
  const events = [];
  const parts = text.split(/\n\n/);
  const rest = parts.pop();
  for (const part of parts) {
    const event = { event: "message", data: "", id: null };
    const data = [];
    for (const line of part.split("\n")) {
      const at = line.indexOf(":");
      if (at <= 0) continue;
      const name = line.slice(0, at), value = line.slice(at + 1).replace(/^ /, "");
      if (name === "data") data.push(value);
      else if (name === "event" || name === "id") event[name] = value;
    }
    event.data = data.join("\n");
    if (event.data) events.push(event);
  }
  return { events, rest };
}

/** One connection at a time, opened again whenever it ends; `onEvent(name, data)`, `onState(connected)`. */
export class Stream {
  constructor(onEvent, onState) {
    this.onEvent = onEvent;
    this.onState = onState;
    this.lastId = null;
    this.query = null;
    this.controller = null;
    this.backOffMs = FIRST_BACK_OFF_MS;
  }

  /** Follows what a query picks, from now on. */
  open(query) {
    if (query === this.query && this.controller) return;
    this.close();
    this.query = query;
    this.controller = new AbortController();
    this.run(query, this.controller.signal);
  }

  close() {
    this.controller?.abort();
    this.controller = null;
  }

  async run(query, signal) {
    while (!signal.aborted) {
      let waitMs = 0;
      try {
        await this.read(query, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refusal && error.status === 404) return this.onEvent("gone", error.message);
        if (error instanceof Refusal) waitMs = 1000 * error.retryAfterS;
      }
      if (signal.aborted) return;
      this.onState(false);
      waitMs = Math.max(waitMs, this.backOffMs * (0.5 + Math.random() / 2));
      this.backOffMs = Math.min(2 * this.backOffMs, MOST_BACK_OFF_MS);
      await new Promise((done) => setTimeout(done, waitMs));
    }
  }

  async read(query, signal) {
    const path = `/v1/stream?interval_ms=1000${query}`;
    const ended = new AbortController();
    const either = AbortSignal.any([signal, ended.signal]);
    let watch = setTimeout(() => ended.abort(), SILENT_MS);
    try {
      const answer = await send("GET", path, { signal: either, more: this.lastId === null ? {} : { "Last-Event-ID": this.lastId } });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(watch);
        watch = setTimeout(() => ended.abort(), SILENT_MS);
        const taken = takeFrames(rest + value);
        rest = taken.rest;
        for (const one of taken.events) {
          if (one.id !== null) this.lastId = one.id;
          this.onEvent(one.event, JSON.parse(one.data));
        }
        if (taken.events.length) {
          this.backOffMs = FIRST_BACK_OFF_MS;
          this.onState(true);
        }
      }
    } finally {
      clearTimeout(watch);
    }
  }
}
