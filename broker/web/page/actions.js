// Actions: a form asks for the values, the broker describes the effects, and a person confirms them.

import { send, token } from "./api.js";
import { h } from "./dom.js";
import { askToken, toast } from "./shell.js";

let made = 0;

/** Show a dialog until it is closed. `build` gets a function that closes it, and returns its parts. */
function dialog(title, build) {
  const id = `dialog-${++made}`;
  const shown = h("dialog", { "aria-labelledby": id, class: "action" });
  const closed = new Promise((resolve) => shown.addEventListener("close", () => {
    shown.remove();
    resolve();
  }));
  shown.append(h("h2", { id }, title), ...build(() => shown.close()));
  document.body.append(shown);
  shown.showModal();
  return closed;
}

const INPUTS = {
  area: (field) => h("textarea", { rows: field.rows ?? 4, spellcheck: "false" }, field.value ?? ""),
  choice: (field) => h("select", {}, field.options.map(([value, text]) =>
    h("option", { value, selected: value === field.value }, text))),
  check: (field) => h("input", { type: "checkbox", checked: Boolean(field.value) }),
  password: () => h("input", { type: "password", autocomplete: "new-password" }),
  number: (field) => h("input", { type: "number", min: 0, value: field.value }),
};

/** Make the input of a field {name, label, kind, value, options, hint, required, list}; with `read`. */
function input(field) {
  const control = (INPUTS[field.kind] ?? (() => h("input", { value: field.value, autocomplete: "off", spellcheck: "false" })))(field);
  control.name = field.name;
  if (field.required) control.required = true;
  if (field.list) control.setAttribute("list", `list-${field.name}`);
  const parts = [
    field.kind === "check" ? h("label", { class: "check" }, control, ` ${field.label}`) : h("label", {}, field.label, control),
    field.list ? h("datalist", { id: `list-${field.name}` }, field.list.map((one) => h("option", { value: one }))) : null,
    field.hint ? h("p", { class: "quiet hint" }, field.hint) : null,
  ];
  const read = () => field.kind === "check" ? control.checked : control.value;
  return { field, read, element: h("div", { class: "field" }, parts) };
}

/**
 * Ask for the fields of an action, then do it as `act` says: `bodyOf` makes the request's body of
 * the values by name, and may throw an Error for values that cannot be read. Errors stand in the
 * form, which keeps the values. Resolves to whether it was done.
 */
export async function fillIn(title, fields, path, bodyOf, options = {}) {
  if (!token() && !(await askToken())) return false;
  let isDone = false;
  await dialog(title, (close) => {
    const inputs = fields.map(input);
    const trouble = h("p", { class: "trouble", role: "alert" });
    const submit = h("button", { class: "primary" }, options.verb ?? "Go on");
    const form = h("form", { onsubmit: async (event) => {
      event.preventDefault();
      trouble.textContent = "";
      submit.disabled = true;
      try {
        const body = bodyOf(Object.fromEntries(inputs.map((one) => [one.field.name, one.read()])));
        isDone = await act(path, body, options);
        if (isDone) close();
      } catch (error) {
        trouble.textContent = error.message;
        if (error.status === 401) await askToken();
      } finally {
        submit.disabled = false;
      }
    } },
      options.intro ? h("p", {}, options.intro) : null, inputs.map((one) => one.element), trouble,
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: close }, "Cancel"), submit));
    return [form];
  });
  return isDone;
}

/** Do an action without a form; errors are shown. Resolves to whether it was done. */
export async function confirmed(path, body, options = {}) {
  if (!token() && !(await askToken())) return false;
  try {
    return await act(path, body, options);
  } catch (error) {
    toast(error.message);
    if (error.status === 401) askToken();
    return false;
  }
}

/** Ask the broker for the effects of an action, ask the person, and do it; with {isDangerous, name, done}. */
async function act(path, body, options) {
  const plan = await send(path, { ...body, dry_run: true });
  let answered = null, failure = null;
  await dialog("This will be done", (close) => {
    const trouble = h("p", { class: "trouble", role: "alert" });
    const typed = options.name ? h("input", { autocomplete: "off", spellcheck: "false" }) : null;
    const go = h("button", { type: "submit", class: options.isDangerous ? "danger" : "primary", disabled: Boolean(typed) }, options.confirm ?? "Do it");
    typed?.addEventListener("input", () => (go.disabled = typed.value !== options.name));
    const form = h("form", { onsubmit: async (event) => {
      event.preventDefault();
      if (typed && typed.value !== options.name) return;
      go.disabled = true;
      try {
        answered = await send(path, body);
        close();
      } catch (error) {
        failure = error;
        trouble.textContent = error.message;
        go.disabled = false;
      }
    } },
      h("ul", { class: "plan" }, plan.will.map((one) => h("li", {}, one))), preview(plan.rows),
      plan.warnings.map((one) => h("p", { class: "warning" }, one)),
      typed ? h("label", {}, `Type ${options.name} to confirm`, typed) : null, trouble,
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: close }, "Cancel"), go));
    return [form];
  });
  if (!answered && failure?.status === 401) throw failure;
  if (!answered) return false;
  toast(answered.done.join(" "));
  options.done?.();
  return true;
}

const TITLES = { topic: "Topic", partition: "Partition", before: "Now", after: "Then", start_offset: "Starts at", start_then: "Then at" };
const SHOWN_MAX = 200;

function preview(rows) {
  if (!rows.length) return null;
  const names = Object.keys(rows[0]);
  const left = rows.length - SHOWN_MAX;
  return h("div", { class: "scroll preview", tabindex: 0, role: "region", "aria-label": "Changes" },
    h("table", {}, h("thead", {}, h("tr", {}, names.map((one) => h("th", { scope: "col" }, TITLES[one] ?? one)))),
      h("tbody", {}, rows.slice(0, SHOWN_MAX).map((row) => h("tr", {}, names.map((one) => h("td", {}, String(row[one] ?? "–"))))))),
    left > 0 ? h("p", { class: "quiet" }, `and ${left} more`) : null);
}

/** Make a button that begins an action. */
export function button(text, begin, attributes = {}) {
  const shown = h("button", { type: "button", class: "small", ...attributes, onclick: () => begin() }, text);
  shown.isKept = true;
  return shown;
}

/** Put buttons beside each other, for a cell of a table. */
export function buttons(...shown) {
  const row = h("span", { class: "bar-row" }, shown);
  row.isKept = true;
  return row;
}

/** Make the present view again. */
export function showAgain() {
  dispatchEvent(new Event("hashchange"));
}

/** Read lines of `name=value`; throws an Error for a line that is none. */
export function settingsOf(text) {
  const found = {};
  for (const line of text.split("\n").map((one) => one.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`“${line}” is not of the form name=value`);
    found[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return found;
}
