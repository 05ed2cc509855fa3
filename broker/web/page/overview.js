// The broker at a glance.

import { get } from "./api.js";
import { fill, h, table, row } from "./dom.js";
import { count, distance, duration, milliseconds, size } from "./format.js";
import { every, partitionLink, runCells, runColumns, runningCard } from "./parts.js";
import { objectStore } from "./objects.js";
import { lines } from "./plot.js";

const KEPT = 900;
const SPAN_MIN_MS = 60_000;
const RUNS = 5, NEXT = 4;

export async function overview() {
  const broker = await get("/api/broker");
  const samples = { times: [], columns: {} };
  const tiles = h("dl", { class: "tiles" });
  const throughput = lines("Throughput, bytes a second", [
    { text: "in", column: "bytes_in" }, { text: "out", column: "bytes_out" }], size);
  const latency = lines("Request latency, p99", [
    { text: "produce", column: "produce_p99_ms" }, { text: "all but waiting requests", column: "request_p99_ms" }], milliseconds);
  const cleaning = lines("Cleaner, bytes a second", [
    { text: "read", column: "cleaner_bytes_read" }, { text: "written", column: "cleaner_bytes_written" }], size);
  const now = h("div", { class: "now" });
  const next = h("ul", { class: "plain", "aria-label": "Next cleanings" });
  const runs = table("The last runs of the cleaner", runColumns(broker.has_object_store), "The cleaner has not run yet.");

  function showTiles(state) {
    const last = (name) => samples.columns[name]?.at(-1) ?? 0;
    const figures = [
      ["Records in", `${count(last("records_in"))} /s`], ["In", `${size(last("bytes_in"))}/s`],
      ["Out", `${size(last("bytes_out"))}/s`], ["Requests", `${count(last("requests"))} /s`],
      ["Topics", count(state.topics)], ["Partitions", count(state.partitions)],
      ["Connections", count(state.connections)], ["Up", duration(state.now_ms - broker.started_ms)],
    ];
    fill(tiles, ...figures.map(([name, value]) => h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, value))));
  }

  function showRunning(state) {
    const quarantined = state.quarantined
      ? h("p", {}, h("span", { class: "tag bad" }, `${state.quarantined} quarantined`), " ", h("a", { href: "#/cleaner" }, "see why and try again")) : null;
    const cards = state.running.map((one) => runningCard(one, state.now_ms));
    if (!cards.length) cards.push(h("p", { class: "quiet" }, "Nothing is being cleaned."));
    fill(now, ...cards, quarantined);
  }

  async function more() {
    const since = samples.times.at(-1) ?? 0;
    const { columns } = await get("/api/samples", { since_ms: Math.floor(since) });
    samples.times = [...samples.times, ...columns.at_ms].slice(-KEPT);
    for (const [name, values] of Object.entries(columns)) {
      samples.columns[name] = [...(samples.columns[name] ?? []), ...values].slice(-KEPT);
    }
    const spanMs = Math.max((samples.times.at(-1) ?? 0) - (samples.times[0] ?? 0), SPAN_MIN_MS);
    for (const plot of [throughput, latency, cleaning]) plot.update(samples.times, samples.columns, spanMs);
  }

  async function refresh() {
    const [cleaner, history] = await Promise.all([get("/api/cleaner"), get("/api/cleaner/runs")]);
    const upcoming = [...cleaner.next, ...cleaner.later].slice(0, NEXT);
    fill(next, ...upcoming.map((one) => h("li", {}, partitionLink(one), h("span", { class: "quiet" },
      one.due_ms === null ? " when a thread runs" : one.due_ms <= cleaner.now_ms ? " next" : ` ${distance(one.due_ms, cleaner.now_ms)}`))));
    runs.show(history.runs.slice(0, RUNS), (run) => `${run.topic}-${run.partition}-${run.at_ms}`, () => row((run) => runCells(run, Date.now(), broker.has_object_store)));
  }

  await Promise.all([more(), refresh()]);
  showTiles(broker);
  showRunning(broker);
  const store = broker.has_object_store ? await objectStore() : null;
  const tickStore = store ? every(2, store.refresh) : () => {};
  const disks = broker.directories.map((one) => `${one.path} (${size(one.free_bytes)} free)`).join(", ");
  return {
    elements: [
      h("div", { class: "head" }, h("h1", {}, "Overview"),
        h("span", { class: "sub" }, `Odradek ${broker.version} on ${broker.listeners.join(", ")}, data in ${disks}`)),
      tiles,
      h("div", { class: "grid halves" }, throughput.element, latency.element, cleaning.element,
        h("section", { class: "card" }, h("h2", {}, "The cleaner now"), now, next)),
      store?.element,
      h("section", { class: "card" }, h("h2", {}, "Last runs"), runs.element),
    ].filter(Boolean),
    refresh,
    async tick(state) {
      await more().catch(() => {});
      showTiles(state);
      showRunning(state);
      tickStore();
    },
  };
}
