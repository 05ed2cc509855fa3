// A topic's records: the newest first, or the latest of each key; searched, followed, downloaded.

import { get } from "./api.js";
import { h, fill, table } from "./dom.js";
import { count, moment, size, things, whole } from "./format.js";

const LIMIT = 50;
const KEPT_MAX = 2000;
// A filter looks at some thousand records in a request; so many requests follow each other.
const ROUNDS_MAX = 100;
const FILTER_HELP = `An expression in CEL of key, value, headers, partition, offset and timestamp, such as
value.price > 10 && key.startsWith("p")
has(value.customer) && value.customer.city in ["Prague", "Brno"]
headers.origin != "test" && timestamp > timestamp("2026-11-28T00:00:00Z")`;
const SCHEMAS = { AVRO: "Avro", PROTOBUF: "Protobuf", JSON: "JSON Schema" };
const FORMS = [["", "as text"], ["json", "as JSON"], ["hex", "as bytes"]];

export async function records(topic, isLatest) {
  const search = h("input", {
    type: "search", placeholder: isLatest ? "Search keys" : "Search keys and values",
    "aria-label": isLatest ? "Search keys" : "Search keys and values" });
  const isKey = h("input", { type: "checkbox", onchange: () => start() });
  const filter = h("input", {
    placeholder: "Filter: value.price > 10", "aria-label": "Filter by an expression", title: FILTER_HELP, size: 30, spellcheck: false });
  const partition = h("select", { "aria-label": "Partition" }, h("option", { value: "" }, "all partitions"),
    Array.from({ length: topic.partitions }, (_, number) => h("option", { value: number }, `partition ${number}`)));
  const from = h("input", { placeholder: "From the end", "aria-label": "From an offset or a time, backwards", title: "An offset (42), or a time (2026-11-22 10:00), from which to go backwards" });
  const form = h("select", { "aria-label": "Show values", onchange: () => list.show(shown.map((one) => ({ ...one })), keyOf, line) }, FORMS.map(([value, text]) => h("option", { value }, text)));
  const follow = h("input", { type: "checkbox", onchange: () => follow.checked && start() });
  const controls = h("form", { class: "controls", onsubmit: (event) => { event.preventDefault(); start(); } },
    search, isLatest ? null : h("label", {}, isKey, " exactly this key"), partition, isLatest ? null : from, isLatest ? null : filter, form,
    h("button", { class: "primary" }, "Show"), isLatest ? null : h("label", {}, follow, " follow"),
    h("button", { type: "button", onclick: () => download(topic.name, shown) }, "Download"));
  partition.addEventListener("change", () => start());
  const list = table(
    isLatest ? "The latest record of each key, the newest first" : "Records, the newest first",
    [["Key"], ["Value", "wide"], ["Partition", "number optional"], ["Offset", "number"], ["Time", "optional"]],
    "No record matches.");
  const status = h("p", { class: "quiet", role: "status" });
  const older = h("button", { type: "button", onclick: () => more() }, "Older records");
  let shown = [], before = "", turn = 0;

  const keyOf = (one) => `${form.value}:${one.partition}:${one.offset}`;
  const line = (one) => lineOf(one, form.value);

  function query() {
    const wanted = search.value.trim();
    const by = !isLatest && isKey.checked && wanted ? { key: wanted } : { search: wanted };
    const expression = isLatest ? {} : { filter: filter.value.trim() };
    return { topic: topic.name, partition: partition.value, limit: LIMIT, ...by, ...expression };
  }

  async function ask(more, isMore = false) {
    const mine = ++turn;
    const found = await get(isLatest ? "/api/latest" : "/api/records", { ...query(), ...more });
    if (mine !== turn) return;
    shown = isMore ? [...shown, ...found.records] : found.records;
    before = found.before;
    list.show(shown, keyOf, line);
    await goOnFiltering(mine, found);
    if (mine !== turn) return;
    const parts = [`${whole(shown.length)} shown, ${size(found.read_bytes)} read.`];
    const failed = found.filter?.failed;
    if (failed) parts.push(`The filter failed for ${things(failed, "record")}, first for ${found.filter.because}.`);
    if (isLatest && before) parts.push("Keys written earlier are not shown: search for them.");
    parts.push(...found.problems.map((one) => `Partition ${one.partition}: ${one.because}`));
    fill(status, parts.join(" "));
    older.hidden = isLatest || !before;
  }

  /** Ask for older records until a filter has found enough; add the sums to the first answer. */
  async function goOnFiltering(mine, first) {
    const enough = shown.length - first.records.length + LIMIT;
    for (let round = 1; first.filter && before && shown.length < enough && round < ROUNDS_MAX; round++) {
      fill(status, `${whole(shown.length)} found in ${whole(first.read_records)} records so far.`);
      const found = await get("/api/records", { ...query(), before });
      if (mine !== turn) return;
      shown = [...shown, ...found.records];
      before = found.before;
      first.read_records += found.read_records;
      first.read_bytes += found.read_bytes;
      first.filter = { failed: first.filter.failed + found.filter.failed, because: first.filter.because ?? found.filter.because };
      list.show(shown, keyOf, line);
    }
  }

  /** Return the place of the first page: the end, or below an offset or a time. */
  async function beginning() {
    const text = from.value.trim();
    if (isLatest || !text) return {};
    if (/^\d{1,18}$/.test(text)) {
      const numbers = partition.value === "" ? Array.from({ length: topic.partitions }, (_, number) => number) : [partition.value];
      return { before: numbers.map((one) => `${one}:${BigInt(text) + 1n}`).join(",") };
    }
    const at = Date.parse(text);
    if (Number.isNaN(at)) throw new Error(`“${text}” is neither an offset nor a time`);
    const { offsets } = await get("/api/offsets", { topic: topic.name, at_ms: at + 1 });
    const places = offsets.filter((one) => partition.value === "" || one.partition === Number(partition.value));
    return { before: places.map((one) => `${one.partition}:${one.at ?? one.end}`).join(",") };
  }

  /** Put records that have come since above those that are shown. */
  async function goOn() {
    if (!follow.checked || from.value.trim()) return;
    const mine = turn;
    const found = await get("/api/records", query());
    if (mine !== turn) return;
    const known = new Set(shown.map(keyOf));
    const fresh = found.records.filter((one) => !known.has(keyOf(one)));
    if (!fresh.length) return;
    shown = [...fresh, ...shown].slice(0, KEPT_MAX);
    list.show(shown, keyOf, line);
    fill(status, `${whole(shown.length)} shown, following.`);
  }

  async function attempt(work) {
    try {
      await work();
    } catch (error) {
      fill(status, error.message);
    }
  }

  const start = () => attempt(async () => ask(await beginning()));
  const more = () => attempt(() => ask({ before }, true));

  await start();
  return {
    elements: [h("section", { class: "card" }, controls, list.element, h("div", { class: "bar-row" }, older, status))],
    tick: () => attempt(goOn),
  };
}

