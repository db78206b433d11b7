// #/guarantees: what is promised of each port and link, what is left, and which are violated.

import { list } from "../api.js";
import { h, plainTable, vnLink } from "../dom.js";
import { place, rate, seconds } from "../format.js";
import { View, violatedCount } from "../live_state.js";
import { linkTable, portTable } from "./fabric_tables.js";

export class GuaranteesView extends View {
  title = "Guarantees";

  constructor() {
    super();
    this.portTable = portTable((i) => this.ports[i]);
    this.linkTable = linkTable((i) => this.links[i]);
    this.parts = [this.portTable, this.linkTable];
    this.violated = h("div", {}, h("p", {}, "Loading."));
    this.element = h("section", {}, h("h2", {}, "Guarantees"), h("h3", {}, "Violated now"), this.violated,
      h("h3", {}, "Edge ports"), this.portTable.element, h("h3", {}, "Links"), this.linkTable.element);
  }

  async load(signal) {
    const [ports, links, violated] = await Promise.all([
      list("/v1/ports", "ports", { signal }), list("/v1/links", "links", { signal }), list("/v1/vns?violated=true", "vns", { signal, most: 250 }),
    ]);
    Object.assign(this, { ports, links });
    this.portTable.setCount(ports.length, true);
    this.linkTable.setCount(links.length, true);
    const rows = violated.map((vn) => [
      vnLink(vn.vlan_vid, vn, `VLAN ${vn.vlan_vid}, ${place(vn)}`), rate(vn.guarantee.received_bps), rate(vn.guarantee.entitled_bps),
      ...["switch", "controller", "floods", "grants"].map((name) => seconds(vn.guarantee.violated_by_s[name])),
    ]);
    // While the status bar still counts one that was restored, the list stays.
    if (rows.length || !violatedCount()) this.violated.replaceChildren(rows.length
      ? plainTable("Violated guarantees", ["VN", "gets", "is entitled to", "violated: switch", "controller", "floods", "grants"], rows, [1, 2, 3, 4, 5, 6])
      : h("p", {}, "None: every VN gets what its senders offer within its limit."));
    this.again();
  }

  /** Lists them when the first is violated, or the last restored. */
  paint() {
    const any = violatedCount() > 0;
    if (any !== this.any) this.load().catch(() => {});
    this.any = any;
  }
}
