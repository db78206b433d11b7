// Where the page begins: views, status bar, keys, login.

import { get, setToken, whenLoginIsNeeded } from "./api.js";
import { button, h, isTyping, openDialog, say, setAttribute, setText, vnHash } from "./dom.js";
import { percent } from "./format.js";
import { follow, live, setPaused, subscribe, violatedCount } from "./live_state.js";
import { ChangesView } from "./views/changes.js";
import { EventsView } from "./views/events.js";
import { FabricView } from "./views/fabric.js";
import { GuaranteesView } from "./views/guarantees.js";
import { VlanView } from "./views/vlan.js";
import { VnView } from "./views/vn.js";

const CLOCK_MS = 500;
const SPOKEN = new Set(["guarantee-violated", "switch-down"]);
const KEYS = [["/", "filter"], ["j, k or arrows", "next, previous row"], ["Enter", "open"], ["Esc", "back"], ["g f, g g, g c, g e", "fabric, guarantees, changes, events"], ["e", "change a limit (VN)"], ["p", "pause"], ["?", "this list"]];
const GO = { f: "#/", g: "#/guarantees", c: "#/changes", e: "#/events" };

const main = document.getElementById("main");
let view = null, loading = null, steps = 0;

const warning = (...content) => h("p", { class: "warning", role: "alert" }, content);
const isId = (part) => /^\d+$/.test(part);
const bare = (hash) => hash.replace(/^#\/?/, "");

function viewOf(hash) {
  const [path, query] = bare(hash).split("?");
  const [kind, vlan, switchName, port] = path.split("/").map(decodeURIComponent);
  if (kind === "") return ["fabric", new FabricView()];
  if (kind === "vlan" && isId(vlan)) return ["fabric", new VlanView(Number(vlan))];
  if (kind === "vn" && isId(vlan) && isId(port)) return ["fabric", new VnView(Number(vlan), switchName, Number(port))];
  if (kind === "guarantees") return ["guarantees", new GuaranteesView()];
  if (kind === "changes") return ["changes", new ChangesView()];
  if (kind === "events") return ["events", new EventsView(new URLSearchParams(query ?? ""))];
  return [null, null];
}

/** The REST address of what a hash shows by names; null where it has ids. Digits are always an id. */
function pathOfNames(hash) {
  const [kind, ...parts] = bare(hash).split("/");
  const ids = parts.slice(0, { vlan: 1, vn: 3 }[kind] ?? 0);
  const byNames = ids.every(Boolean) && [ids[0], ids[2]].some((id) => id && !isId(id));
  return byNames && (kind === "vlan" || ids[2]) ? `/v1/${kind}s/${ids.join("/")}` : null;
}

async function showByNames(path) {
  loading = new AbortController();
  view = null;
  main.replaceChildren(h("p", {}, "Loading."));
  try {
    const found = await get(path, loading.signal);
    history.replaceState(null, "", found.switch ? vnHash(found.vlan_vid, found.switch, found.port_no) : `#/vlan/${found.vlan_vid}`);
  } catch (error) {
    if (error.name !== "AbortError") main.replaceChildren(warning(error.message));
    return;
  }
  show();
}

function show() {
  loading?.abort();
  view?.destroy();
  const names = pathOfNames(location.hash);
  if (names) return showByNames(names);
  let name;
  try {
    [name, view] = viewOf(location.hash);
  } catch {
    view = null;
  }
  for (const link of document.querySelectorAll("nav a")) setAttribute(link, "aria-current", link.dataset.view === name ? "page" : null);
  if (!view) return main.replaceChildren(h("p", {}, "There is no such view. ", h("a", { href: "#/" }, "Fabric")));
  document.title = `${view.title} – DETS`;
  main.replaceChildren(view.element);
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
  follow(view.query);
  load(view);
}

async function load(shown) {
  loading = new AbortController();
  try {
    await shown.load(loading.signal);
  } catch (error) {
    if (shown !== view || error.name === "AbortError") return;
    const again = button("Try again", show);
    main.prepend(warning(`${error.message} `, again));
  }
}

function paintView(what) {
  if (!view) return;
  if (what === "state") view.paint();
  else if (what === "keys") view.onKeys?.();
  else if (what === "gone") show();
  else if (what === "event") {
    const event = live.events[live.events.length - 1];
    view.onEvent?.(event);
    if (SPOKEN.has(event.kind)) say(event.text);
  }
}

// -- status bar

const bar = {
  health: h("a", { href: "#/events", class: "health" }, "connecting"),
  age: h("span"), revision: h("a", { href: "#/changes" }), who: h("span"),
  pause: button("Pause", () => setPaused(!live.paused), { "aria-pressed": "false" }),
  theme: button("Light or dark", () => changeTheme()),
  keys: button("Keys", () => showKeys()),
};

function paintBar() {
  const state = live.latest;
  const age = (performance.now() - live.at) / 1000, stale = live.isStale();
  const down = state?.disconnected_switches ?? [], violated = violatedCount();
  const faults = stale ? [live.connected ? "stale" : "no connection"] : [
    state.status !== "ready" && state.status, down.length && `${down.length} switch${down.length === 1 ? "" : "es"} down`,
    violated && `${violated} guarantee${violated === 1 ? "" : "s"} violated`, live.isLate && `${percent(live.late, 1)} of intervals missed`,
  ].filter(Boolean);
  setText(bar.health, faults.join(", ") || "ready");
  setAttribute(bar.health, "class", `health${faults.length ? " faulty" : ""}`);
  setAttribute(bar.health, "href", violated ? "#/guarantees" : "#/events");
  setAttribute(bar.health, "title", state ? [...down, `${state.skipped} of ${state.rounds + state.skipped} intervals missed since the start`].join(", ") : null);
  setText(bar.age, !Number.isFinite(age) ? "no data yet" : live.paused ? "paused" : `${stale ? "stale, " : ""}${Math.floor(age)} s old`);
  const waits = state && state.installed_revision < state.revision;
  setText(bar.revision, state ? `revision ${state.revision}${waits ? `, ${state.installed_revision} in force` : ", in force"}` : "");
  setAttribute(bar.pause, "aria-pressed", String(live.paused));
  document.body.classList.toggle("stale", stale);
}

function changeTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("dets-theme", root.dataset.theme);
  document.dispatchEvent(new Event("dets-theme"));
}

