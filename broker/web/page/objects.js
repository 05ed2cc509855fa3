// The object store of shared topics: its health, its load, its costs; a card of the overview.

import { get } from "./api.js";
import { fill, h, row, table } from "./dom.js";
import { count, distance, duration, money, percent, size, whole } from "./format.js";

// For each purpose its name, and a hint.
const PURPOSES = {
  wal: ["WAL", "new entries of the write-ahead log"], segments: ["segments", "new objects with segments"],
  reads: ["reads", "for consumers, the cleaner, and partitions that were taken over"],
  garbage: ["deletions", "of objects that nothing needs"], probe: ["probe", "the test of the store at the start"],
};
const KINDS = { put: "writes", get: "reads", out: "bytes read", storage: "storage" };

const sum = (numbers) => Object.values(numbers).reduce((all, one) => all + one, 0);

function health({ store: { url, trouble }, now_ms: now }) {
  const since = trouble?.failing_since_ms ?? null;
  const tag = since === null ? h("span", { class: "tag good" }, "works") : h("span", { class: "tag bad" }, "fails");
  const state = h("p", {}, tag, " ", h("span", { class: "quiet mono" }, url));
  if (!trouble) return [state];
  return [state, since === null
    ? h("p", { class: "quiet" }, `Last error, ${distance(trouble.at_ms, now)}: ${trouble.error}`)
    : h("p", { class: "trouble" }, `For ${duration(now - since)}: ${trouble.error}`)];
}

/** Name the parts of the costs of a month, and the one that another broker counts. */
function costs({ dollars_per_month: month, stored }) {
  const parts = Object.entries(KINDS).filter(([kind]) => month[kind] > 0).map(([kind, text]) => `${text} ${money(month[kind])}`);
  const all = stored ? "" : " Without storage, which the broker with the lowest node id counts.";
  return `${parts.length ? `A month: ${parts.join(", ")}. ` : ""}At the pace of the last five minutes, by the prices `
    + `of odradek.object.store.price.*.${all}`;
}

function figures(latest) {
  const { cache, dollars, dollars_per_month: month, requests, stored, wal } = latest;
  const reads = cache.hits + cache.misses;
  const held = stored && stored.segment_bytes + stored.wal_object_bytes + stored.garbage_bytes;
  return [
    ["Costs a month", money(sum(month)), "at the pace of the last five minutes"],
    ["Since the start", money(sum(dollars)), "the costs of all requests since the broker started"],
    ["Requests", `${count(sum(Object.values(requests).map((one) => one.per_s)))} /s`, "of the last minute"],
    ["Stored", size(held), "segments, WAL and garbage in the store, of all brokers; read once a minute"],
    ["WAL pending", size(wal.pending_bytes), "appended, and not committed yet"],
    ["WAL unstored", size(wal.unstored_bytes), "in no segment yet: a broker that takes over reads it first"],
    ["Cache hits", percent(reads ? cache.hits / reads : null), `${whole(cache.hits)} of ${whole(reads)} reads of stored segments`],
    ["Cache", size(cache.bytes), `of at most ${size(cache.bytes_max)}`],
  ];
}

/** Make the card; refresh() reads and draws it again. */
export async function objectStore() {
  const state = h("div"), tiles = h("dl", { class: "tiles" }), made = h("p", { class: "quiet" });
  const rows = table("Requests to the object store by purpose", [
    ["Purpose"], ["A second", "number"], ["Since the start", "number"], ["Failed", "number"], ["Sent", "number optional"], ["Received", "number optional"]], "");

  async function refresh() {
    const latest = await get("/api/objects");
    if (!latest.store) return;
    fill(state, ...health(latest));
    fill(tiles, ...figures(latest).map(([name, value, hint]) => h("div", { class: "tile", title: hint }, h("dt", {}, name), h("dd", {}, value))));
    fill(made, costs(latest));
    rows.show(Object.entries(latest.requests), ([purpose]) => purpose, () => row(([purpose, one]) => [
      h("span", { title: PURPOSES[purpose][1] }, PURPOSES[purpose][0]), ["number", count(one.per_s)], ["number", whole(sum(one.methods))], ["number", whole(sum(one.errors))],
      ["number optional", size(one.sent_bytes)], ["number optional", size(one.received_bytes)],
    ]));
  }

  await refresh();
  return { element: h("section", { class: "card" }, h("h2", {}, "Object store"), state, tiles, made, rows.element), refresh };
}
