// #/events: what happened, newest first; it stands still while somebody points at it or works in it.

import { get } from "../api.js";
import { h, vnLink } from "../dom.js";
import { localTime } from "../format.js";
import { View, live } from "../live_state.js";

const MAX_SHOWN = 500;

export class EventsView extends View {
  title = "Events";

  constructor(filters) {
    super();
    this.filters = filters;
    this.waiting = [];
    this.last = 0;
    const field = (name, label, type) => h("label", {}, `${label} `, h("input", { name, type: "search", size: type === "short" ? 6 : 20, value: filters.get(name) ?? "", oninput: () => this.filter() }));
    this.form = h("form", { class: "tools", "aria-label": "Filter of events", onsubmit: (event) => event.preventDefault() },
      field("kind", "Kind"), field("vlan", "VLAN", "short"), field("switch", "Switch", "short"));
    this.note = h("p", { class: "hint", role: "status" });
    this.items = h("ol", { class: "events", tabindex: 0, "aria-label": "Events, newest first" });
    for (const name of ["pointerenter", "focusin"]) this.items.addEventListener(name, () => { this.held = true; });
    for (const name of ["pointerleave", "focusout"]) this.items.addEventListener(name, () => { this.held = false; this.flush(); });
    this.element = h("section", {}, h("h2", {}, "Events"), this.form, this.note, this.items);
  }

  async load(signal) {
    const answer = await get("/v1/events", signal);
    this.all = answer.events.slice(-MAX_SHOWN);
    this.last = answer.last;
    this.write();
  }

  matches(event) {
    const [kind, vlan, name] = ["kind", "vlan", "switch"].map((key) => this.filters.get(key) ?? "");
    return event.kind.includes(kind) && (!vlan || String(event.vlan_vid) === vlan) && (!name || event.switch === name);
  }

  filter() {
    this.filters = new URLSearchParams([...new FormData(this.form)].filter(([, text]) => text.trim()).map(([key, text]) => [key, text.trim()]));
    const query = String(this.filters);
    history.replaceState(null, "", `#/events${query ? `?${query}` : ""}`);
    this.write();
  }

  write() {
    this.items.replaceChildren(...(this.all ?? []).filter((event) => this.matches(event)).reverse().map((event) => this.row(event)));
  }

  row(event) {
    const place = event.vlan_vid !== null && event.switch !== null ? vnLink(event.vlan_vid, event, event.text) : event.text;
    return h("li", { class: event.severity }, h("time", { datetime: event.at, title: event.at }, localTime(event.at)), " ", h("span", { class: "kind" }, event.kind), " ", place);
  }

  onEvent(event) {
    if (event.number <= this.last) return;
    this.last = event.number;
    this.all = [...(this.all ?? []), event].slice(-MAX_SHOWN);
    this.waiting.push(event);
    if (!this.held && !live.paused) this.flush();
    else this.note.textContent = `Paused; ${this.waiting.length} more.`;
  }

  flush() {
    this.note.textContent = "";
    for (const event of this.waiting.splice(0)) if (this.matches(event)) this.items.prepend(this.row(event));
    while (this.items.children.length > MAX_SHOWN) this.items.lastChild.remove();
  }
}
