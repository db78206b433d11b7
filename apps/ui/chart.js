// Rates over time. All that is known of uPlot is in here.

import { h, plainTable, setText } from "./dom.js";
import { localTime, rate } from "./format.js";

const MOST_POINTS = 300, LEAST_S = 60;

/** series: [{key, label, variable (CSS custom property), width, dash, step}]; `marks` are lines at times, with words. */
export class Chart {
  constructor(label, series) {
    this.series = series;
    this.data = [[], ...series.map(() => [])];
    this.marks = [];
    this.box = h("div", { class: "plot" });
    this.legend = h("ul", { class: "legend", "aria-hidden": "true" }, series.map((one) =>
      h("li", {}, h("span", { class: `swatch ${one.key}` }), one.label)));
    this.summary = h("p", { class: "summary" });
    this.table = h("details", {}, h("summary", {}, "The chart as a table"));
    this.table.addEventListener("toggle", () => this.writeTable());
    this.element = h("figure", { class: "chart", "aria-label": label }, this.legend, this.box, this.summary, this.table);
    this.resize = new ResizeObserver(() => this.plot?.setSize(this.size()));
    this.ended = new AbortController();
    const { signal } = this.ended, redraw = () => this.draw(true);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw, { signal });
    document.addEventListener("dets-theme", redraw, { signal });
  }

  destroy() {
    this.resize.disconnect();
    this.ended.abort();
    this.plot?.destroy();
  }

  size() {
    return { width: Math.max(this.box.clientWidth, 200), height: 260 };
  }

  /** Replaces all points: times in seconds since 1970, then a column of bit/s for each series. */
  set(times, columns) {
    this.data = [times.slice(-MOST_POINTS), ...columns.map((column) => column.slice(-MOST_POINTS))];
    this.draw();
  }

  push(time, values) {
    const [times] = this.data;
    if (times.length && time <= times[times.length - 1]) return;
    times.push(time);
    values.forEach((value, at) => this.data[at + 1].push(value));
    if (times.length > MOST_POINTS) for (const column of this.data) column.shift();
    if (this.table.open) this.writeTable();
    this.draw();
  }

  say(text) {
    setText(this.summary, text);
  }

  draw(anew = false) {
    if (!this.box.isConnected) return;
    if (this.plot && !anew) return this.plot.setData(this.data);
    this.plot?.destroy();
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--text"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    this.plot = new uPlot({
      ...this.size(),
      cursor: { y: false, drag: { x: false, y: false } },
      legend: { show: false },
      scales: { x: { range: (_, first, last) => [Math.min(first, last - LEAST_S), last] }, y: { range: (_, __, most) => [0, Math.max(most * 1.1, 1000)] } },
      axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map((s) => localTime(1000 * s)) }, { ...axis, size: 56, values: (_, ticks) => ticks.map(rate) }],
      series: [{}, ...this.series.map((one) => ({
        label: one.label, stroke: colour(one.variable), width: one.width ?? 2, dash: one.dash, points: { show: false },
        paths: one.step ? uPlot.paths.stepped({ align: 1 }) : undefined,
      }))],
      hooks: { draw: [(plot) => this.drawMarks(plot, colour("--text"))] },
    }, this.data, this.box);
    this.resize.observe(this.box);
  }

  drawMarks(plot, colour) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = colour;
    ctx.fillStyle = colour;
    ctx.lineWidth = 1;
    ctx.setLineDash([2, 4]);
    ctx.font = `${Math.round(11 * devicePixelRatio)}px sans-serif`;
    let row = 0;
    for (const mark of this.marks) {
      const x = plot.valToPos(mark.at, "x", true);
      if (!(x >= bbox.left && x <= bbox.left + bbox.width)) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(mark.text, x + 3, bbox.top + (12 + 13 * (row++ % 3)) * devicePixelRatio);
    }
    ctx.restore();
  }

  writeTable() {
    this.table.querySelector("div")?.remove();
    if (!this.table.open) return;
    const [times, ...columns] = this.data;
    const rows = times.map((s, at) => [localTime(1000 * s), ...columns.map((column) => rate(column[at]))]).reverse();
    this.table.append(plainTable("Rates", ["time", ...this.series.map((one) => one.label)], rows, columns.map((_, at) => at + 1)));
  }
}