function lineOf(record, form) {
  const isTombstone = record.value === null;
  const cells = [
    h("td", {}, h("span", { class: "record-key" }, (form === "hex" ? text(record.key) : shownKey(record.key)) ?? h("span", { class: "quiet" }, "no key"))),
    h("td", { class: "wide" }, isTombstone ? h("span", { class: "tag" }, "tombstone: deleted") : value(record, form)),
    h("td", { class: "number optional" }, String(record.partition)),
    h("td", { class: "number" }, whole(record.offset)),
    h("td", { class: "optional" }, moment(record.timestamp_ms)),
  ];
  return { element: h("tr", { class: isTombstone ? "tombstone" : null }, cells), update() {} };
}

/** Return the data of a key by its schema as JSON, else the key itself. */
function shownKey(key) {
  return key?.schema?.data === undefined ? text(key) : JSON.stringify(key.schema.data);
}

function value(record, form) {
  const schema = form === "hex" ? null : record.value.schema;
  const whole = form === "hex" || schema?.problem ? bytes(record.value) : schema ? JSON.stringify(schema.data) : text(record.value);
  const headers = record.headers.map(
    (one) => `${one.key}${one.key_is_cut ? "…" : ""}: ${text(one.value) ?? "null"}${one.value?.is_cut ? "…" : ""}`);
  if (record.headers_left_out) headers.push(`${count(record.headers_left_out)} more`);
  const isObject = form !== "hex" && isJson(whole);
  if (form === "json" && isObject) return h("pre", { class: "record-value whole" }, JSON.stringify(JSON.parse(whole), null, 2));
  const mark = schema?.problem ? h("span", { class: "tag bad" }, "schema") : null;
  const short = h("pre", { class: "record-value" }, mark, mark && " ", whole || "(empty)");
  if (whole.length < 90 && !schema?.problem && !headers.length && !whole.includes("\n") && !isObject) return short;
  return h("details", {}, h("summary", { "aria-label": "Value, shown whole when opened" }, short),
    isObject ? h("pre", { class: "record-value whole" }, JSON.stringify(JSON.parse(whole), null, 2)) : null,
    headers.length ? h("p", { class: "quiet" }, `Headers: ${headers.join(", ")}`) : null,
    schema ? h("p", { class: "quiet" }, schema.problem ? `Not by schema ${schema.id}: ${schema.problem}.` : `By schema ${schema.id}, ${SCHEMAS[schema.kind]}.`) : null,
    record.value.is_cut && !schema?.data ? h("p", { class: "quiet" }, `The first ${size(new Blob([text(record.value)]).size)} of ${size(record.value.size_bytes)}.`) : null);
}

function isJson(data) {
  try {
    return typeof JSON.parse(data) === "object";
  } catch {
    return false;
  }
}

/** Return text unchanged, and other bytes in hexadecimal digits. */
function text(data) {
  if (data === null) return null;
  return data.text ?? `0x${data.hex}`;
}

/** Return the hexadecimal digits of all bytes, in pairs. */
function bytes(data) {
  const digits = data.hex ?? Array.from(new TextEncoder().encode(data.text), (one) => one.toString(16).padStart(2, "0")).join("");
  return digits.replace(/(..)(?!$)/g, "$1 ");
}

/** Let the browser keep the shown records, as lines of JSON. */
function download(topic, shown) {
  const lines = shown.map((one) => JSON.stringify({ topic, ...one })).join("\n");
  const link = h("a", { href: URL.createObjectURL(new Blob([`${lines}\n`], { type: "application/jsonl" })), download: `${topic}.jsonl` });
  link.click();
  URL.revokeObjectURL(link.href);
}
