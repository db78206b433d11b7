// #/changes: who changed what, newest first; overrides that are not in force come before all.

import { get, list } from "../api.js";
import { button, h, plainTable, vnLink } from "../dom.js";
import { exactRate, localTime, place } from "../format.js";
import { View, live } from "../live_state.js";

const SHOWN = 50, MOST_ITEMS = 200;

export class ChangesView extends View {
  title = "Changes";

  constructor() {
    super();
    this.inactive = h("div", {});
    this.items = h("ol", { class: "changes" });
    this.more = button("Older ones", () => this.next(), { hidden: true });
    this.element = h("section", {}, h("h2", {}, "Changes"), this.inactive, this.items, this.more);
  }

  async load(signal) {
    const overrides = await list("/v1/overrides?active=false", "overrides", { signal, most: 250 });
    this.inactive.replaceChildren(overrides.length ? h("div", { class: "warning" }, h("h3", {}, "Set, and not in force"), h("ul", {}, overrides.map((one) => h("li", {}, this.name(one), `: ${one.reason}`)))) : "");
    this.items.replaceChildren();
    this.cursor = "";
    await this.next(signal);
  }

  async next(signal) {
    const page = await get(`/v1/history?limit=${SHOWN}${this.cursor ? `&cursor=${encodeURIComponent(this.cursor)}` : ""}`, signal);
    this.revision = live.state?.revision;
    this.cursor = page.next;
    this.more.hidden = !page.next;
    this.items.append(...page.changes.map((change) => this.row(change)));
  }

  name(one) {
    return one.switch === null ? h("a", { href: `#/vlan/${one.vlan_vid}` }, `VLAN ${one.vlan_vid}`) : vnLink(one.vlan_vid, one, `VLAN ${one.vlan_vid}, ${place(one)}`);
  }

  row(change) {
    const box = h("details", {}, h("summary", {},
      h("span", { class: "num" }, String(change.revision)), " ", h("time", { datetime: change.at, title: change.at }, localTime(change.at)),
      ` ${change.who}${change.address ? ` (${change.address})` : ""}: ${change.action}, ${change.changed} changed`));
    box.addEventListener("toggle", () => { if (box.open && box.children.length === 1) this.open(box, change); });
    return h("li", {}, box);
  }

  async open(box, change) {
    const detail = await get(`/v1/history/${change.revision}`).catch((error) => ({ items: [], problem: error.message }));
    const value = (field, shown) => (shown === null ? "–" : field.endsWith("_bps") ? exactRate(shown) : typeof shown === "object" ? JSON.stringify(shown) : String(shown));
    const rows = detail.items.slice(0, MOST_ITEMS).map((item) => [this.name(item), item.field.replace(/_bps$/, "").replaceAll("_", " "), value(item.field, item.before), value(item.field, item.after)]);
    box.append(rows.length ? plainTable(`Revision ${change.revision}`, ["of", "what", "before", "after"], rows, [2, 3]) : h("p", {}, detail.problem ?? "Nothing is listed for it."));
  }

  paint() {
    if (!this.items.querySelector("details[open]")) this.follow();
  }
}
