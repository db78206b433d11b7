// #/: the map, and next to it the VLANs, the worst first.

import { list } from "../api.js";
import { h } from "../dom.js";
import { View, live, rateOf, violatedCount } from "../live_state.js";
import { FabricMap, MOST_SWITCHES } from "../map.js";
import { Table, rateColumn, textColumn } from "../table.js";
import { linkTable, portTable, switchTable } from "./fabric_tables.js";

const KILO = 1000, NARROW = matchMedia("(max-width: 600px)");
const bps = (kbps) => (kbps == null ? null : KILO * kbps);

export class FabricView extends View {
  title = "Fabric";

  constructor() {
    super();
    this.chosen = null;
    const known = (i) => live.keys.vlans[i];
    // Violated guarantees weigh more than congestion, congestion more than what is dropped.
    const trouble = (i) => 1e12 * violatedCount(i) + 1e6 * (live.state?.congested[i] ?? 0) + Math.min((rateOf("dropped", i) ?? 0) / KILO, 1e5);
    const rates = (key, title, hint) => rateColumn(key, title, (i) => rateOf(key, i), hint);
    this.vlans = new Table("VLANs", [
      { key: "vid", title: "VLAN", num: true, value: (i) => known(i)[0], text: (i) => String(known(i)[0]), href: (i) => `#/vlan/${known(i)[0]}` },
      textColumn("name", "Name", (i) => known(i)[1]),
      { key: "trouble", title: "State", value: trouble, num: true, left: true, text: (i) => this.words(i) },
      rates("offered", "Offered", "Rate that senders offer its VNs, bit/s"),
      rates("received", "Received", "Rate that its VNs receive"),
      rates("dropped", "Dropped", "Rate that the meters of its pairs drop"),
    ], { sort: "trouble", matches: (i, words) => `${known(i)[0]} ${known(i)[1]}`.toLowerCase().includes(words) });
    this.picker = h("select", { onchange: () => {
      this.chosen = Number(this.picker.value) || null;
      this.map?.choose(this.chosen);
    } });
    this.plan = h("div", {}, h("p", {}, "Loading."));
    this.drawing = h("section", { class: "drawing", "aria-labelledby": "map-title" }, h("h2", { id: "map-title" }, "Fabric"),
      h("div", { class: "tools" }, h("label", {}, "Show only VLAN ", this.picker)), this.plan);
    const of = (name) => (i) => this[name][i];
    this.tables = [
      linkTable(of("links"), (i) => this.now.links[i] ?? [false, null, null]), switchTable(of("switches"), (i) => this.now.states[this.switches[i].switch] ?? this.switches[i].state),
      portTable(of("ports"), (i) => this.now.ports[i]),
    ];
    this.parts = [this.vlans, ...this.tables];
    this.details = h("details", { class: "tables", ontoggle: () => this.paint() }, h("summary", {}, "The map as tables: links, switches and ports"),
      this.tables.flatMap((table) => [h("h3", {}, table.label), table.element]));
    this.fit = () => { this.details.open ||= NARROW.matches || !this.map; };
    NARROW.addEventListener("change", this.fit);
    this.element = h("div", {}, h("div", { class: "two" }, this.drawing,
      h("section", { "aria-labelledby": "vlans-title" }, h("h2", { id: "vlans-title" }, "VLANs"), this.vlans.element)), this.details);
  }

  words(i) {
    const violated = violatedCount(i), congested = live.state?.congested[i] ?? 0;
    return [violated && `! ${violated} violated`, congested && `${congested} congested`].filter(Boolean).join(", ") || "fine";
  }

  async load(signal) {
    const [switches, links, ports] = await Promise.all([
      list("/v1/switches", "switches", { signal }), list("/v1/links", "links", { signal }), list("/v1/ports", "ports", { signal, most: 1000 }),
    ]);
    Object.assign(this, { switches, links, ports });
    this.map = switches.length <= MOST_SWITCHES ? new FabricMap(switches, ports, links) : null;
    this.drawing.hidden = !this.map;
    this.plan.replaceChildren(this.map?.root ?? "");
    this.map?.choose(this.chosen);
    this.fit();
    this.onKeys();
    this.paint();
  }

  onKeys() {
    if (!live.keys?.vlans) return;
    const named = live.keys.vlans.map(([vid, name]) => h("option", { value: vid, selected: vid === this.chosen }, `${vid} ${name}`));
    this.picker.replaceChildren(h("option", { value: "" }, "all"), ...named);
    this.vlans.setCount(live.keys.vlans.length, true);
  }

  paint() {
    if (!live.state?.links || !live.keys?.vlans) return;
    this.vlans.setCount(live.keys.vlans.length);
    if (!this.links) return;
    const links = live.state.links.map(([up, ab, ba]) => [up, bps(ab), bps(ba)]);
    const ports = this.ports.map((_, at) => [bps(live.state.ports[0][at]), bps(live.state.ports[1][at])]);
    const states = Object.fromEntries(live.state.disconnected_switches.map((name) => [name, "disconnected"]));
    this.now = { links, ports, states };
    this.map?.paint(links, ports, states);
    if (this.details.open) [this.links, this.switches, this.ports].forEach((rows, at) => this.tables[at].setCount(rows.length));
  }

  onEvent(event) {
    if (/^(link|switch|port)/.test(event.kind)) this.again(1000);
  }

  destroy() {
    NARROW.removeEventListener("change", this.fit);
    super.destroy();
  }
}
