// Groups, their members, and their lag.

import { button, confirmed, fillIn } from "./actions.js";
import { get } from "./api.js";
import { h, row, table } from "./dom.js";
import { whole } from "./format.js";
import { every, topicLink } from "./parts.js";

function groupLink(name) {
  return h("a", { href: `#/group/${encodeURIComponent(name)}` }, name || "(no name)");
}

function stateTag(state) {
  return h("span", { class: `tag ${state === "Stable" ? "good" : ""}` }, state);
}

export async function groups() {
  const search = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter groups by name", oninput: () => draw() });
  const list = table("Groups, and the number of records that they have still to read",
    [["Group"], ["Type", "optional"], ["State"], ["Members", "number"], ["Partitions", "number optional"], ["Lag", "number"]],
    "No group has read anything yet.");
  let all = [];

  function draw() {
    const shown = all.filter((one) => one.group.includes(search.value.trim()));
    list.show(shown, (one) => `${one.type}:${one.group}`, () => row((one) => [
      ["wrap", groupLink(one.group)], ["optional", one.type], stateTag(one.state), ["number", whole(one.members)],
      ["number optional", whole(one.partitions)], ["number", whole(one.lag)],
    ]));
  }

  async function refresh() {
    all = (await get("/api/groups")).groups;
    draw();
  }

  await refresh();
  return {
    elements: [h("div", { class: "head" }, h("h1", {}, "Groups")),
      h("section", { class: "card" }, h("div", { class: "controls" }, search), list.element)],
    refresh,
    tick: every(2, refresh),
  };
}

export async function group(name) {
  const head = h("div", { class: "head" });
  const members = table("Members", [["Client"], ["Member", "optional"], ["Host"], ["Partitions", "number"]], "Nobody is reading now.");
  const partitions = table("Partitions that the group has read",
    [["Topic"], ["Partition", "number"], ["Read up to", "number"], ["End", "number"], ["Lag", "number"], ["Read by", "optional"]],
    "It has committed no offsets.");

  const buttons = groupButtons(name, () => latest, () => refresh());
  let latest = null;

  async function refresh() {
    latest = await get("/api/group", { group: name });
    head.replaceChildren(h("h1", {}, latest.group), stateTag(latest.state),
      h("span", { class: "sub" }, `${latest.type} group, lag ${whole(latest.lag)}`));
    members.show(latest.members, (one) => one.member_id, () => row((one) => [
      ["wrap", one.client_id], ["optional wrap mono", one.instance_id ?? one.member_id], one.host, ["number", whole(one.partitions)],
    ]));
    partitions.show(latest.partition_rows, (one) => `${one.topic}:${one.partition}`, () => row((one) => [
      ["wrap", topicLink(one.topic)], ["number", String(one.partition)], ["number", whole(one.offset)], ["number", whole(one.end_offset)],
      ["number", whole(one.lag)], ["optional wrap", one.member ?? "–"],
    ]));
  }

  await refresh();
  return {
    elements: [head, buttons, h("section", { class: "card" }, partitions.element), h("section", { class: "card" }, members.element)],
    refresh,
    tick: every(2, refresh),
  };
}

/** Make the buttons for one group; `latestOf` returns the data of the view. */
function groupButtons(name, latestOf, refresh) {
  const topics = () => [...new Set(latestOf().partition_rows.map((one) => one.topic))].sort();
  const reset = () => fillIn(`Move the offsets of ${name}`, [
    { name: "topic", label: "Topic", required: true, value: topics()[0] ?? "", list: topics() },
    { name: "partitions", label: "Partitions", hint: "Numbers, as in 0 2 5. Empty: all partitions." },
    { name: "to", label: "To", required: true, value: "beginning", list: ["beginning", "end"],
      hint: "beginning, end, an offset (42), or a time (2026-11-22T10:00:00Z)." },
  ], "/api/groups/reset", (values) => ({
    group: name, topic: values.topic.trim(), to: positionOf(values.to.trim()),
    partitions: values.partitions.split(/[\s,]+/).filter(Boolean).map(numberOf),
  }), { done: refresh });
  const forget = () => fillIn(`Delete offsets of ${name}`, [
    { name: "topic", label: "Topic", kind: "choice", options: topics().map((one) => [one, one]), value: topics()[0] },
  ], "/api/groups/forget", (values) => ({ group: name, topic: values.topic }), { isDangerous: true, done: refresh });
  const remove = async () => {
    const isDone = await confirmed("/api/groups/delete", { group: name }, { isDangerous: true, confirm: "Delete the group" });
    if (isDone) location.hash = "#/groups";
  };
  return h("div", { class: "bar-row" }, button("Move offsets", reset), button("Delete offsets", forget), button("Delete group", remove));
}

function numberOf(text) {
  if (!/^\d+$/.test(text)) throw new Error(`“${text}” is not the number of a partition`);
  return Number(text);
}

/** Read a position: a date becomes @milliseconds. */
function positionOf(text) {
  if (/^(beginning|end|\d+|@\d+)$/.test(text)) return text;
  const at = Date.parse(text.replace(/^@/, ""));
  if (Number.isNaN(at)) throw new Error(`“${text}” is neither beginning, end, an offset, nor a time`);
  return `@${at}`;
}
