// #/changes: who changed what, newest first; overrides that are not in force come before all.

import { get, list } from "../api.js";
import { button, h, plainTable, vnLink } from "../dom.js";
import { exactRate, localTime, place, rate } from "../format.js";
import { live } from "../live_state.js";

const SHOWN = 50, AROUND_S = 30, RECENT_S = 300, MOST_ITEMS = 200;

export class ChangesView {
  title = "Changes";
  query = "";

  constructor() {
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
    return one.switch === null ? h("a", { href: `#/vlan/${one.vlan_vid}` }, `VLAN ${one.vlan_vid}`) : vnLink(one.vlan_vid, one.switch, one.port_no, `VLAN ${one.vlan_vid}, ${place(one)}`);
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
    const [first] = detail.items;
    const age = (Date.now() - Date.parse(change.at)) / 1000;
    if (first && first.switch !== null && age < RECENT_S) box.append(await this.effect(first, Date.parse(change.at) / 1000));
  }

  /** What the VN of a change received before and after it; its VLAN if nobody watched it. */
  async effect(item, at) {
    const vn = `${item.vlan_vid}/${item.switch}/${item.port_no}`;
    let what = place(item), series = await get(`/v1/series?vn=${encodeURIComponent(vn)}`).catch(() => null);
    if (!series || !(series.at[0] < at - AROUND_S)) {
      what = `VLAN ${item.vlan_vid}`;
      series = await get(`/v1/series?vlan=${item.vlan_vid}`).catch(() => null);
    }
    const mean = (from, to) => {
      const found = (series?.at ?? []).map((time, i) => [time, series.mean.received[i]]).filter(([time]) => time > from && time <= to);
      return found.length ? found.reduce((sum, [, bps]) => sum + bps, 0) / found.length : null;
    };
    return h("p", {}, `${what} received ${rate(mean(at - AROUND_S, at))} in the ${AROUND_S} s before, ${rate(mean(at + 1, at + 1 + AROUND_S))} after.`);
  }

  paint() {
    if (this.revision !== undefined && live.state && live.state.revision !== this.revision && !this.items.querySelector("details[open]")) {
      this.revision = live.state.revision;
      this.load().catch(() => {});
    }
  }

  destroy() {}
}
