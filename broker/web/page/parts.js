// Parts of several views: bars of bytes, dirty ratios, runs, actions.

import { post, token } from "./api.js";
import { h } from "./dom.js";
import { askToken, toast } from "./shell.js";
import { cost, count, distance, duration, moment, percent, size, things } from "./format.js";

const KINDS = [
  ["clean", "clean"], ["dirty", "dirty, cleanable now"], ["waiting", "dirty, not yet cleanable"],
  ["active", "active segment"], ["kept", "not compacted"],
];
const SHORT = { clean: "clean", dirty: "dirty", waiting: "waiting", active: "active", kept: "kept" };

export function total(bytes) {
  return Object.values(bytes).reduce((sum, one) => sum + one, 0);
}

/** Make a bar in parts; its length is the share of its bytes in the largest number of bytes. */
export function bytesBar(bytes, most) {
  const all = total(bytes);
  const said = KINDS.filter(([kind]) => bytes[kind]).map(([kind]) => `${SHORT[kind]} ${size(bytes[kind])}`);
  const parts = KINDS.map(([kind]) => bytes[kind]
    ? h("i", { class: kind, "width%": (100 * bytes[kind]) / all, title: `${SHORT[kind]} ${size(bytes[kind])}` })
    : null);
  return h(
    "div",
    { class: "bytes", role: "img", "aria-label": said.join(", ") || "empty", "width%": most ? (100 * all) / most : 0 },
    ...parts);
}

export function bytesKey() {
  return h("ul", { class: "key", "aria-label": "Meaning of the bars" },
    KINDS.map(([kind, text]) => h("li", {}, h("i", { class: kind }), text)));
}

/** Make a gauge of a dirty ratio, with a mark where cleaning begins. */
export function ratio(share, threshold) {
  if (share === null) return h("span", { class: "quiet" }, "–");
  const label = `${percent(share)} dirty, cleaned above ${percent(threshold)}`;
  return h("span", { title: label },
    h("span", { class: "gauge optional", role: "img", "aria-label": label },
      h("i", { "width%": 100 * share }), h("b", { "left%": 100 * Math.min(threshold, 0.985) })),
    `${percent(share)}`, h("span", { class: "quiet optional" }, ` of ${percent(threshold)}`));
}

/** Call a function every few ticks, of which there is one a second; ignore errors, since the next call may succeed. */
export function every(seconds, refresh) {
  let ticks = 0;
  return () => (++ticks % seconds ? undefined : refresh().catch(() => {}));
}

export function topicLink(name) {
  return h("a", { href: `#/topic/${encodeURIComponent(name)}` }, name);
}

export function partitionLink(one) {
  return h("span", {}, topicLink(one.topic), ` ${one.partition}`);
}

/** Make a button for a change in the broker: it asks for the token first where there is none. */
export function action(text, path, queryOf, done) {
  const button = h("button", { type: "button", class: "small", onclick: () => carryOut() }, text);
  async function carryOut() {
    if (!token() && !(await askToken())) return;
    button.disabled = true;
    try {
      toast(done(await post(path, queryOf())));
    } catch (error) {
      toast(error.message);
      if (error.status === 401) askToken();
    } finally {
      button.disabled = false;
    }
  }
  button.isKept = true;
  return button;
}

export function runningCard(one, nowMs) {
  const done = one.read_bytes + one.written_bytes;
  const what = one.is_dry_run ? "dry run" : reasonText(one.reason);
  return h("div", { class: "running" },
    h("div", { class: "bar-row" }, h("strong", {}, partitionLink(one)), h("span", { class: "tag now" }, what),
      h("span", { class: "quiet" }, `for ${duration(nowMs - one.began_ms)}`)),
    h("progress", { max: one.io_bytes_max || 1, value: Math.min(done, one.io_bytes_max), "aria-label": `Cleaning ${one.topic} ${one.partition}` }),
    h("span", { class: "quiet" }, `${size(one.read_bytes)} read, ${size(one.written_bytes)} written, of at most ${size(one.io_bytes_max)}`));
}

const REASONS = { OVERDUE: "overdue", DIRTY: "dirty", EXPIRED: "tombstones expired", SURVEY: "survey", ASKED: "asked for", RETRY: "retry" };

export function reasonText(name) {
  return REASONS[name] ?? name ?? "–";
}

/** Show the requests of a run to the object store; a local topic has none. */
function requests(store) {
  if (!store) return h("span", { class: "quiet" }, "–");
  const price = store.dollars === null ? "" : `, ${cost(store.dollars)}`;
  return h("span", { title: `${size(store.sent_bytes)} sent, ${size(store.received_bytes)} received` },
    `${things(store.puts, "PUT")}, ${things(store.gets, "GET")}${price}`);
}

/** Return the cells of a run, for a table of runs; with its requests if there is an object store. */
export function runCells(run, nowMs, hasStore) {
  const when = h("span", { title: moment(run.at_ms) }, distance(run.at_ms, nowMs));
  const where = partitionLink(run);
  if (run.outcome !== "CLEANED") {
    const rest = runColumns(hasStore).slice(4).map(() => "");
    return [["tight", when], where, h("span", { class: "tag bad" }, "failed"), ["wrap", run.failure.exception], ...rest];
  }
  const result = run.result;
  const ratioText = result.start_bytes ? `${percent(result.reclaimed_bytes / result.start_bytes)}` : "–";
  return [
    ["tight", when], where, h("span", { class: "tag good" }, "cleaned"), reasonText(result.reason),
    ["number optional", size(result.indexed_bytes + result.read_bytes)], ["number optional", size(result.written_bytes)],
    ["number", `${size(result.reclaimed_bytes)} (${ratioText})`], ["number", duration(result.total_ms)],
    ...(hasStore ? [["number optional", requests(result.store)]] : []),
  ];
}

export function runColumns(hasStore) {
  return [
    ["When"], ["Partition"], ["Outcome"], ["Because"], ["Read", "number optional"], ["Written", "number optional"],
    ["Reclaimed", "number"], ["Took", "number"], ...(hasStore ? [["Object store", "number optional"]] : []),
  ];
}

export { count, size };
