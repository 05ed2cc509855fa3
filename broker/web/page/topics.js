// All topics, and one topic: partitions as bars, records, latest values.

import { get } from "./api.js";
import { h, row, table } from "./dom.js";
import { distance, size, things, whole } from "./format.js";
import { action, bytesBar, bytesKey, ratio, topicLink, total } from "./parts.js";
import { records } from "./records.js";
import { settings } from "./settings.js";
import { createButton, topicButtons } from "./topic_actions.js";
import { producers } from "./transactions.js";

const REFRESH_MS = 2000;

/** Call a function at most every two seconds; ignore errors, since the next call may succeed. */
function throttled(refresh) {
  let last = 0;
  return async () => {
    if (Date.now() - last < REFRESH_MS) return;
    last = Date.now();
    await refresh().catch(() => {});
  };
}

function state(one, nowMs) {
  if (one.quarantined) return h("span", { class: "tag bad" }, "quarantined");
  if (one.running) return h("span", { class: "tag now" }, "being cleaned");
  if (one.offline_partitions) return h("span", { class: "tag bad" }, `${one.offline_partitions} offline`);
  if (one.due_ms === null) return h("span", { class: "quiet" }, "–");
  return one.due_ms <= nowMs ? h("span", { class: "tag now" }, "due now") : distance(one.due_ms, nowMs);
}

export async function topics() {
  const search = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter topics by name", oninput: () => draw() });
  const internal = h("input", { type: "checkbox", onchange: () => draw() });
  const list = table(
    "Topics, and how clean their bytes are",
    [["Topic"], ["Policy", "optional"], ["Partitions", "number optional"], ["Size", "number"], ["Bytes", "wide"], ["Dirtiest partition"], ["Next cleaning"]],
    "There is no topic yet: odradek topics create prices --compact");
  let latest = { topics: [], now_ms: Date.now() }, most = 1;

  function draw() {
    const shown = latest.topics.filter((one) =>
      one.name.includes(search.value.trim()) && (internal.checked || !one.is_internal));
    most = Math.max(...shown.map((one) => total(one.bytes)), 1);
    list.show(shown, (one) => one.name, () => row((one) => [
      ["wrap", topicLink(one.name)], ["optional", one.cleanup_policy || "none"], ["number optional", whole(one.partitions)],
      ["number", size(total(one.bytes))], ["wide", bytesBar(one.bytes, most)],
      ["tight", ratio(one.dirty_ratio, one.min_cleanable_dirty_ratio)], ["tight", state(one, latest.now_ms)],
    ]));
  }

  async function refresh() {
    latest = await get("/api/topics");
    draw();
  }

  await refresh();
  return {
    elements: [
      h("div", { class: "head" }, h("h1", {}, "Topics"), createButton()),
      h("section", { class: "card" },
        h("div", { class: "controls" }, search, h("label", {}, internal, " internal topics")),
        list.element, bytesKey()),
    ],
    refresh,
    tick: throttled(refresh),
  };
}

const TABS = [["", "Partitions"], ["records", "Records"], ["latest", "Latest by key"], ["settings", "Settings"], ["producers", "Producers"]];

export async function topic(name, tab = "") {
  const first = await get("/api/topic", { topic: name });
  const where = `#/topic/${encodeURIComponent(name)}`;
  const tabs = h("nav", { class: "tabs", "aria-label": "Parts of the topic" }, TABS.map(([part, text]) =>
    h("a", { href: part ? `${where}/${part}` : where, "aria-current": part === tab ? "page" : null }, text)));
  const own = Object.entries(first.configs).map(([key, value]) => `${key}=${value}`).join("  ");
  const head = [
    h("div", { class: "head" }, h("h1", {}, name),
      h("span", { class: "sub" }, `${things(first.partitions, "partition")}, ${size(total(first.bytes))}, ${things(first.offsets, "offset")}`)),
    own ? h("p", { class: "quiet mono" }, own) : null, topicButtons(first), tabs,
  ].filter(Boolean);
  if (tab === "records" || tab === "latest") {
    const shown = await records(first, tab === "latest");
    return { ...shown, elements: [...head, ...shown.elements] };
  }
  if (tab === "settings" || tab === "producers") {
    const shown = await (tab === "settings" ? settings : producers)(name);
    return { ...shown, elements: [...head, ...shown.elements] };
  }
  const shown = partitions(first);
  return { ...shown, elements: [...head, ...shown.elements] };
}

const LEVELS = "In the object store: L0 is the WAL's part that is in no segment yet, L1 are segments with dirty records, L2 clean ones.";

/** Show where the records of a shared partition are, below its bar. */
function levels({ wal, dirty, clean }) {
  const stored = (name, { bytes, objects, segments }) => h("span", { title: things(segments, "segment") },
    `, ${name} ${size(bytes)} in ${things(objects, "object")}`);
  return h("div", { class: "quiet optional" }, `L0 ${size(wal.bytes)}`, stored("L1", dirty), stored("L2", clean));
}

function partitions(first) {
  const isCompacted = first.cleanup_policy.includes("compact");
  const list = table(
    `Partitions of ${first.name}`,
    [["Partition"], ["Offsets", "optional"], ["Segments", "number optional"], ["Size", "number"], ["Bytes", "wide"], ["Dirty"], ["Next cleaning"], ["Action"]],
    "All partitions are offline.");

  const note = h("p", { class: "quiet optional" }, LEVELS);
  let latest = first, most = 1;

  function draw() {
    note.hidden = !latest.partition_rows.some((one) => one.levels);
    most = Math.max(...latest.partition_rows.map((one) => total(one.bytes)), 1);
    list.show(latest.partition_rows, (one) => one.partition, (item) => {
      const clean = isCompacted ? action(
        "Clean now", "/api/cleaner/run", () => ({ topic: latest.name, partition: item.partition, wait: "false" }),
        () => `Asked the cleaner for ${latest.name} ${item.partition}.`) : "";
      if (clean) clean.setAttribute("aria-label", `Clean partition ${item.partition} now`);
      return row((one) => [
        String(one.partition), ["optional tight", `${whole(one.log_start_offset)} – ${whole(one.log_end_offset)}`],
        ["number optional", whole(one.segments)], ["number", size(total(one.bytes))],
        ["wide", one.levels ? h("div", {}, bytesBar(one.bytes, most), levels(one.levels)) : bytesBar(one.bytes, most)],
        ["tight", ratio(one.dirty_ratio, latest.min_cleanable_dirty_ratio)],
        ["sentence", one.is_running ? h("span", { class: "tag now" }, "being cleaned")
          : one.quarantined ? h("span", {}, h("span", { class: "tag bad" }, "quarantined"), ` ${one.quarantined}`)
          : one.sentence ?? "none: it is not compacted"], clean,
      ]);
    });
  }

  async function refresh() {
    latest = await get("/api/topic", { topic: first.name });
    draw();
  }

  draw();
  return {
    elements: [h("section", { class: "card" }, list.element, bytesKey(), note)],
    refresh,
    tick: throttled(refresh),
  };
}
