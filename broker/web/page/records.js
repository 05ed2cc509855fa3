// A topic's records: the newest first, or the latest of each key, searched by key or value.

import { get } from "./api.js";
import { h, fill, table } from "./dom.js";
import { count, moment, size, whole } from "./format.js";

const LIMIT = 50;

export async function records(topic, isLatest) {
  const search = h("input", {
    type: "search", placeholder: isLatest ? "Search keys" : "Search keys and values",
    "aria-label": isLatest ? "Search keys" : "Search keys and values" });
  const partition = h("select", { "aria-label": "Partition" }, h("option", { value: "" }, "all partitions"),
    Array.from({ length: topic.partitions }, (_, number) => h("option", { value: number }, `partition ${number}`)));
  const form = h("form", { class: "controls", onsubmit: (event) => { event.preventDefault(); start(); } },
    search, partition, h("button", { class: "primary" }, "Show"));
  partition.addEventListener("change", () => start());
  const list = table(
    isLatest ? "The latest record of each key, the newest first" : "Records, the newest first",
    [["Key"], ["Value", "wide"], ["Partition", "number optional"], ["Offset", "number"], ["Time", "optional"]],
    "No record matches.");
  const status = h("p", { class: "quiet", role: "status" });
  const older = h("button", { type: "button", onclick: () => more() }, "Older records");
  let shown = [], before = "";

  async function ask(query) {
    const found = await get(isLatest ? "/api/latest" : "/api/records", {
      topic: topic.name, partition: partition.value, search: search.value, limit: LIMIT, ...query });
    shown = [...shown, ...found.records];
    before = found.before;
    list.show(shown, (one) => `${one.partition}:${one.offset}`, (one) => line(one));
    const parts = [`${whole(shown.length)} shown, ${size(found.read_bytes)} read.`];
    if (isLatest && before) parts.push("Keys written earlier are not shown: search for them.");
    parts.push(...found.problems.map((one) => `Partition ${one.partition}: ${one.because}`));
    fill(status, parts.join(" "));
    older.hidden = isLatest || !before;
  }

  async function attempt(work) {
    try {
      await work();
    } catch (error) {
      fill(status, error.message);
    }
  }

  const start = () => attempt(() => { shown = []; return ask({}); });
  const more = () => attempt(() => ask({ before }));

  await start();
  return { elements: [h("section", { class: "card" }, form, list.element, h("div", { class: "bar-row" }, older, status))] };
}

function line(record) {
  const isTombstone = record.value === null;
  const cells = [
    h("td", {}, h("span", { class: "record-key" }, text(record.key) ?? h("span", { class: "quiet" }, "no key"))),
    h("td", { class: "wide" }, isTombstone ? h("span", { class: "tag" }, "tombstone: deleted") : value(record)),
    h("td", { class: "number optional" }, String(record.partition)),
    h("td", { class: "number" }, whole(record.offset)),
    h("td", { class: "optional" }, moment(record.timestamp_ms)),
  ];
  return { element: h("tr", { class: isTombstone ? "tombstone" : null }, cells), update() {} };
}

function value(record) {
  const whole = text(record.value);
  const headers = record.headers.map(
    (one) => `${one.key}${one.key_is_cut ? "…" : ""}: ${text(one.value) ?? "null"}${one.value?.is_cut ? "…" : ""}`);
  if (record.headers_left_out) headers.push(`${count(record.headers_left_out)} more`);
  const short = h("pre", { class: "record-value" }, whole || "(empty)");
  if (whole.length < 90 && !headers.length && !whole.includes("\n") && !isJson(whole)) return short;
  return h("details", {}, h("summary", { "aria-label": "Value, shown whole when opened" }, short),
    isJson(whole) ? h("pre", { class: "record-value whole" }, JSON.stringify(JSON.parse(whole), null, 2)) : null,
    headers.length ? h("p", { class: "quiet" }, `Headers: ${headers.join(", ")}`) : null,
    record.value.is_cut ? h("p", { class: "quiet" }, `The first ${size(new Blob([whole]).size)} of ${size(record.value.size_bytes)}.`) : null);
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
