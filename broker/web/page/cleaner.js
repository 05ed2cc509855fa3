// The cleaner: running, queued, past and failed cleanings.

import { get } from "./api.js";
import { fill, h, row, table } from "./dom.js";
import { distance, moment, percent, size } from "./format.js";
import { action, partitionLink, reasonText, runCells, runColumns, runningCard } from "./parts.js";
import { runBars } from "./plot.js";

const RUNS = 20;

function dueText(dueMs, at) {
  if (dueMs === null) return "when a cleaner thread runs again";
  if (dueMs <= at) return h("span", { class: "tag now" }, "as soon as a thread is free");
  return h("span", { title: moment(dueMs) }, distance(dueMs, at));
}

const nameOf = (one) => `${one.topic}-${one.partition}`;

export async function cleaner() {
  const { has_object_store: hasStore } = await get("/api/broker");
  const now = h("div");
  const summary = h("span", { class: "sub" });
  const queue = table("Next, in the order in which a free thread takes them",
    [["Partition"], ["Because"], ["Dirty", "number"], ["Bytes", "number"], ["When"]], "No partition waits.");
  const failed = table("Partitions whose last cleaning failed",
    [["Partition"], ["Cause"], ["Failures", "number"], ["Next try"], ["Action"]], "None: all partitions can be cleaned.");
  const runs = table("Runs, the latest first", runColumns(hasStore), "The cleaner has not run yet.");
  const bars = runBars("Runs over time", [
    { text: "read", column: "read" }, { text: "written", column: "written" }, { text: "reclaimed", column: "reclaimed" }], size);
  const showAll = h("button", { type: "button", onclick: () => { isAll = true; refresh(); } }, "Show all runs");
  let state = null, isAll = false;

  function draw(latest, history) {
    const at = latest.now_ms, { threads } = latest;
    fill(summary, `${threads.alive} of ${threads.wanted} threads alive`, threads.died ? `, ${threads.died} died` : "",
      `, map up to ${size(latest.settings["log.cleaner.dedupe.buffer.size"])}`);
    showRunning(latest.running, at);
    const waiting = [...latest.next, ...latest.later];
    queue.show(waiting, nameOf, () => row((one) => [
      partitionLink(one), reasonText(one.reason), ["number", percent(one.dirty_ratio)], ["number", size(one.cleanable_bytes)],
      dueText(one.due_ms, at),
    ]));
    failed.show(latest.quarantined, nameOf, (item) => {
      const retry = action("Retry", "/api/cleaner/retry", () => ({ topic: item.topic, partition: item.partition }),
        () => `Trying ${nameOf(item)} again.`);
      retry.setAttribute("aria-label", `Retry ${item.topic} ${item.partition}`);
      return row((one) => [
        partitionLink(one), ["wrap", `${one.exception}${one.offset === null ? "" : ` (from offset ${one.offset} on)`}`],
        ["number", String(one.failures)], dueText(one.due_ms, at), retry,
      ]);
    });
    showAll.hidden = isAll || history.runs.length <= RUNS;
    runs.show(isAll ? history.runs : history.runs.slice(0, RUNS), (run) => `${nameOf(run)}-${run.at_ms}`, () => row((run) => runCells(run, Date.now(), hasStore)));
    bars.update(history.runs.filter((run) => run.result).reverse().map((run) => ({
      name: nameOf(run), at_ms: run.at_ms, read: run.result.indexed_bytes + run.result.read_bytes,
      written: run.result.written_bytes, reclaimed: Math.max(run.result.reclaimed_bytes, 0) })));
  }

  function showRunning(running, at) {
    const cards = running.map((one) => runningCard(one, at));
    fill(now, ...(cards.length ? cards : [h("p", { class: "quiet" }, "Nothing is being cleaned.")]));
  }

  async function refresh() {
    const [latest, history] = await Promise.all([get("/api/cleaner"), get("/api/cleaner/runs")]);
    state = latest;
    draw(latest, history);
  }

  await refresh();
  return {
    elements: [
      h("div", { class: "head" }, h("h1", {}, "Cleaner"), summary),
      h("div", { class: "grid" },
        h("section", { class: "card" }, h("h2", {}, "Now"), now),
        bars.element),
      h("section", { class: "card" }, h("h2", {}, "Quarantined"), failed.element),
      h("section", { class: "card" }, h("h2", {}, "Next"), queue.element),
      h("section", { class: "card" }, h("h2", {}, "Done"), runs.element, showAll),
    ],
    refresh,
    tick(now) {
      showRunning(now.running, now.now_ms);
      if (now.now_ms - state.now_ms > 5000) refresh().catch(() => {});
    },
  };
}
