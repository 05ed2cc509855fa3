"""The cluster over HTTP, as this broker sees it.

    GET /api/cluster    the catalog, the brokers, this broker's session, partitions without leader
                        and those that move

A broker without a catalog is a cluster by itself. Of the partitions without a leader, and of those
that move, the answer has the number, and the first ones by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from aiohttp import web

from odradek.broker.metadata.members import NO_LEADER, Member
from odradek.broker.topics.leadership import Leadership, Moving, count_leaders
from odradek.broker.web.concurrency import ConcurrencyLimiter
from odradek.broker.web.requests import Parameters, answer_from_thread
from odradek.storage.log import Log

if TYPE_CHECKING:
    from odradek.broker.catalog.membership import Membership
    from odradek.broker.web.services import WebServices

Json = dict[str, object]

_LISTED_MAX = 100


def add_cluster_routes(
    app: web.Application, broker: WebServices, lists: ConcurrencyLimiter
) -> None:
    """Add the route about the cluster to an application."""

    async def cluster(request: web.Request) -> web.Response:
        Parameters(request, ())
        return await _cluster(broker)

    app.router.add_get("/api/cluster", lists.in_turn(cluster))


async def _cluster(broker: WebServices) -> web.Response:
    own_id, membership = broker.node_id, broker.membership
    now_ms = broker.clock.now_ms()
    head: Json = {
        "now_ms": now_ms,
        "cluster_id": broker.cluster_id,
        "node_id": own_id,
        "revision": broker.store.revision,
        **_of_catalog(membership, now_ms),
    }
    members = {one.node_id: one for one in broker.brokers}
    alive = set(members)
    if membership is not None and membership.standing().is_suspended:
        alive.discard(own_id)
    # Topics and members are immutable: a thread counts them, however many there are.
    topics = list(broker.topics)

    def count() -> Leadership:
        topics.sort(key=lambda one: one.name)
        return count_leaders(topics, own_id, _LISTED_MAX)

    found = await asyncio.to_thread(count)
    moving = _moving(broker, found.first_moving)

    def body() -> Json:
        rows = [_broker(one, members.get(one), found) for one in sorted({*members, *found.known})]
        for row in rows:
            row["is_alive"], row["is_this"] = row["node_id"] in alive, row["node_id"] == own_id
        return {
            **head,
            "brokers": rows,
            "partitions": found.partition_count,
            "without_leader": found.leaderless_count,
            "without_leader_rows": [asdict(one) for one in found.first_leaderless],
            "moving": found.moving.total(),
            "moving_rows": moving,
        }

    return await answer_from_thread(body)


def _of_catalog(membership: Membership | None, now_ms: int) -> Json:
    if membership is None:
        return {"catalog": None, "session": None}
    store, standing = membership.store, membership.standing()
    return {
        "catalog": {
            "engine": store.engine_name,
            "address": store.address,
            "answered_ms": now_ms - store.calls.silence_ms,
        },
        "session": {
            "epoch": standing.epoch,
            "lease_ms": standing.lease_ms,
            "lease_left_ms": standing.lease_left_ms,
            "extended_ms": now_ms - standing.since_extended_ms,
            "is_suspended": standing.is_suspended,
            "trouble": standing.trouble or None,
        },
    }


def _moving(broker: WebServices, listed: Sequence[Moving]) -> list[Json]:
    """Show moves; the leader and the target know how far a copy is, the leader also its end."""
    copied = {}
    if listed and broker.copies is not None:
        copied = {
            (topic.topic_id, number): copy.end_offset
            for topic, number, copy in broker.copies.copied()
        }
    rows = []
    for one in listed:
        key = one.topic_id, one.partition
        offset = copied.get(key)
        if offset is None and broker.followers is not None:
            offset = broker.followers.progress(key)
        topic = broker.topics.by_id(one.topic_id)
        log = None if topic is None else topic.partitions[one.partition]
        rows.append(
            {
                "topic": one.topic,
                "partition": one.partition,
                "from": None if one.leader == NO_LEADER else one.leader,
                "to": one.target,
                # -1 until the leader has answered for the first time.
                "copied_offset": None if offset == -1 else offset,
                "end_offset": log.log_end_offset if isinstance(log, Log) else None,
            }
        )
    return rows


def _broker(node_id: int, member: Member | None, found: Leadership) -> Json:
    """Show a broker; one that is away is known by the partitions that it led last."""
    endpoints = () if member is None else member.endpoints
    return {
        "node_id": node_id,
        "rack": None if member is None else member.rack,
        "host": found.hosts.get(node_id) if member is None else member.host,
        "endpoints": [asdict(one) for one in endpoints],
        "leads": found.led[node_id],
        "without_leader": found.lost[node_id],
    }
