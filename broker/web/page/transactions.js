// Transactions, as their coordinators know them; and the producers of a topic's partitions.

import { button, confirmed } from "./actions.js";
import { get } from "./api.js";
import { h, row, table } from "./dom.js";
import { distance, duration, moment, whole } from "./format.js";
import { every, topicLink } from "./parts.js";

function tag(state) {
  return h("span", { class: `tag ${state === "Ongoing" ? "now" : ""}` }, state);
}

export async function transactions() {
  const open = h("input", { type: "checkbox", onchange: () => draw() });
  const search = h("input", { type: "search", placeholder: "Filter by id", "aria-label": "Filter transactions by id", oninput: () => draw() });
  const list = table("Transactions, as their coordinators know them",
    [["Transactional id"], ["State"], ["Open for"], ["Time-out", "optional"], ["Partitions"], ["Producer", "number optional"], ["Action"]],
    "No producer has used a transactional id.");
  const note = h("p", { class: "trouble" });
  let all = [];

  function draw() {
    const shown = all.filter((one) => one.transactional_id.includes(search.value.trim()) && (!open.checked || one.state === "Ongoing"));
    list.show(shown, (one) => one.transactional_id, (item) => {
      const abort = button("Abort", () => confirmed("/api/transactions/abort", { transactional_id: item.transactional_id }, { isDangerous: true, confirm: "Abort it", done: refresh }), { "aria-label": `Abort the transaction of ${item.transactional_id}` });
      return row((one) => {
        abort.hidden = one.state !== "Ongoing";
        return [
          ["wrap", one.transactional_id], tag(one.state),
          ["tight", one.began_ms === null ? "–" : duration(Math.max(Date.now() - one.began_ms, 0))],
          ["optional", duration(one.timeout_ms)], ["wrap", partitions(one.partitions)],
          ["number optional", String(one.producer_id)], abort,
        ];
      });
    });
  }

  async function refresh() {
    const found = await get("/api/transactions");
    all = found.transactions;
    note.textContent = [...found.problems, found.left_out ? `${whole(found.left_out)} more are left out.` : ""].filter(Boolean).join(" ");
    draw();
  }

  await refresh();
  return {
    elements: [h("div", { class: "head" }, h("h1", {}, "Transactions")),
      h("section", { class: "card" }, h("div", { class: "controls" }, search, h("label", {}, open, " only open ones")), list.element, note)],
    refresh,
    tick: every(2, refresh),
  };
}

function partitions(topics) {
  if (!topics.length) return "–";
  return h("span", {}, topics.flatMap((one, at) => [at ? ", " : "", topicLink(one.topic), ` ${one.partitions.join(" ")}`]));
}

/** Show the producers that the partitions of a topic know. */
export async function producers(topic) {
  const list = table(`Producers of ${topic}`,
    [["Partition", "number"], ["Producer", "number"], ["Epoch", "number optional"], ["Last sequence", "number optional"], ["Last record"], ["Open since offset", "number"], ["Action"]],
    "No idempotent producer has written to it lately.");

  async function refresh() {
    const found = await get("/api/producers", { topic });
    list.show(found.producers, (one) => `${one.partition}:${one.producer_id}`, (item) => {
      const abort = button("Abort", () => confirmed("/api/producers/abort", { topic, partition: item.partition, producer_id: item.producer_id }, { isDangerous: true, confirm: "Abort it", done: refresh }), { "aria-label": `Abort the transaction of producer ${item.producer_id} in partition ${item.partition}` });
      return row((one) => {
        abort.hidden = one.transaction_from === null;
        return [
          ["number", String(one.partition)], ["number", String(one.producer_id)], ["number optional", String(one.producer_epoch)],
          ["number optional", whole(one.last_sequence)],
          ["tight", one.last_ms === null ? "–" : h("span", { title: moment(one.last_ms) }, distance(one.last_ms, Date.now()))],
          ["number", one.transaction_from === null ? "–" : whole(one.transaction_from)], abort,
        ];
      });
    });
  }

  await refresh();
  return { elements: [h("section", { class: "card" }, list.element)], refresh, tick: every(2, refresh) };
}
