// #/vlan/VID: one row for each receiving VN.

import { get, list } from "../api.js";
import { h, vnHash } from "../dom.js";
import { localTime, place, rate, rateInWords, seconds } from "../format.js";
import { live, rateOf } from "../live_state.js";
import { Table, fillBars } from "../table.js";

const AGAIN_MS = 10000;

export class VlanView {
  constructor(vid) {
    this.vid = vid;
    this.title = `VLAN ${vid}`;
    this.query = `&vlan=${vid}`;
    this.vns = [];
    const vn = (i) => this.vns[i];
    const rates = (key, title, hint) => ({ key, title, hint, num: true, value: (i) => rateOf(key, i) ?? -1, text: (i) => rate(rateOf(key, i)) });
    this.table = new Table(`Receiving VNs of VLAN ${vid}`, [
      { key: "place", title: "Port", value: (i) => place(vn(i)), text: (i) => place(vn(i)), href: (i) => vnHash(vid, vn(i).switch, vn(i).port_no) },
      { key: "bars", title: "Received of limit", hint: "Received solid, dropped hatched; ticks: limit and grant", fill: (cell, i) => this.bars(cell, i) },
      { key: "trouble", title: "State", num: true, value: (i) => this.trouble(i), text: (i) => this.state(i) },
      { key: "limit", title: "Limit", hint: "Receive limit, bit/s", num: true, value: (i) => vn(i).receive_limit_bps, text: (i) => rate(vn(i).receive_limit_bps) },
      { key: "ceiling", title: "Ceiling", hint: "Up to where it may borrow with max-min", num: true, value: (i) => vn(i).receive_ceiling_bps ?? -1, text: (i) => rate(vn(i).receive_ceiling_bps) },
      rates("offered", "Offered", "What is sent to it, before any meter"),
      rates("received", "Received", "What passed its senders' meters"),
      rates("granted", "Granted", "Sum of its senders' grants while it is congested"),
      rates("dropped", "Dropped", "What its senders' meters dropped"),
      rates("send_limit_dropped", "Own limit", "What its own send limit drops of what it sends"),
      rates("flooded", "Floods", "What it sends to everybody, groups and unknown addresses"),
      { key: "missed", title: "Missed, 1 h", hint: "Seconds of the last hour in which its guarantee was missed", num: true, value: (i) => vn(i).guarantee.violated_last_hour_s, text: (i) => seconds(vn(i).guarantee.violated_last_hour_s) },
      { key: "enforceable", title: "Enforceable", value: (i) => vn(i).enforceable, text: (i) => vn(i).enforceable },
    ], { sort: "trouble", matches: (i, words) => `${place(vn(i))} ${this.state(i)} ${vn(i).hosts.join(" ")}`.toLowerCase().includes(words) });
    this.about = h("p", { class: "about" }, "Loading.");
    this.heading = h("h2", {}, this.title);
    this.element = h("section", {}, this.heading, this.about, this.table.element);
  }

  async load(signal) {
    const [vlan, vns] = await Promise.all([get(`/v1/vlans/${this.vid}`, signal), list(`/v1/vns?vlan=${this.vid}`, "vns", { signal })]);
    this.vlan = vlan;
    this.vns = vns;
    this.revision = live.state?.revision;
    this.heading.textContent = `VLAN ${vlan.vlan_vid}, ${vlan.name}`;
    const parameters = Object.entries(vlan.parameters).map(([name, value]) => `${name} ${value}`).join(", ");
    this.about.textContent = `Algorithm ${vlan.algorithm}${parameters ? ` (${parameters})` : ""}, weight ${vlan.weight}` +
      `${vlan.shadow ? `, shadow ${vlan.shadow}` : ""}; ${vns.length} VNs. Rates in bit/s on the wire, means over the last second.`;
    this.table.setCount(vns.length, true);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load().catch(() => {}), AGAIN_MS);
  }

  isCongested(i) {
    return live.state?.congested.includes(i) ?? false;
  }

  isMissing(i) {
    return live.state?.missed.includes(i) ?? false;
  }

  trouble(i) {
    return (this.isMissing(i) ? 1e12 : 0) + (this.isCongested(i) ? 1e11 : 0) + (rateOf("dropped", i) ?? 0);
  }

  state(i) {
    const since = this.vns[i].congested_since;
    if (this.isMissing(i)) return "! guarantee missing";
    if (this.isCongested(i)) return since ? `congested since ${localTime(since)}` : "congested";
    return "fine";
  }

  bars(cell, i) {
    const vn = this.vns[i], received = rateOf("received", i), dropped = rateOf("dropped", i);
    const values = { received, dropped, limit: vn.receive_limit_bps, granted: rateOf("granted", i) };
    fillBars(cell, this.scale, values, `received ${rateInWords(received)} of ${rateInWords(vn.receive_limit_bps)}, dropped ${rateInWords(dropped)}`);
  }

  paint() {
    if (!live.state?.rows || live.keys?.vns?.length !== this.vns.length) return;
    this.scale = this.vns.reduce((most, vn, i) => Math.max(most, vn.receive_limit_bps, rateOf("offered", i) ?? 0), 1);
    if (this.revision !== undefined && live.state.revision !== this.revision) {
      this.revision = live.state.revision;
      this.load().catch(() => {});
    }
    this.table.setCount(this.vns.length);
  }

  onKeys() {
    this.load().catch(() => {});
  }

  destroy() {
    clearTimeout(this.timer);
    this.table.destroy();
  }
}
