// #/: the map, and next to it the VLANs, the worst first.

import { list } from "../api.js";
import { h, plainTable } from "../dom.js";
import { percent, place, rate } from "../format.js";
import { live, rateOf } from "../live_state.js";
import { FabricMap, MOST_SWITCHES } from "../map.js";
import { Table } from "../table.js";

const KILO = 1000;

export class FabricView {
  title = "Fabric";
  query = "";

  constructor() {
    this.chosen = null;
    const known = (i) => live.keys.vlans[i];
    // Missed guarantees weigh more than congestion, congestion more than what is dropped.
    const trouble = (i) => 1e12 * (live.state?.missed[i] ?? 0) + 1e6 * (live.state?.congested[i] ?? 0) + Math.min((rateOf("dropped", i) ?? 0) / KILO, 1e5);
    const rates = (key, title, hint) => ({ key, title, hint, num: true, value: (i) => rateOf(key, i) ?? -1, text: (i) => rate(rateOf(key, i)) });
    this.vlans = new Table("VLANs", [
      { key: "vid", title: "VLAN", num: true, value: (i) => known(i)[0], text: (i) => String(known(i)[0]), href: (i) => `#/vlan/${known(i)[0]}` },
      { key: "name", title: "Name", value: (i) => known(i)[1], text: (i) => known(i)[1] },
      { key: "trouble", title: "State", value: trouble, num: true, text: (i) => this.words(i) },
      rates("offered", "Offered", "What is sent to its VNs, bit/s"),
      rates("received", "Received", "What they get"),
      rates("dropped", "Dropped", "What the meters of its pairs drop"),
    ], { sort: "trouble", matches: (i, words) => `${known(i)[0]} ${known(i)[1]}`.toLowerCase().includes(words) });
    this.picker = h("select", { onchange: () => {
      this.chosen = this.picker.value === "" ? null : Number(this.picker.value);
      this.map?.choose(this.chosen);
    } });
    this.drawing = h("div", { class: "drawing" }, h("p", {}, "Loading the fabric."));
    this.tables = h("details", {}, h("summary", {}, "The map as tables: links, switches and ports"));
    this.tables.addEventListener("toggle", () => this.writeTables());
    this.element = h("div", { class: "two" },
      h("section", { "aria-labelledby": "map-title" }, h("h2", { id: "map-title" }, "Fabric"), h("div", { class: "tools" }, h("label", {}, "Show only VLAN ", this.picker)), this.drawing, this.tables),
      h("section", { "aria-labelledby": "vlans-title" }, h("h2", { id: "vlans-title" }, "VLANs"), this.vlans.element));
  }

  words(i) {
    const missed = live.state?.missed[i] ?? 0, congested = live.state?.congested[i] ?? 0;
    if (missed) return `! ${missed} missing`;
    return congested ? `${congested} congested` : "fine";
  }

  async load(signal) {
    const [switches, links, ports] = await Promise.all([
      list("/v1/switches", "switches", { signal }), list("/v1/links", "links", { signal }), list("/v1/ports", "ports", { signal, most: 1000 }),
    ]);
    Object.assign(this, { switches, links, ports });
    this.map = switches.length <= MOST_SWITCHES ? new FabricMap(switches, ports, links) : null;
    this.matrix = this.map ? null : this.makeMatrix();
    this.drawing.replaceChildren(this.map ? this.map.root : this.matrix.element);
    this.map?.choose(this.chosen);
    this.onKeys();
    this.paint();
  }

  /** Over MOST_SWITCHES switches: the links by their load instead of the drawing. */
  makeMatrix() {
    const load = (i, way) => live.state?.links[i]?.[way] ?? null;
    const part = (i, way) => (load(i, way) === null || !this.links[i].capacity_bps ? -1 : (KILO * load(i, way)) / this.links[i].capacity_bps);
    return new Table("Links by load", [
      { key: "ends", title: "Link", value: (i) => place(this.links[i].a), text: (i) => `${place(this.links[i].a)} – ${place(this.links[i].b)}` },
      { key: "load", title: "Load", num: true, value: (i) => Math.max(part(i, 1), part(i, 2)), text: (i) => (live.state?.links[i]?.[0] ? `${percent(load(i, 1) * KILO, this.links[i].capacity_bps)} / ${percent(load(i, 2) * KILO, this.links[i].capacity_bps)}` : "down") },
      { key: "capacity", title: "Capacity", num: true, value: (i) => this.links[i].capacity_bps ?? 0, text: (i) => rate(this.links[i].capacity_bps) },
    ], { sort: "load", matches: (i, words) => `${place(this.links[i].a)} ${place(this.links[i].b)}`.toLowerCase().includes(words) });
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
    const bps = (kbps) => (kbps === null || kbps === undefined ? null : KILO * kbps);
    const links = live.state.links.map(([up, ab, ba]) => [up, bps(ab), bps(ba)]);
    const ports = this.ports.map((_, at) => [bps(live.state.ports[0][at]), bps(live.state.ports[1][at])]);
    const states = Object.fromEntries(live.state.disconnected_switches.map((name) => [name, "disconnected"]));
    this.now = { links, ports, states };
    this.map?.paint(links, ports, states);
    this.matrix?.setCount(this.links.length);
  }

  onEvent(event) {
    if (/^(link|switch|port)/.test(event.kind)) this.again();
  }

  again() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load().catch(() => {}), 1000);
  }

  writeTables() {
    while (this.tables.children.length > 1) this.tables.lastChild.remove();
    if (!this.tables.open || !this.now) return;
    this.tables.append(
      plainTable("Links", ["link", "capacity", "there", "back"], this.links.map((link, at) => {
        const [up, ab, ba] = this.now.links[at] ?? [false, null, null];
        return [`${place(link.a)} – ${place(link.b)}`, rate(link.capacity_bps), up ? rate(ab) : "down", up ? rate(ba) : "down"];
      }), [1, 2, 3]),
      plainTable("Switches", ["switch", "role", "state", "edge ports", "VNs"], this.switches.map((one) =>
        [one.switch, one.role, this.now.states[one.switch] ?? one.state, String(one.edge_ports), String(one.vns)]), [3, 4]),
      plainTable("Ports", ["port", "interface", "state", "since", "link"], this.ports.map((one) =>
        [`${one.switch}:${one.name}`, one.interface, one.fence || one.state, one.state_since, rate(one.speed_bps)]), [4]));
  }

  destroy() {
    clearTimeout(this.timer);
    this.vlans.destroy();
    this.matrix?.destroy();
  }
}
