// The fabric as a drawing: edge switches outside, core switches inside, a link in two halves, one for each direction.

import { setAttribute, setText, svg } from "./dom.js";
import { percent, place, rate } from "./format.js";

const WIDTH = 800, HEIGHT = 520, MIDDLE_X = WIDTH / 2, MIDDLE_Y = HEIGHT / 2;
const BOX_W = 92, BOX_H = 34, PORT = 16;
const MOST_PORTS = 200;
export const MOST_SWITCHES = 50;

/** Which of four steps a load is in, 0 to 3; null is unknown. */
export function step(load, capacity) {
  if (load === null || !capacity) return null;
  return Math.min(3, Math.floor((4 * load) / capacity));
}

/** Places switches on two ellipses, edge switches in the order of their core switches. */
export function layout(switches, links) {
  const core = switches.filter((one) => one.role === "core"), edges = switches.filter((one) => one.role === "edge");
  const near = new Map(core.map((one, at) => [one.switch, at]));
  const weight = (name) => {
    const found = links.flatMap((link) => (link.a.switch === name ? [link.b.switch] : link.b.switch === name ? [link.a.switch] : []))
      .filter((other) => near.has(other)).map((other) => near.get(other));
    return found.length ? found.reduce((sum, one) => sum + one, 0) / found.length : core.length;
  };
  const ordered = core.length > 1 ? edges.map((one, at) => [weight(one.switch), at, one]).sort((x, y) => x[0] - y[0] || x[1] - y[1]).map((one) => one[2]) : edges;
  const places = new Map();
  const ring = (group, radiusX, radiusY) => group.forEach((one, at) => {
    const angle = -Math.PI / 2 + (2 * Math.PI * (at + (group.length === 2 ? 0.5 : 0))) / group.length + (group.length === 2 ? Math.PI / 2 : 0);
    const alone = group.length === 1;
    places.set(one.switch, { x: MIDDLE_X + (alone ? 0 : radiusX * Math.cos(angle)), y: MIDDLE_Y + (alone ? 0 : radiusY * Math.sin(angle)) });
  });
  if (edges.length === 1 && core.length) {
    places.set(edges[0].switch, { x: MIDDLE_X, y: HEIGHT - 110 });
    ring(core, 200, 40);
    if (core.length === 1) places.set(core[0].switch, { x: MIDDLE_X, y: 130 });
    return places;
  }
  ring(ordered, core.length ? 320 : 250, core.length ? 190 : 140);
  ring(core, 130, 65);
  return places;
}

/** Links that lie on a shortest path between two of these switches. */
export function linksBetween(names, links) {
  const next = new Map();
  links.forEach((link, at) => {
    if (!link.up) return;
    for (const [from, to] of [[link.a.switch, link.b.switch], [link.b.switch, link.a.switch]]) {
      if (!next.has(from)) next.set(from, []);
      next.get(from).push([to, at]);
    }
  });
  const used = new Set();
  for (const start of names) {
    const came = new Map([[start, null]]), queue = [start];
    for (const name of queue) {
      for (const [to, at] of next.get(name) ?? []) {
        if (came.has(to)) continue;
        came.set(to, [name, at]);
        queue.push(to);
      }
    }
    for (const target of names) {
      for (let hop = came.get(target); hop; hop = came.get(hop[0])) used.add(hop[1]);
    }
  }
  return used;
}

