"""The topics over HTTP: their bytes, how clean these are, and the next cleaning.

    GET /api/topics            all topics, with the total bytes of their partitions
    GET /api/topic?topic=T     one topic: its settings, and each of its partitions

Bytes are divided as the cleaner sees them: `clean`, `dirty` (cleanable now), `waiting` (cleanable
later), `active` (of the active segment), and `kept` where nothing is compacted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiohttp import web

from odradek.broker.security.authorization import ResourceKind
from odradek.broker.topics.topic import Topic
from odradek.broker.web.cleaner_facts import ExplainedLog, explain_logs
from odradek.broker.web.cleaner_json import levels
from odradek.broker.web.concurrency import ConcurrencyLimiter
from odradek.broker.web.requests import Parameters, Problem, answer_from_thread, topic_of
from odradek.broker.web.rights import describable
from odradek.storage.log import Log

if TYPE_CHECKING:
    from odradek.broker.web.services import WebServices

Json = dict[str, object]
Bytes = dict[str, int]

# The logs that are shown in one turn of the event loop.
_LOGS_AT_ONCE = 100
_NOTHING: Bytes = {"clean": 0, "dirty": 0, "waiting": 0, "active": 0, "kept": 0}


def add_topic_routes(app: web.Application, broker: WebServices, lists: ConcurrencyLimiter) -> None:
    """Add the routes about topics to an application."""
    routes = TopicRoutes(broker)
    app.router.add_get("/api/topics", lists.in_turn(routes.topics))
    app.router.add_get("/api/topic", lists.in_turn(routes.topic))


class TopicRoutes:
    """Answers as JSON; the event loop owns it."""

    def __init__(self, broker: WebServices) -> None:
        self._broker = broker

    async def topics(self, request: web.Request) -> web.Response:
        """Answer with all topics."""
        Parameters(request, ())
        topics = list(self._broker.topics)
        names = (one.name for one in topics)
        shown = describable(self._broker, request, ResourceKind.TOPIC, names)
        if shown is not None:
            topics = [one for one in topics if one.name in shown]
        explained = await self._explain(topics)
        now_ms = self._broker.clock.now_ms()
        logs = {topic.name: topic.logs for topic in topics}
        rows = await _rows((log for found in logs.values() for log in found), explained)

        def body() -> object:
            shown = [_topic(one, [rows[log] for log in logs[one.name]]) for one in topics]
            return {"now_ms": now_ms, "topics": sorted(shown, key=lambda one: str(one["name"]))}

        return await answer_from_thread(body)

    async def topic(self, request: web.Request) -> web.Response:
        """Answer with a topic and its partitions."""
        parameters = Parameters(request, ("topic",))
        topic, _ = topic_of(self._broker, parameters)
        explained = await self._explain([topic], levels_of=topic.logs)
        shown = await asyncio.to_thread(_levels, explained)
        rows = [
            {**row, "levels": shown.get(log)}
            for log, row in (await _rows(topic.logs, explained)).items()
        ]
        if self._broker.topics.get(topic.name) is None:
            raise Problem(404, f"topic {topic.name} was deleted meanwhile")
        now_ms = self._broker.clock.now_ms()
        return await answer_from_thread(
            lambda: {
                "now_ms": now_ms,
                **_topic(topic, rows),
                "configs": dict(topic.overrides),
                "partition_rows": rows,
            }
        )

    async def _explain(
        self, topics: Iterable[Topic], *, levels_of: Iterable[Log] = ()
    ) -> Mapping[Log, ExplainedLog]:
        logs = [log for topic in topics if topic.config.compact for log in topic.logs]
        now_ms = self._broker.clock.now_ms()
        explained, _ = await explain_logs(self._broker, logs, now_ms, levels_of=set(levels_of))
        return {one.log: one for one in explained}


def _levels(explained: Mapping[Log, ExplainedLog]) -> Mapping[Log, Json | None]:
    return {log: levels(one) for log, one in explained.items()}


async def _rows(logs: Iterable[Log], explained: Mapping[Log, ExplainedLog]) -> dict[Log, Json]:
    """Show partitions; the event loop does other work meanwhile."""
    rows: dict[Log, Json] = {}
    for at, log in enumerate(list(logs), 1):
        rows[log] = _row(log, explained.get(log))
        if at % _LOGS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return rows


def _topic(topic: Topic, rows: Sequence[Json]) -> Json:
    config = topic.config
    ratios = [row["dirty_ratio"] for row in rows if isinstance(row["dirty_ratio"], float)]
    dues = [row["due_ms"] for row in rows if isinstance(row["due_ms"], int)]
    return {
        "name": topic.name,
        "is_internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "offline_partitions": len(topic.partitions) - len(rows) - topic.remote_count,
        "remote_partitions": topic.remote_count,
        "cleanup_policy": ",".join(sorted(config.cleanup_policy)),
        "bytes": _sum(row["bytes"] for row in rows),
        "offsets": sum(_span(row) for row in rows),
        "dirty_ratio": max(ratios, default=None),
        "min_cleanable_dirty_ratio": config.min_cleanable_dirty_ratio,
        "due_ms": min(dues, default=None),
        "running": sum(row["is_running"] is True for row in rows),
        "quarantined": sum(row["quarantined"] is not None for row in rows),
    }


def _row(log: Log, explained: ExplainedLog | None) -> Json:
    """Show a partition; it has to be fast, since one request may show thousands."""
    row: Json = {
        "partition": log.partition,
        "log_start_offset": log.log_start_offset,
        "last_stable_offset": log.last_stable_offset,
        "log_end_offset": log.log_end_offset,
        "segments": len(log.segments),
    }
    if explained is None:
        active = log.active.size_bytes
        kept = _NOTHING | {"kept": max(log.size_bytes - active, 0), "active": active}
        nothing = {"verdict": None, "sentence": None, "due_ms": None, "dirty_ratio": None}
        return {**row, "bytes": kept, **nothing, "is_running": False, "quarantined": None}
    finding, standing = explained.finding, explained.finding.noted.standing
    dirty, active = finding.dirty, finding.facts.segments[-1].size_bytes
    failed = standing.quarantined
    return {
        **row,
        "bytes": _NOTHING
        | {
            "clean": dirty.clean_bytes,
            "dirty": dirty.cleanable_bytes,
            "waiting": max(finding.uncleanable_bytes - active, 0),
            "active": active,
        },
        "verdict": explained.answer.verdict.name,
        "sentence": explained.answer.sentence,
        "due_ms": explained.answer.due_ms,
        "dirty_ratio": dirty.cleanable_ratio,
        "is_running": standing.is_running,
        "quarantined": None if failed is None else failed.sentence,
    }


def _span(row: Json) -> int:
    start, end = row["log_start_offset"], row["log_end_offset"]
    assert isinstance(start, int) and isinstance(end, int)
    return end - start


def _sum(parts: Iterable[object]) -> Bytes:
    total = dict(_NOTHING)
    for part in parts:
        assert isinstance(part, dict)
        for name, size_bytes in part.items():
            total[name] += size_bytes
    return total
