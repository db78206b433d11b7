// The fabric as a drawing: edge switches outside, core switches inside, a link in two halves, one each way.

import { setAttribute, setText, svg } from "./dom.js";
import { percent, place, rate } from "./format.js";

const BOX_W = 92, BOX_H = 34, PORT = 16, STEP = PORT + 6, GAP = 2, LINK_W = 12;
const MOST_PORTS = 200;
export const MOST_SWITCHES = 50;

/** Which of four steps a load is in, 0 to 3; null is unknown. */
export function step(load, capacity) {
  if (load === null || !capacity) return null;
  return Math.min(3, Math.floor((4 * load) / capacity));
}

/** The edge switches, those of one core switch next to each other. */
function ordered(edges, core, links) {
  const near = (name) => links.flatMap(({ a, b }) => (a.switch === name ? b.switch : b.switch === name ? a.switch : []))
    .map((other) => core.findIndex((one) => one.switch === other)).filter((at) => at >= 0);
  const mean = (found) => found.reduce((sum, one) => sum + one, 0) / found.length || 0;
  return edges.map((one) => [mean(near(one.switch)), one]).sort((x, y) => x[0] - y[0]).map(([, one]) => one);
}

/** The rectangle of a switch's ports: outside the tangent of the edge switches' ellipse, where no link can be. */
function portBlock({ x, y, nx, ny }, count) {
  const columns = Math.min(12, Math.ceil(Math.sqrt(3 * count))), w = columns * STEP, h = Math.ceil(count / columns) * STEP;
  const outside = (w * Math.abs(nx) + h * Math.abs(ny)) / 2 + LINK_W;
  const clear = Math.min((w + BOX_W) / 2 / Math.abs(nx), (h + BOX_H) / 2 / Math.abs(ny)) + 4;
  const d = Math.max(outside, clear);
  return { x: x + nx * d - w / 2, y: y + ny * d - h / 2, w, h, columns };
}

const apart = (a, b) => a.x + a.w + GAP <= b.x || b.x + b.w + GAP <= a.x || a.y + a.h + GAP <= b.y || b.y + b.h + GAP <= a.y;

/** Places switches on two ellipses, wide enough for all; {places, blocks (of ports, by switch), box (x, y, w, h)}. */
export function layout(switches, links, portCounts = {}) {
  const core = switches.filter((one) => one.role === "core"), edges = ordered(switches.filter((one) => one.role === "edge"), core, links);
  for (let scale = 1; ; scale *= 1.15) {
    const places = new Map(), blocks = new Map();
    const ring = (group, a, b, turn) => group.forEach((one, at) => {
      const angle = turn + (2 * Math.PI * at) / group.length, x = Math.cos(angle), y = Math.sin(angle), n = Math.hypot(b * x, a * y);
      places.set(one.switch, { x: a * scale * x, y: b * scale * y, nx: (b * x) / n, ny: (a * y) / n });
    });
    const sides = edges.length > 1, pair = edges.length === 2 && !core.length;
    ring(edges, 320, sides ? 190 : 100, pair ? Math.PI : sides ? -Math.PI / 2 : Math.PI / 2);
    ring(core, ...(core.length < 2 ? [0.01, 0.01] : sides ? [130, 65] : [200, 40]), core.length === 2 ? 0 : -Math.PI / 2);
    const boxes = [...places].flatMap(([name, at]) => {
      const own = [{ x: at.x - BOX_W / 2, y: at.y - BOX_H / 2, w: BOX_W, h: BOX_H }];
      if (portCounts[name]) blocks.set(name, own[1] = portBlock(at, portCounts[name]));
      return own;
    });
    if (scale < 9 && boxes.some((one, at) => boxes.slice(0, at).some((two) => !apart(one, two)))) continue;
    const [[left, right], [top, bottom]] = [["x", "w", 320], ["y", "h", 150]].map(([from, size, least]) => [
      Math.min(-least, ...boxes.map((one) => one[from] - 12)), Math.max(least, ...boxes.map((one) => one[from] + one[size] + 12))]);
    return { places, blocks, box: [left, top, right - left, bottom - top] };
  }
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
    const shown = ports.length <= MOST_PORTS ? ports : [], counts = {};
    const numbers = shown.map((port) => (counts[port.switch] = (counts[port.switch] ?? 0) + 1) - 1);
    Object.assign(this, layout(switches, links, counts));
    this.root = svg("svg", { viewBox: this.box.join(" "), class: "map", role: "img", "aria-label": "Map of the fabric; the tables below have the same" });
    this.halves = links.map((link) => this.drawLink(link));
    this.nodes = new Map(switches.map((one) => [one.switch, this.drawSwitch(one)]));
    this.squares = shown.map((port, at) => this.drawPort(port, numbers[at]));
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

  drawPort(port, number) {
    const block = this.blocks.get(port.switch);
    const x = block.x + (number % block.columns + 0.5) * STEP, y = block.y + (Math.floor(number / block.columns) + 0.5) * STEP;
    const fill = svg("rect", { x: x - PORT / 2, y: y + PORT / 2, width: PORT, height: 0, class: "portload" });
    const square = svg("rect", { x: x - PORT / 2, y: y - PORT / 2, width: PORT, height: PORT, class: "portbox" });
    const title = svg("title");
    const group = svg("g", { class: "port" }, fill, square, svg("text", { x, y: y + 4 }, String(port.port ?? port.port_no).slice(-4)), title);
    this.root.append(group);
    return { group, fill, title, bottom: y + PORT / 2 };
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
      setText(drawn.title, `${place(port)} of ${rate(port.capacity_bps)}: from hosts ${rate(received)}, to hosts ${rate(sent)}`);
    });
    for (const one of this.switches) {
      const node = this.nodes.get(one.switch), state = states[one.switch] ?? one.state;
      setText(node.state, state);
      setAttribute(node.group, "class", `switch ${one.role}${state === "ready" ? "" : " lost"}${node.faded ? " faded" : ""}`);
    }
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
