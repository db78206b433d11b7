// A table of any length: rows of one height, as many elements as fit, used again while it scrolls.

import { button, h, isTyping, setAttribute, setText } from "./dom.js";
import { rate } from "./format.js";

const ROW_PX = 30, MARGIN_ROWS = 8, MOST_ELEMENTS = 80;

const side = ({ num, left }) => (num && !left ? "num" : null);

/** A column of rates: `of` returns that of a row in bit/s, null if it is unknown. */
export const rateColumn = (key, title, of, hint) => ({ key, title, hint, num: true, value: (i) => of(i) ?? -1, text: (i) => rate(of(i)) });

/** A column of words, which it is also sorted by. */
export const textColumn = (key, title, of) => ({ key, title, value: of, text: of });

/**
 * columns: [{key, title, hint, num, left, text(i), value(i), href(i), fill(td, i), width}]; i is a row of the source.
 * `value` is what it is sorted by: a number where `num`, or text. `matches(i, words)` is the filter.
 */
export class Table {
  count = 0;
  order = new Int32Array(0);
  words = "";
  first = -1;
  rows = [];

  constructor(label, columns, { sort, descending = true, matches, className = "" }) {
    Object.assign(this, { columns, label, matches, descending, sortKey: sort });
    this.filter = h("input", { type: "search", "aria-label": `Filter ${label}`, placeholder: "Filter ( / )", oninput: () => {
      this.words = this.filter.value.trim().toLowerCase();
      this.sort(true);
    } });
    this.shown = h("span", { class: "shown" });
    this.heads = columns.map((column) => {
      const sort = button(column.title, () => this.sortBy(column.key), { title: column.hint ?? null });
      return h("th", { scope: "col", class: side(column) }, column.value ? sort : column.title);
    });
    this.body = h("tbody");
    this.above = h("tr", { class: "space", "aria-hidden": "true" }, h("td", { colspan: columns.length }));
    this.below = this.above.cloneNode(true);
    this.table = h("table", { "aria-label": label, class: className }, h("thead", {}, h("tr", { "aria-rowindex": 1 }, this.heads)), this.body);
    this.scroller = h("div", { class: "virtual", tabindex: 0, role: "region", "aria-label": `Rows: ${label}`, onscroll: () => this.paint() }, this.table);
    this.element = h("div", { class: "tablebox" }, matches ? h("div", { class: "tools" }, this.filter, this.shown) : null, this.scroller);
    this.scroller.addEventListener("keydown", (event) => this.onKey(event));
    this.observer = new ResizeObserver(() => this.paint(true));
    this.observer.observe(this.scroller);
    this.markSort();
  }

  destroy() {
    this.observer.disconnect();
  }

  /** There are so many rows in the source now; a new source is sorted at once. */
  setCount(count, anew = false) {
    const changed = anew || count !== this.count;
    this.count = count;
    this.sort(changed);
  }

  sortBy(key) {
    this.descending = this.sortKey === key ? !this.descending : Boolean(this.columns.find((one) => one.key === key).num);
    this.sortKey = key;
    this.markSort();
    this.sort(true);
  }

  markSort() {
    this.columns.forEach((column, at) => {
      if (column.value) setAttribute(this.heads[at], "aria-sort", column.key !== this.sortKey ? "none" : this.descending ? "descending" : "ascending");
    });
  }

  /** Sorts, unless somebody is pointing at the rows or works in them. */
  sort(force = false) {
    const held = this.scroller.matches(":hover") || this.body.contains(document.activeElement);
    if (force || !held) this.order = this.sorted();
    this.paint(true);
  }

  sorted() {
    const column = this.columns.find((one) => one.key === this.sortKey);
    const kept = [];
    for (let i = 0; i < this.count; i += 1) if (!this.words || this.matches(i, this.words)) kept.push(i);
    const order = Int32Array.from(kept);
    if (!column) return order;
    const sign = this.descending ? -1 : 1;
    if (!column.num) {
      const texts = kept.length ? Array.from({ length: this.count }, (_, i) => String(column.value(i))) : [];
      return order.sort((a, b) => sign * texts[a].localeCompare(texts[b], undefined, { numeric: true }) || a - b);
    }
    const values = new Float64Array(this.count);
    for (const i of kept) values[i] = column.value(i) ?? -1;
    return order.sort((a, b) => sign * (values[a] - values[b]) || a - b);
  }

