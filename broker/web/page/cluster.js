// The cluster: its brokers, the session of the one that answers, and the partitions that move or have no leader.

import { get } from "./api.js";
import { fill, h, row, table } from "./dom.js";
import { count, duration, things, whole } from "./format.js";
import { every, topicLink } from "./parts.js";

function broker(one) {
  const id = one.is_this ? h("strong", { title: "the broker of this page" }, String(one.node_id)) : String(one.node_id);
  const state = one.is_alive ? "alive" : one.is_this ? "suspended" : "away";
  return h("span", {}, id, " ", h("span", { class: `tag ${one.is_alive ? "good" : "bad"}` }, state));
}

function addresses(one) {
  if (!one.endpoints.length) return h("span", { class: "quiet" }, "–");
  return h("span", {}, one.endpoints.map(({ name, host, port }) =>
    h("div", { class: "mono" }, `${name}://`, h("wbr"), `${host.includes(":") ? `[${host}]` : host}:${port}`)));
}

/** Make a bar of the partitions of a broker; its length is their share in the largest number. */
function bar(one, most) {
  const all = one.leads + one.without_leader;
  const said = `leads ${things(one.leads, "partition")}, ${whole(one.without_leader)} without a leader`;
  const part = (kind, number) => number ? h("i", { class: kind, "width%": (100 * number) / all }) : null;
  return h("div", { class: "bytes", role: "img", "aria-label": said, title: said, "width%": most ? (100 * all) / most : 0 },
    part("clean", one.leads), part("lost", one.without_leader));
}

function session({ session: own, catalog, now_ms: now }) {
  if (!own) return [h("p", { class: "quiet" }, "This broker has no catalog: it is alone, and serves without a session.")];
  return [
    h("p", {}, own.is_suspended ? h("span", { class: "tag bad" }, "suspended") : h("span", { class: "tag good" }, "serving"),
      h("span", { class: "quiet" }, ` session ${own.epoch}, extended ${duration(now - own.extended_ms)} ago`)),
    h("progress", { max: own.lease_ms, value: own.lease_left_ms, "aria-label": "Time left of the lease" }),
    h("p", { class: "quiet" }, `${duration(own.lease_left_ms)} left of a lease of ${duration(own.lease_ms)}`),
    h("p", { class: "quiet" }, `The catalog answered ${duration(now - catalog.answered_ms)} ago.`),
    own.trouble ? h("p", { class: "trouble" }, own.trouble) : null,
  ];
}

/** Say how far a copy is: the leader knows its end, too, other brokers nothing. */
function copied({ copied_offset: offset, end_offset: end }) {
  if (offset === null) return "–";
  return end === null ? whole(offset) : `${whole(offset)} of ${whole(end)}`;
}

function andMore(all, listed) {
  return all > listed.length ? `and ${whole(all - listed.length)} more` : "";
}

export async function cluster() {
  const summary = h("span", { class: "sub" });
  const tiles = h("dl", { class: "tiles" });
  const own = h("div");
  const brokers = table("Brokers, and the partitions that each leads",
    [["Broker"], ["Addresses"], ["Rack", "optional"], ["Leads", "number"], ["Partitions", "wide optional"], ["No leader", "number"]], "");
  const lost = table("Partitions without a leader",
    [["Topic"], ["Partition", "number"], ["Led last by", "number"]], "None: each partition has a leader.");
  const more = h("p", { class: "quiet" });
  const moving = table("Partitions on their way to another broker",
    [["Partition"], ["Brokers", "number"], ["Copied", "number"]], "");
  const moreMoving = h("p", { class: "quiet" });
  const moves = h("section", { class: "card" },
    h("h2", {}, "Partitions on their way to another broker"), moving.element, moreMoving);

  function draw(latest) {
    const alive = latest.brokers.filter((one) => one.is_alive).length;
    const most = Math.max(...latest.brokers.map((one) => one.leads + one.without_leader), 1);
    const figures = [
      ["Brokers", alive === latest.brokers.length ? whole(alive) : `${alive} of ${latest.brokers.length}`],
      ["Partitions", count(latest.partitions)], ["Without leader", count(latest.without_leader)],
      ["Revision", whole(latest.revision)],
    ];
    fill(summary, `${latest.cluster_id}, seen by broker ${latest.node_id}`, latest.catalog ? `, catalog ${latest.catalog.address}` : "");
    fill(tiles, ...figures.map(([name, value]) => h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, value))));
    fill(own, ...session(latest).filter(Boolean));
    brokers.show(latest.brokers, (one) => one.node_id, () => row((one) => [
      ["tight", broker(one)], ["wrap", addresses(one)], ["optional", one.rack ?? "–"], ["number", whole(one.leads)],
      ["wide optional", bar(one, most)], ["number", whole(one.without_leader)],
    ]));
    lost.show(latest.without_leader_rows, (one) => `${one.topic}:${one.partition}`, () => row((one) => [
      ["wrap", topicLink(one.topic)], ["number", String(one.partition)], ["number", one.last_leader === null ? "–" : `broker ${one.last_leader}`],
    ]));
    fill(more, andMore(latest.without_leader, latest.without_leader_rows));
    moves.hidden = latest.moving === 0;
    moving.show(latest.moving_rows, (one) => `${one.topic}:${one.partition}`, () => row((one) => [
      ["wrap", h("span", {}, topicLink(one.topic), ` ${one.partition}`)],
      ["number", `${one.from ?? "–"} to ${one.to}`], ["number", copied(one)],
    ]));
    fill(moreMoving, andMore(latest.moving, latest.moving_rows));
  }

  async function refresh() {
    draw(await get("/api/cluster"));
  }

  await refresh();
  return {
    elements: [
      h("div", { class: "head" }, h("h1", {}, "Cluster"), summary), tiles,
      h("section", { class: "card" }, h("h2", {}, "Brokers"), brokers.element,
        h("ul", { class: "key", "aria-label": "Meaning of the bars" },
          h("li", {}, h("i", { class: "clean" }), "led"), h("li", {}, h("i", { class: "lost" }), "without a leader until the broker is back"))),
      moves,
      h("div", { class: "grid halves" },
        h("section", { class: "card" }, h("h2", {}, "The session of this broker"), own),
        h("section", { class: "card" }, h("h2", {}, "Partitions without a leader"), lost.element, more)),
    ],
    refresh,
    tick: every(2, refresh),
  };
}
