// #/vn/VID/SWITCH/PORT: the last five minutes, who sends, and why each has the rate it has.

import { get, send, vnPath } from "../api.js";
import { Chart } from "../chart.js";
import { h, plainTable, vnLink } from "../dom.js";
import { percent, place, rate, rateInWords, seconds } from "../format.js";
import { LimitsForm } from "../limits.js";
import { View, live, rateOf, rowOfVn, violatedCount } from "../live_state.js";

const WHY_EVERY_MS = 2000, MARK_WORDS = { "congestion-began": "congested", "congestion-ended": "calm", "guarantee-violated": "violated", "guarantee-restored": "restored", "limit-changed": "limit", "flood-began": "flood", "flood-ended": "flood ended" };
const SERIES = [
  { key: "offered", label: "offered", variable: "--offered", dash: [6, 3] },
  { key: "limit", label: "receive limit", variable: "--limit", width: 1, step: true },
  { key: "received", label: "received", variable: "--received" },
  { key: "granted", label: "granted", variable: "--granted", width: 4, dash: [3, 5] },
];

export class VnView extends View {
  constructor(vid, switchName, portNo) {
    super();
    Object.assign(this, { vid, switchName, portNo });
    this.title = `VLAN ${vid} at ${switchName}`;
    this.query = `&vlan=${vid}&switch=${encodeURIComponent(switchName)}&pairs_of=${encodeURIComponent(`${vid}/${switchName}/${portNo}`)}`;
    this.path = vnPath(vid, switchName, portNo);
    this.chart = new Chart(`Rates of ${this.title} over the last five minutes`, SERIES);
    this.limits = new LimitsForm(vid, switchName, portNo, () => this.loadVn());
    this.parts = [this.limits, this.chart];
    this.where = h("span");
    this.words = h("p", { class: "words" });
    this.about = h("dl", { class: "about" });
    this.pairs = h("div", {}, h("p", {}, "No VN sends to this VN."));
    this.why = h("div", {});
    this.element = h("section", {},
      h("h2", {}, h("a", { href: `#/vlan/${vid}` }, `VLAN ${vid}`), this.where),
      this.words, this.chart.element, this.limits.element,
      h("h3", {}, "Its senders"), this.pairs, h("h3", {}, "Why"), this.why, h("h3", {}, "About it"), this.about);
  }

  async load(signal) {
    await this.loadVn(signal);
    const series = await get(`/v1/series?vn=${encodeURIComponent(`${this.vid}/${this.switchName}/${this.portNo}`)}`, signal);
    const granted = series.mean.granted.map((bps) => bps || null);
    this.chart.set(series.at, [series.mean.offered, series.receive_limit_bps, series.mean.received, granted]);
    const events = await get(`/v1/events?vlan=${this.vid}&switch=${encodeURIComponent(this.switchName)}`, signal);
    this.chart.marks = [];
    for (const event of events.events) this.onEvent(event);
    this.loadWhy();
  }

  async loadVn(signal) {
    const answer = await send("GET", this.path, { signal });
    this.vn = await answer.json();
    this.revision = live.state?.revision;
    this.limits.set(this.vn, answer.headers.get("ETag"));
    this.where.textContent = ` at ${place(this.vn)}`;
    if (!this.gone) document.title = `VLAN ${this.vid}${this.where.textContent} – DETS`;
    this.writeAbout();
    this.again(10000, "loadVn");
  }

  async loadWhy() {
    clearTimeout(this.whyTimer);
    if (!live.paused && !document.hidden) {
      const found = await get(`${this.path}/explanations`).catch(() => null);
      if (found) this.writeWhy(found.explanations);
    }
    if (!this.gone) this.whyTimer = setTimeout(() => this.loadWhy(), WHY_EVERY_MS);
  }

  writeWhy(explanations) {
    if (this.why.contains(document.activeElement)) return;
    const mine = (end) => end.switch === this.switchName && end.port_no === this.portNo;
    this.explained = explanations;
    const rows = explanations.map((one) => {
      const other = mine(one.receiver) ? one.sender : one.receiver;
      const verb = mine(one.receiver) ? "from " : "to ";
      const share = one.sharers ? ` (share ${one.rank} of ${one.sharers})` : "";
      const next = `; next: ${one.next_constraint}, ${rateInWords(one.next_limit_bps)}`;
      const drops = one.send_limit_dropped_bps > 1000 ? `; its send limit drops ${rateInWords(one.send_limit_dropped_bps)}` : "";
      return h("li", {}, verb, vnLink(this.vid, other), `: ${place(one.sender)} is limited to ${rateInWords(one.limit_bps)} by ${one.constraint}${share}${next}${drops}.`);
    });
    this.why.replaceChildren(rows.length ? h("ul", { class: "why" }, rows) : h("p", {}, "This VN has no active pairs."));
  }

