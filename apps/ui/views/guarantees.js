// #/guarantees: what is promised of each port and link, what is left, and which VNs miss theirs.

import { list } from "../api.js";
import { h, plainTable, vnLink } from "../dom.js";
import { place, rate, seconds } from "../format.js";
import { Table } from "../table.js";

const AGAIN_MS = 10000;

export class LedgerView {
  title = "Guarantees";
  query = "";

  constructor() {
    this.ports = [];
    this.links = [];
    const port = (i) => this.ports[i], link = (i) => this.links[i];
    const rates = (key, title, of, hint) => ({ key, title, hint, num: true, value: (i) => of(i) ?? -1, text: (i) => rate(of(i)) });
    const free = (i) => port(i).capacity_bps - Math.max(port(i).send_limits_bps, port(i).receive_limits_bps);
    const agent = (i) => (port(i).agent ? `${port(i).agent.state} (${port(i).agent.mode})` : "–");
    this.portTable = new Table("Edge ports", [
      { key: "port", title: "Port", value: (i) => place(port(i)), text: (i) => place(port(i)) },
      rates("capacity", "Capacity", (i) => port(i).capacity_bps),
      rates("send", "Promised to send", (i) => port(i).send_limits_bps),
      rates("receive", "Promised to receive", (i) => port(i).receive_limits_bps),
      rates("free_send", "Would fit, send", (i) => port(i).capacity_bps - port(i).send_limits_bps, "How much more send limits may add up to here"),
      rates("free_receive", "Would fit, receive", (i) => port(i).capacity_bps - port(i).receive_limits_bps, "How much more receive limits may add up to here"),
      rates("in", "From hosts", (i) => port(i).received_bps),
      rates("out", "To hosts", (i) => port(i).sent_bps),
      { key: "agent", title: "Agent", hint: "The agent on the port's host, and whether meters watch it", value: (i) => agent(i), text: (i) => agent(i) },
      { key: "free", title: "VLANs", num: true, value: free, text: (i) => String(port(i).vlan_vids.length) },
    ], { sort: "port", descending: false, matches: (i, words) => `${place(port(i))} ${port(i).name}`.toLowerCase().includes(words) });
    const way = (i, name) => link(i)[name];
    const most = (i) => Math.max(way(i, "a_to_b").committed_bps ?? 0, way(i, "b_to_a").committed_bps ?? 0);
    this.linkTable = new Table("Core links", [
      { key: "link", title: "Link", value: (i) => place(link(i).a), text: (i) => `${place(link(i).a)} – ${place(link(i).b)}` },
      { key: "up", title: "State", value: (i) => String(link(i).up), text: (i) => (link(i).up ? "up" : "down") },
      rates("capacity", "Capacity", (i) => link(i).capacity_bps),
      rates("ab", "Committed there", (i) => way(i, "a_to_b").committed_bps),
      rates("ba", "Committed back", (i) => way(i, "b_to_a").committed_bps),
      rates("free", "Free", (i) => (link(i).capacity_bps === null ? null : link(i).capacity_bps - most(i))),
      rates("load_ab", "Load there", (i) => way(i, "a_to_b").load_bps),
      rates("load_ba", "Load back", (i) => way(i, "b_to_a").load_bps),
    ], { sort: "link", descending: false, matches: (i, words) => `${place(link(i).a)} ${place(link(i).b)}`.toLowerCase().includes(words) });
    this.missing = h("div", {}, h("p", {}, "Loading."));
    this.element = h("section", {}, h("h2", {}, "Guarantees"), h("h3", {}, "Guarantees that are missing now"), this.missing,
      h("h3", {}, "Edge ports"), this.portTable.element, h("h3", {}, "Core links"), this.linkTable.element);
  }

  async load(signal) {
    const [ports, links, missing] = await Promise.all([
      list("/v1/ports", "ports", { signal }), list("/v1/links", "links", { signal }), list("/v1/vns?violated=true", "vns", { signal, most: 250 }),
    ]);
    Object.assign(this, { ports, links });
    this.portTable.setCount(ports.length, true);
    this.linkTable.setCount(links.length, true);
    const rows = missing.map((vn) => [
      vnLink(vn.vlan_vid, vn.switch, vn.port_no, `VLAN ${vn.vlan_vid}, ${place(vn)}`), rate(vn.guarantee.received_bps), rate(vn.guarantee.entitled_bps),
      ...["switch", "controller", "floods", "grants"].map((name) => seconds(vn.guarantee.violated_by_s[name])),
    ]);
    this.missing.replaceChildren(rows.length
      ? plainTable("Guarantees that are missing", ["VN", "gets", "is entitled to", "violated: switch", "controller", "floods", "grants"], rows, [1, 2, 3, 4, 5, 6])
      : h("p", {}, "None: every VN gets what its senders offer within its limit."));
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load().catch(() => {}), AGAIN_MS);
  }

  paint() {}

  destroy() {
    clearTimeout(this.timer);
    this.portTable.destroy();
    this.linkTable.destroy();
  }
}
