// Links, switches and edge ports as tables: instead of the map, and with what is promised of them.

import { localTime, percent, place } from "../format.js";
import { Table, rateColumn, textColumn } from "../table.js";

const table = (label, columns, words) => new Table(label, columns, { sort: columns[0].key, descending: false, matches: (i, typed) => words(i).toLowerCase().includes(typed) });

/** `link` returns that of a row as /v1/links has it, `loads` its [up, a to b, b to a] in bit/s. */
export function linkTable(link, loads = (i) => [link(i).up, link(i).a_to_b.load_bps, link(i).b_to_a.load_bps]) {
  const ends = (i) => `${place(link(i).a)} – ${place(link(i).b)}`, committed = (i, way) => link(i)[way].committed_bps;
  const part = (i) => Math.max(...loads(i).slice(1)) / link(i).capacity_bps;
  const free = (i) => link(i).admissible_bps && link(i).admissible_bps - Math.max(committed(i, "a_to_b"), committed(i, "b_to_a"));
  return table("Links", [
    textColumn("link", "Link", ends), textColumn("up", "State", (i) => (loads(i)[0] ? "up" : "down")),
    { key: "load", title: "Load", num: true, value: (i) => (link(i).capacity_bps ? part(i) : -1), text: (i) => percent(part(i), link(i).capacity_bps && 1) },
    rateColumn("ab", "There", (i) => loads(i)[1]), rateColumn("ba", "Back", (i) => loads(i)[2]),
    rateColumn("capacity", "Capacity", (i) => link(i).capacity_bps),
    rateColumn("committed_ab", "Committed there", (i) => committed(i, "a_to_b")), rateColumn("committed_ba", "Committed back", (i) => committed(i, "b_to_a")),
    rateColumn("free", "Free", free),
  ], ends);
}

export function switchTable(one, state) {
  const count = (key, title) => ({ key, title, num: true, value: (i) => one(i)[key], text: (i) => String(one(i)[key]) });
  return table("Switches", [
    textColumn("switch", "Switch", (i) => one(i).switch), textColumn("role", "Role", (i) => one(i).role), textColumn("state", "State", state),
    count("edge_ports", "Edge ports"), count("vns", "VNs"),
  ], (i) => `${one(i).switch} ${state(i)}`);
}

/** `loads` returns what comes from the hosts of a row's port and goes to them. */
export function portTable(port, loads = (i) => [port(i).received_bps, port(i).sent_bps]) {
  const name = (i) => place(port(i)), agent = (i) => (port(i).agent ? `${port(i).agent.state} (${port(i).agent.mode})` : "–");
  const promised = (way, key) => [
    rateColumn(key, `Promised to ${way}`, (i) => port(i)[key]),
    rateColumn(`free_${way}`, `Would fit, ${way}`, (i) => port(i).admissible_bps - port(i)[key]),
  ];
  return table("Edge ports", [
    textColumn("port", "Port", name), textColumn("interface", "Interface", (i) => port(i).interface ?? "–"),
    textColumn("state", "State", (i) => port(i).fence || port(i).state || "–"), textColumn("since", "Since", (i) => localTime(port(i).state_since)),
    rateColumn("speed", "Speed", (i) => port(i).speed_bps), rateColumn("capacity", "Capacity", (i) => port(i).capacity_bps),
    ...promised("send", "send_limits_bps"), ...promised("receive", "receive_limits_bps"),
    rateColumn("in", "From hosts", (i) => loads(i)[0]), rateColumn("out", "To hosts", (i) => loads(i)[1]),
    textColumn("agent", "Agent", agent),
    { key: "vlans", title: "VLANs", num: true, value: (i) => port(i).vlan_vids.length, text: (i) => String(port(i).vlan_vids.length) },
  ], (i) => `${name(i)} ${port(i).name}`);
}