  writeAbout() {
    const vn = this.vn, kept = vn.guarantee, by = kept.violated_by_s;
    const reasons = Object.entries(by).filter(([, s]) => s > 0).map(([name, s]) => `${name} ${seconds(s)}`).join(", ");
    const items = [
      ["limits", `send ${rate(vn.send_limit_bps)}, receive ${rate(vn.receive_limit_bps)}`],
      ["ceilings", `send ${rate(vn.send_ceiling_bps)}, receive ${rate(vn.receive_ceiling_bps)}`],
      ["weight", String(vn.weight)],
      ["guarantee", `met for ${seconds(kept.met_s)}, violated for ${seconds(kept.violated_s)}${reasons ? ` (${reasons})` : ""}, nothing offered for ${seconds(kept.idle_s)}`],
      ["violated in the last hour", seconds(kept.violated_last_hour_s)],
      ["flood limit", `${rate(vn.flood_limit_bps)}; floods now ${rate(vn.flooded_bps)}, dropped ${rate(vn.flood_dropped_bps)}, others' floods take ${rate(vn.flood_received_bps)}`],
      ["receiving queue", `dropped ${rate(vn.queue_dropped_bps)}; notifications to its senders ${vn.notifications ?? 0}`],
      ["enforceable", vn.enforceable + (vn.enforceable_reasons.length ? `: ${vn.enforceable_reasons.join("; ")}` : "")],
      ["hosts", vn.hosts.join(", ") || "none known"],
      ["revision", String(vn.revision)],
    ];
    this.about.replaceChildren(...items.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]));
  }

  paint() {
    const row = rowOfVn(this.vid, this.switchName, this.portNo);
    if (row < 0 || !live.state || !this.vn) return;
    const [offered, received, granted, dropped] = ["offered", "received", "granted", "dropped"].map((key) => rateOf(key, row));
    this.chart.push(Date.parse(live.state.at) / 1000, [offered, this.vn.receive_limit_bps, received, granted]);
    this.chart.say(`Received ${rateInWords(received)} of ${rateInWords(this.vn.receive_limit_bps)} (${percent(received, this.vn.receive_limit_bps)}), offered ${rateInWords(offered)}, dropped ${rateInWords(dropped)}.`);
    this.limits.paint();
    this.writePairs(live.state.pairs ?? []);
    this.writeWords(row);
    this.follow("loadVn");
  }

  writeWords(row) {
    const here = place(this.vn), words = [];
    const held = (live.state.pairs ?? []).filter((pair) => pair.control === "limited" && (pair.dropped_bps ?? 0) > 0);
    if (violatedCount(row)) words.push("! Its guarantee is violated.");
    if (live.state.congested.includes(row)) words.push("It is congested.");
    if (held.length) words.push(`It throttles ${held.map((pair) => place(pair.sender)).join(", ")}.`);
    for (const one of this.explained ?? []) {
      const sender = place(one.sender);
      if (sender === here && one.sharers) words.push(`It is throttled by ${place(one.receiver)}.`);
    }
    const text = words.join(" ") || "No traffic of this VN is throttled.";
    if (this.words.textContent !== text) this.words.textContent = text;
  }

  writePairs(pairs) {
    if (this.pairs.contains(document.activeElement)) return;
    const rows = pairs.map((pair) => [
      vnLink(this.vid, pair.sender), rate(pair.offered_bps), rate(pair.granted_bps), rate(pair.limit_bps),
      rate(pair.meter_id === null ? null : pair.meter_rate_bps), rate(pair.dropped_bps), percent(pair.marked_share, 1), percent(pair.lost_share, 1), pair.bottleneck ?? "–", pair.shaping, pair.control + (pair.unresponsive ? ", unresponsive" : "") + (pair.enforced ? "" : ", not enforced"),
    ]);
    this.pairs.replaceChildren(rows.length ? plainTable("Senders", ["sender", "offered", "granted", "limit", "meter", "dropped", "marked", "lost", "bottleneck", "shaped by", "control"], rows, [1, 2, 3, 4, 5, 6, 7]) : h("p", {}, "No VN sends to this VN."));
  }

  onEvent(event) {
    const mine = event.vlan_vid === this.vid && event.switch === this.switchName && event.port_no === this.portNo;
    if (!mine || !MARK_WORDS[event.kind]) return;
    this.chart.marks.push({ at: Date.parse(event.at) / 1000, text: MARK_WORDS[event.kind] });
    if (this.chart.marks.length > 50) this.chart.marks.shift();
  }

  onKeys() {
    if (this.vn) this.loadVn().catch(() => {});
  }

  onKey(key) {
    if (key !== "e" || this.limits.element.hidden) return false;
    this.limits.focus();
    return true;
  }

  destroy() {
    clearTimeout(this.whyTimer);
    super.destroy();
  }
}