  paint(force = false) {
    const visible = Math.ceil(this.scroller.clientHeight / ROW_PX) + 2 * MARGIN_ROWS;
    const most = Math.min(Math.max(visible, 1), MOST_ELEMENTS, this.order.length);
    const first = Math.max(0, Math.min(Math.floor(this.scroller.scrollTop / ROW_PX) - MARGIN_ROWS, this.order.length - most));
    if (!force && first === this.first) return;
    this.first = first;
    if (this.rows.length !== most) {
      while (this.rows.length < most) this.rows.push(this.makeRow());
      this.rows.length = most;
      this.body.replaceChildren(this.above, ...this.rows.map((row) => row.element), this.below);
    }
    this.above.style.height = `${first * ROW_PX}px`;
    this.below.style.height = `${(this.order.length - first - most) * ROW_PX}px`;
    this.above.hidden = first === 0;
    this.below.hidden = this.order.length - first - most <= 0;
    setAttribute(this.table, "aria-rowcount", this.order.length + 1);
    this.rows.forEach((row, at) => this.writeRow(row, first + at));
    setText(this.shown, this.words ? `${this.order.length} of ${this.count}` : `${this.count}`);
  }

  makeRow() {
    const cells = this.columns.map((column) => h("td", { class: side(column) }));
    return { element: h("tr", {}, cells), cells, links: [] };
  }

  writeRow(row, at) {
    const i = this.order[at];
    setAttribute(row.element, "aria-rowindex", at + 2);
    this.columns.forEach((column, number) => {
      const cell = row.cells[number];
      if (column.fill) return column.fill(cell, i);
      const text = column.text(i);
      if (!column.href) return setText(cell, text);
      const link = (row.links[number] ??= cell.appendChild(h("a", { href: "#" })));
      setText(link, text);
      setAttribute(link, "href", column.href(i));
    });
  }

  onKey(event) {
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (!step || isTyping(event.target)) return;
    event.preventDefault();
    this.move(step);
  }

  /** Moves the focus to the link of the next row, or of the first one. */
  move(step) {
    const at = this.rows.findIndex((row) => row.element.contains(document.activeElement));
    const wanted = at < 0 ? Math.max(0, Math.round(this.scroller.scrollTop / ROW_PX)) : this.first + at + step;
    if (wanted < 0 || wanted >= this.order.length) return;
    const top = wanted * ROW_PX, height = this.scroller.clientHeight - 2 * ROW_PX;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (top > this.scroller.scrollTop + height) this.scroller.scrollTop = top - height;
    this.paint();
    this.rows[wanted - this.first]?.element.querySelector("a")?.focus({ preventScroll: true });
  }
}

/** Fills a cell with bars on one scale: received solid, dropped hatched, limit and grant as ticks. */
export function fillBars(cell, most, { received, dropped, limit, granted }, words) {
  if (!cell.bars) {
    cell.bars = ["received", "dropped", "limit", "granted"].map((name) => h("span", { class: `bar-${name}` }));
    cell.words = h("span", { class: "unseen" });
    cell.append(h("span", { class: "bars", "aria-hidden": "true" }, cell.bars), cell.words);
  }
  const part = (bps) => `${Math.min(100, (100 * (bps ?? 0)) / (most || 1)).toFixed(2)}%`;
  const [solid, hatched, tick, grant] = cell.bars;
  const set = (element, name, value) => { if (element.style[name] !== value) element.style[name] = value; };
  set(solid, "width", part(received));
  set(hatched, "left", part(received));
  set(hatched, "width", part(dropped));
  set(tick, "left", part(limit));
  set(grant, "left", part(granted));
  grant.hidden = granted === null;
  setText(cell.words, words);
}
