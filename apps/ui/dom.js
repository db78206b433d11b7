// Elements are made here and nowhere else; text from the fabric is text, never markup.

import { place } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

export function button(label, onclick, attributes = {}) {
  return h("button", { type: "button", onclick, ...attributes }, label);
}

/** Writes text only where it differs: most of it stays as it is. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element, name, value) {
  if (value === null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** A dialog on top of the page, which is gone when it is closed. */
export function openDialog(title, attributes, ...content) {
  const dialog = h("dialog", { "aria-label": title, onclose: () => dialog.remove(), ...attributes }, h("h3", {}, title), ...content);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

export function isTyping(target) {
  return target instanceof HTMLElement && target.matches("input, select, textarea");
}

// One polite live region, at most one message in five seconds.
const SAY_EVERY_MS = 5000;
let saidAt = -SAY_EVERY_MS, waiting = null, timer = 0;

export function say(text) {
  waiting = text;
  if (timer) return;
  timer = setTimeout(() => {
    timer = 0;
    saidAt = performance.now();
    document.getElementById("live").textContent = waiting;
  }, Math.max(0, saidAt + SAY_EVERY_MS - performance.now()));
}

/** A link to a view of a VN. */
export function vnLink(vid, end, text = place(end)) {
  return h("a", { href: vnHash(vid, end.switch, end.port_no) }, text);
}

export function vnHash(vid, switchName, portNo) {
  return `#/vn/${vid}/${encodeURIComponent(switchName)}/${portNo}`;
}

/** A small table that is written as a whole: headings, and rows of texts or elements. */
export function plainTable(caption, headings, rows, numeric = []) {
  const cell = (name, content, at) => h(name, { class: numeric.includes(at) ? "num" : null, scope: name === "th" ? "col" : null }, content);
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, headings.map((text, at) => cell("th", text, at)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((content, at) => cell("td", content, at)))))));
}
