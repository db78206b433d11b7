// #/vlan/VID: one row for each receiving VN.

import { get, list } from "../api.js";
import { h, vnHash } from "../dom.js";
import { place, rateInWords, seconds } from "../format.js";
import { View, live, rateOf, violatedCount } from "../live_state.js";
import { Table, fillBars, rateColumn } from "../table.js";

export class VlanView extends View {
  constructor(vid) {
    super();
    this.vid = vid;
    this.title = `VLAN ${vid}`;
    this.query = `&vlan=${vid}`;
    this.vns = [];
    const vn = (i) => this.vns[i];
    const rates = (key, title, hint) => rateColumn(key, title, (i) => rateOf(key, i), hint);
    this.table = new Table(`Receiving VNs of VLAN ${vid}`, [
      { key: "place", title: "Port", value: (i) => place(vn(i)), text: (i) => place(vn(i)), href: (i) => vnHash(vid, vn(i).switch, vn(i).port_no) },
      { key: "bars", title: "Received of limit", hint: "Received solid, dropped hatched; ticks: limit and grant", fill: (cell, i) => this.bars(cell, i) },
      { key: "trouble", title: "State", num: true, left: true, value: (i) => this.trouble(i), text: (i) => this.state(i) },
      rateColumn("limit", "Limit", (i) => vn(i).receive_limit_bps, "Receive limit, bit/s"),
      rateColumn("ceiling", "Ceiling", (i) => vn(i).receive_ceiling_bps, "Rate up to which it may borrow"),
      rates("offered", "Offered", "Rate that its senders offer, before any meter"),
      rates("received", "Received", "Rate that its senders' meters pass"),
      rates("granted", "Granted", "Sum of its senders' grants while it is congested"),
      rates("dropped", "Dropped", "Rate that its senders' meters drop"),
      rates("send_limit_dropped", "Send limit drops", "Rate that its send limit drops"),
      rates("flooded", "Floods", "Rate of its broadcast, multicast and unknown unicast"),
      { key: "violated", title: "Violated, 1 h", hint: "Time of violation in the last hour", num: true, value: (i) => vn(i).guarantee.violated_last_hour_s, text: (i) => seconds(vn(i).guarantee.violated_last_hour_s) },
      { key: "enforceable", title: "Enforceable", value: (i) => vn(i).enforceable, text: (i) => vn(i).enforceable },
    ], { sort: "trouble", matches: (i, words) => `${place(vn(i))} ${this.state(i)} ${vn(i).hosts.join(" ")}`.toLowerCase().includes(words) });
    this.parts = [this.table];
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
    this.again();
  }

  isCongested(i) {
    return live.state?.congested.includes(i) ?? false;
  }

  trouble(i) {
    return (1e12 * violatedCount(i)) + (this.isCongested(i) ? 1e11 : 0) + (rateOf("dropped", i) ?? 0);
  }

  state(i) {
    const since = this.vns[i].congested_since;
    if (violatedCount(i)) return "! guarantee violated";
    if (this.isCongested(i)) return since ? `congested for ${seconds((Date.parse(live.state.at) - Date.parse(since)) / 1000)}` : "congested";
    return "fine";
  }

  bars(cell, i) {
    const vn = this.vns[i], received = rateOf("received", i), dropped = rateOf("dropped", i);
    fillBars(cell, this.scale, { received, dropped, limit: vn.receive_limit_bps, granted: rateOf("granted", i) }, `received ${rateInWords(received)} of ${rateInWords(vn.receive_limit_bps)}, dropped ${rateInWords(dropped)}`);
  }

  paint() {
    if (!live.state?.rows || live.keys?.vns?.length !== this.vns.length) return;
    this.scale = this.vns.reduce((most, vn, i) => Math.max(most, vn.receive_limit_bps, rateOf("offered", i) ?? 0), 1);
    this.follow();
    this.table.setCount(this.vns.length);
  }

  onKeys() {
    this.load().catch(() => {});
  }
}
