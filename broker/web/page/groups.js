// Groups, their members, and their lag.

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

  async function refresh() {
    const latest = await get("/api/group", { group: name });
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
    elements: [head, h("section", { class: "card" }, partitions.element), h("section", { class: "card" }, members.element)],
    refresh,
    tick: every(2, refresh),
  };
}
