// Actions on topics: create, write a record, add partitions, empty, delete.

import { button, confirmed, fillIn, settingsOf, showAgain } from "./actions.js";
import { h } from "./dom.js";

const POLICIES = [
  ["", "the broker's default"], ["compact", "compact: keep the last record of each key"],
  ["delete", "delete: drop records past the retention"], ["compact,delete", "compact,delete: both"],
];

export function createButton() {
  return button("Create topic", async () => {
    const fields = [
      { name: "topic", label: "Name", required: true },
      { name: "partitions", label: "Partitions", kind: "number", hint: "Empty: the broker's num.partitions." },
      { name: "policy", label: "Cleanup policy", kind: "choice", options: POLICIES, value: "" },
      { name: "more", label: "More settings", kind: "area", hint: "A line each: name=value, as in min.cleanable.dirty.ratio=0.2." },
    ];
    let name = "";
    const isDone = await fillIn("Create a topic", fields, "/api/topics/create", (values) => {
      name = values.topic.trim();
      const configs = settingsOf(values.more);
      if (values.policy) configs["cleanup.policy"] = values.policy;
      return { topic: name, partitions: values.partitions ? Number(values.partitions) : null, configs };
    });
    if (isDone) location.hash = `#/topic/${encodeURIComponent(name)}`;
  }, { class: "primary" });
}

/** Make the buttons for one topic. */
export function topicButtons(topic) {
  const name = topic.name;
  const partitions = Array.from({ length: topic.partitions }, (_, number) => [String(number), `partition ${number}`]);
  return h("div", { class: "bar-row" },
    topic.is_internal ? null : button("Write a record", () => write(name, partitions)),
    button("Add partitions", () => fillIn(
      `Add partitions to ${name}`, [{ name: "count", label: "Partitions in all", kind: "number", value: topic.partitions + 1, required: true }],
      "/api/topics/alter", (values) => ({ topic: name, partitions: Number(values.count) }), { done: showAgain })),
    button("Empty", () => fillIn(
      `Delete records of ${name}`,
      [
        { name: "partition", label: "Partition", kind: "choice", options: [["", "all partitions"], ...partitions], value: "" },
        { name: "before", label: "Before the offset", kind: "number", hint: "Empty: all records that are there now. An offset needs a partition." },
      ],
      "/api/topics/empty",
      (values) => ({
        topic: name, partition: values.partition === "" ? null : Number(values.partition),
        before: values.before === "" ? null : Number(values.before) }),
      { isDangerous: true, confirm: "Delete the records", done: showAgain })),
    button("Delete topic", async () => {
      const isDone = await confirmed("/api/topics/delete", { topic: name }, { isDangerous: true, name, confirm: "Delete the topic" });
      if (isDone) location.hash = "#/topics";
    }));
}

function write(name, partitions) {
  const fields = [
    { name: "key", label: "Key", hint: "Empty: a record without a key." },
    { name: "value", label: "Value", kind: "area" },
    { name: "tombstone", label: "Tombstone: no value; compaction removes the key", kind: "check" },
    { name: "partition", label: "Partition", kind: "choice", options: [["", "by the key, as Java clients choose it"], ...partitions], value: "" },
    { name: "headers", label: "Headers", kind: "area", rows: 2, hint: "A line each: name=value." },
  ];
  return fillIn(`Write a record to ${name}`, fields, "/api/records/produce", (values) => ({
    topic: name, partition: values.partition === "" ? null : Number(values.partition),
    key: values.key === "" ? null : values.key, value: values.tombstone ? null : values.value,
    headers: settingsOf(values.headers),
  }), { done: showAgain });
}
