// Changing a limit: a dry run, a question, the change, and for ten seconds a way back.

import { get, send, vnPath } from "./api.js";
import { button, h, openDialog, say } from "./dom.js";
import { exactRate, parseRate, place, rate } from "./format.js";
import { live } from "./live_state.js";

const UNDO_MS = 10000;
const FIELDS = [["send_limit_bps", "Send limit"], ["receive_limit_bps", "Receive limit"]];

export class LimitsForm {
  /** `onChange` is called when a limit was changed or taken back. */
  constructor(vid, switchName, portNo, onChange) {
    this.path = vnPath(vid, switchName, portNo);
    this.place = { vid, switchName, portNo };
    this.onChange = onChange;
    this.inputs = FIELDS.map(([field, label]) => {
      const input = h("input", { id: `limit-${field}`, autocomplete: "off", spellcheck: "false", size: 10, "aria-describedby": "limit-answer", oninput: () => this.show(input) });
      const shown = h("span", { class: "exact", id: `exact-${field}` });
      return { field, label, input, shown };
    });
    this.answer = h("div", { class: "answer", id: "limit-answer", role: "status" });
    this.after = h("div", { class: "after" });
    this.form = h("form", { class: "limits", onsubmit: (event) => { event.preventDefault(); this.ask(); } },
      this.inputs.map(({ field, label, input, shown }) => h("p", {}, h("label", { for: `limit-${field}` }, label), " ", input, " ", shown)),
      h("p", {}, h("button", { type: "submit" }, "Check"), h("span", { class: "hint" }, " Enter checks; nothing changes before you confirm.")));
    this.element = h("section", { class: "change", "aria-labelledby": "change-title", hidden: true },
      h("h3", { id: "change-title" }, "Limits"), this.form, this.answer, this.after);
  }

  /** What is shown; a field that somebody types in is left alone. */
  set(vn, etag) {
    this.vn = vn;
    this.etag = etag;
    this.name = `VLAN ${vn.vlan_vid} at ${place(vn)}`;
    this.element.hidden = live.session?.scope !== "write";
    for (const { field, input, shown } of this.inputs) {
      if (!this.asked) input.value = exactRate(vn[field]);
      shown.textContent = `now ${vn[field].toLocaleString()} bit/s${vn.overridden.includes(field) ? ", set at run time" : ""}`;
    }
  }

  focus() {
    this.inputs[1].input.focus();
    this.inputs[1].input.select();
  }

  show(input) {
    this.asked = true;
    const { shown } = this.inputs.find((one) => one.input === input);
    try {
      shown.textContent = `${parseRate(input.value).toLocaleString()} bit/s`;
      input.setAttribute("aria-invalid", "false");
    } catch (error) {
      shown.textContent = error.message;
      input.setAttribute("aria-invalid", "true");
    }
  }

  wanted() {
    const given = {};
    for (const { field, input } of this.inputs) {
      const bps = parseRate(input.value);
      if (bps !== this.vn[field]) given[field] = bps;
    }
    return given;
  }

  async ask() {
    let given;
    try {
      given = this.wanted();
    } catch (error) {
      return this.tell(error.message, true);
    }
    if (!Object.keys(given).length) return this.tell("That is what it has.");
    try {
      const checked = await send("PATCH", `${this.path}?dry_run=true`, { body: given, ifMatch: this.etag });
      await checked.json();
      const port = await get(`/v1/ports/${encodeURIComponent(this.place.switchName)}/${this.place.portNo}`);
      this.confirm(given, port);
    } catch (error) {
      this.refused(error);
    }
  }

  lines(given, port) {
    return Object.entries(given).map(([field, bps]) => {
      const before = this.vn[field], sum = port[field.replace("_bps", "s_bps")] - before + bps;
      const label = FIELDS.find((one) => one[0] === field)[1].toLowerCase();
      return `${label}: ${exactRate(before)} → ${exactRate(bps)}; all of port ${place(port)} ${rate(sum)} of ${rate(port.admissible_bps)}`;
    });
  }

  confirm(given, port) {
    const lines = this.lines(given, port);
    this.tell(`It fits. ${lines.join("; ")}`);
    const cancel = button("Cancel", () => dialog.close());
    const yes = button("Change it", () => { dialog.close(); this.make(given); }, { class: "primary" });
    const dialog = openDialog(`Change ${this.name}?`, {}, h("ul", {}, lines.map((line) => h("li", {}, line))), h("p", { class: "buttons" }, cancel, yes));
    cancel.focus();
  }

  async make(given) {
    try {
      const answer = await send("PATCH", this.path, { body: given, ifMatch: this.etag });
      const vn = await answer.json();
      this.asked = false;
      this.set(vn, answer.headers.get("ETag"));
      this.kept(vn.revision, "kept");
      this.offerUndo(vn.revision);
      this.onChange();
    } catch (error) {
      this.refused(error);
    }
  }

  kept(revision, word) {
    this.tell(`${word} (revision ${revision})`);
    this.waitsFor = { revision, word };
    this.paint();
  }

  /** Says when the last change is in force; called with each state. */
  paint() {
    if (!this.waitsFor || !live.state || live.state.installed_revision < this.waitsFor.revision) return;
    this.tell(`in force (revision ${this.waitsFor.revision})`);
    say(`${this.name}: in force`);
    this.waitsFor = null;
  }

  offerUndo(revision) {
    clearTimeout(this.undoTimer);
    const undo = button("Undo", () => this.undo(revision));
    this.after.replaceChildren(undo, h("span", { class: "hint" }, " for ten seconds"));
    this.undoTimer = setTimeout(() => this.after.replaceChildren(), UNDO_MS);
  }

  async undo(revision) {
    clearTimeout(this.undoTimer);
    this.after.replaceChildren();
    try {
      await send("POST", `/v1/history/${revision}/undo`, { ifMatch: "*" });
      const answer = await send("GET", this.path);
      const vn = await answer.json();
      this.set(vn, answer.headers.get("ETag"));
      this.kept(vn.revision, "taken back");
      this.onChange();
    } catch (error) {
      this.refused(error);
    }
  }

  async refused(error) {
    if (error.status !== 412) return this.tell(error.message, true);
    const { vid, switchName, portNo } = this.place;
    const history = await get(`/v1/history?limit=50&vlan=${vid}&switch=${encodeURIComponent(switchName)}&port=${portNo}`).catch(() => ({ changes: [] }));
    const [last] = history.changes;
    this.tell(`It was changed meanwhile${last ? `, by ${last.who} (revision ${last.revision})` : ""}. What is shown now is new: look again.`, true);
    this.asked = false;
    this.onChange();
  }

  tell(text, isRefusal = false) {
    this.answer.textContent = text;
    this.answer.classList.toggle("refusal", isRefusal);
  }

  destroy() {
    clearTimeout(this.undoTimer);
  }
}