// -- keys

let go = -Infinity;  // when g was pressed

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (isTyping(event.target)) event.target.blur();
    else if (steps > 0) history.back();
    else location.hash = "#/";
    return;
  }
  if (isTyping(event.target)) return;
  const went = performance.now() - go < 1000;
  go = -Infinity;
  if (went && GO[event.key]) location.hash = GO[event.key];
  else if (event.key === "g") go = performance.now();
  else if (event.key === "/") main.querySelector("input[type=search]")?.focus();
  else if (event.key === "p") setPaused(!live.paused);
  else if (event.key === "?") showKeys();
  else if ("jk".includes(event.key)) (view?.table ?? view?.vlans ?? view?.portTable)?.move(event.key === "j" ? 1 : -1);
  else if (!view?.onKey?.(event.key)) return;
  event.preventDefault();
}

function showKeys() {
  const dialog = openDialog("Keys", {}, h("dl", {}, KEYS.flatMap(([key, what]) => [h("dt", {}, key), h("dd", {}, what)])), button("Close", () => dialog.close()));
}

// -- login

function askForToken(detail) {
  return new Promise((done) => {
    const field = h("input", { type: "password", id: "token", autocomplete: "off", required: true, size: 50 });
    const keep = h("input", { type: "checkbox", id: "keep" });
    const form = h("form", { method: "dialog", onsubmit: (event) => {
      event.preventDefault();
      setToken(field.value.trim(), keep.checked);
      dialog.close();
      done();
      greet().catch(() => {});
    } }, h("p", {}, h("label", { for: "token" }, "Token (dets token create)"), field), h("p", {}, keep, h("label", { for: "keep" }, " Keep it until this tab is closed")), h("button", { type: "submit", class: "primary" }, "Log in"));
    const dialog = openDialog("Log in", { oncancel: (event) => event.preventDefault() }, h("p", { role: "alert" }, detail), form);
    field.focus();
  });
}

async function greet() {
  live.session = await get("/v1/session");
  setText(bar.who, `${live.session.who}, ${live.session.scope === "write" ? "may change" : "may read"}`);
  view?.onKeys?.();
}

// -- beginning

const theme = localStorage.getItem("dets-theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
document.getElementById("status").append(bar.health, bar.age, bar.revision, bar.who, bar.pause, bar.theme, bar.keys);
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
whenLoginIsNeeded(askForToken);
subscribe((what) => {
  paintView(what);
  if (what !== "event") paintBar();
});
setInterval(paintBar, CLOCK_MS);
addEventListener("hashchange", () => { steps += 1; show(); });
addEventListener("keydown", onKey);
main.addEventListener("click", ({ target }) => {
  if (!target.closest("a, button, input") && !String(getSelection())) target.closest("tr")?.querySelector("a")?.click();
});
paintBar();
greet().catch((error) => main.prepend(warning(error.message))).finally(show);