export class FabricMap {
  constructor(switches, ports, links) {
    Object.assign(this, { switches, ports, links });
    this.places = layout(switches, links);
    this.root = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "map", role: "img", "aria-label": "Map of the fabric; the tables below have the same" });
    this.halves = links.map((link) => this.drawLink(link));
    this.nodes = new Map(switches.map((one) => [one.switch, this.drawSwitch(one)]));
    this.squares = ports.length <= MOST_PORTS ? this.drawPorts() : [];
  }

  drawLink(link) {
    const a = this.places.get(link.a.switch), b = this.places.get(link.b.switch);
    if (!a || !b) return null;
    const middle = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
    const width = link.capacity_bps ? Math.min(12, 3 + Math.max(0, Math.log10(link.capacity_bps / 1e7) * 2)) : 3;
    const half = (from) => svg("line", { x1: from.x, y1: from.y, x2: middle.x, y2: middle.y, "stroke-width": width, class: "half" }, svg("title"));
    const words = (from) => svg("text", { x: from.x + (middle.x - from.x) * 0.62, y: from.y + (middle.y - from.y) * 0.62 - 6, class: "load" });
    const drawn = { ab: half(a), ba: half(b), abWords: words(a), baWords: words(b) };
    drawn.group = svg("g", { class: "link" }, drawn.ab, drawn.ba, drawn.abWords, drawn.baWords);
    this.root.append(drawn.group);
    return drawn;
  }

  drawSwitch(one) {
    const at = this.places.get(one.switch);
    const state = svg("text", { x: at.x, y: at.y + 13, class: "state" });
    const box = svg("rect", { x: at.x - BOX_W / 2, y: at.y - BOX_H / 2, width: BOX_W, height: BOX_H, rx: 5 });
    const group = svg("g", { class: `switch ${one.role}` }, box, svg("text", { x: at.x, y: at.y - 1 }, one.switch), state);
    this.root.append(group);
    return { group, box, state };
  }

  drawPorts() {
    const of = new Map();
    for (const port of this.ports) of.set(port.switch, [...(of.get(port.switch) ?? []), port]);
    return this.ports.map((port) => {
      const at = this.places.get(port.switch), mine = of.get(port.switch);
      const perRow = 12, number = mine.indexOf(port), row = Math.floor(number / perRow);
      const inRow = Math.min(perRow, mine.length - row * perRow);
      const outward = at.y >= MIDDLE_Y - 1 ? 1 : -1;
      const x = at.x + (number % perRow - (inRow - 1) / 2) * (PORT + 6), y = at.y + outward * (BOX_H / 2 + 14 + row * (PORT + 5));
      const fill = svg("rect", { x: x - PORT / 2, y: y + PORT / 2, width: PORT, height: 0, class: "portload" });
      const square = svg("rect", { x: x - PORT / 2, y: y - PORT / 2, width: PORT, height: PORT, class: "portbox" });
      const title = svg("title");
      const group = svg("g", { class: "port" }, fill, square, svg("text", { x, y: y + 4 }, String(port.port_no)), title);
      this.root.append(group);
      return { group, fill, title, bottom: y + PORT / 2 };
    });
  }

  /** Writes loads: `links` are [up, a to b, b to a] in bit/s, `ports` are [received, sent]. */
  paint(links, ports, states) {
    this.halves.forEach((drawn, at) => {
      if (!drawn || !links[at]) return;
      const [up, ...loads] = links[at], link = this.links[at];
      setAttribute(drawn.group, "class", `link${up ? "" : " down"}${drawn.faded ? " faded" : ""}`);
      [["ab", link.a, link.b], ["ba", link.b, link.a]].forEach(([name, from, to], way) => {
        const found = up ? step(loads[way], link.capacity_bps) : null;
        setAttribute(drawn[name], "class", `half ${found === null ? "unknown" : `step${found}`}`);
        const shown = link.capacity_bps ? percent(loads[way], link.capacity_bps) : rate(loads[way]);
        setText(drawn[`${name}Words`], up ? shown : "");
        setText(drawn[name].firstChild, `${place(from)} to ${place(to)}: ${up ? `${rate(loads[way])} of ${rate(link.capacity_bps)}` : "down"}`);
      });
    });
    this.squares.forEach((drawn, at) => {
      const port = this.ports[at], [received, sent] = ports[at] ?? [null, null];
      const load = Math.max(received ?? 0, sent ?? 0), part = Math.min(1, load / port.capacity_bps);
      setAttribute(drawn.fill, "height", (PORT * part).toFixed(1));
      setAttribute(drawn.fill, "y", (drawn.bottom - PORT * part).toFixed(1));
      setAttribute(drawn.fill, "class", `portload step${Math.min(3, Math.floor(4 * part))}`);
      setText(drawn.title, `${place(port)} of ${rate(port.capacity_bps)}: from hosts ${rate(received)}, to hosts ${rate(sent)}; promised ${rate(port.send_limits_bps)} to send, ${rate(port.receive_limits_bps)} to receive`);
    });
    for (const one of this.switches) {
      const node = this.nodes.get(one.switch), state = states[one.switch] ?? one.state;
      setText(node.state, this.squares.length || one.role === "core" ? state : `${state}, worst ${this.worst(one.switch, ports)}`);
      setAttribute(node.group, "class", `switch ${one.role}${state === "ready" ? "" : " lost"}${node.faded ? " faded" : ""}`);
    }
  }

  worst(name, loads) {
    let most = 0;
    this.ports.forEach((port, at) => {
      if (port.switch === name) most = Math.max(most, Math.max(...(loads[at] ?? [0]).map(Number)) / port.capacity_bps);
    });
    return `${Math.round(100 * most)} %`;
  }

  /** Keeps what a VLAN uses; null shows all. */
  choose(vid) {
    const mine = (port) => vid === null || port.vlan_vids.includes(vid);
    const names = new Set(this.ports.filter(mine).map((port) => port.switch));
    const used = vid === null ? null : linksBetween([...names], this.links);
    this.halves.forEach((drawn, at) => {
      if (!drawn) return;
      drawn.faded = used !== null && !used.has(at);
      drawn.group.classList.toggle("faded", drawn.faded);
    });
    for (const one of this.switches) {
      const node = this.nodes.get(one.switch);
      const passes = used !== null && [...used].some((at) => [this.links[at].a.switch, this.links[at].b.switch].includes(one.switch));
      node.faded = vid !== null && !names.has(one.switch) && !passes;
      node.group.classList.toggle("faded", node.faded);
    }
    this.squares.forEach((drawn, at) => drawn.group.classList.toggle("faded", !mine(this.ports[at])));
  }
}
