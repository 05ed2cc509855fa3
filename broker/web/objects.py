"""The object store of shared topics over HTTP: its load, its costs, its health.

    GET /api/objects    requests by purpose, costs, bytes stored, the WAL, the cache

Without an object store, `store` is null and nothing else is there. The workers of a machine have
a store in common: their numbers are added up (broker/web/united/).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from odradek.broker.web.concurrency import ConcurrencyLimiter
from odradek.broker.web.requests import Parameters, answer_from_thread

if TYPE_CHECKING:
    from odradek.broker.counters.object_requests import Trouble
    from odradek.broker.shared.facts import SharedFacts
    from odradek.broker.web.services import WebServices

Json = dict[str, object]


def add_object_routes(
    app: web.Application, broker: WebServices, lists: ConcurrencyLimiter
) -> None:
    """Add the route about the object store to an application."""

    async def objects(request: web.Request) -> web.Response:
        Parameters(request, ())
        now_ms, sharing = broker.clock.now_ms(), broker.sharing
        facts = None if sharing is None else sharing.facts()
        return await answer_from_thread(
            lambda: {"now_ms": now_ms, "store": None} if facts is None else shown(facts, now_ms)
        )

    app.router.add_get("/api/objects", lists.in_turn(objects))


def shown(facts: SharedFacts, now_ms: int) -> Json:
    """Return the numbers as JSON."""
    stored, counts, cache = facts.stored, facts.counts, facts.cache
    return {
        "now_ms": now_ms,
        "store": {"url": facts.url, "trouble": _trouble(facts.trouble, now_ms)},
        "requests": {
            purpose: {
                "per_s": round(facts.rates[purpose], 3),
                "methods": one.methods,
                "errors": one.errors,
                "sent_bytes": one.sent_bytes,
                "received_bytes": one.received_bytes,
                "total_ms": round(one.total_us / 1000),
            }
            for purpose, one in facts.requests.items()
        },
        "retries": facts.retries,
        "hedged": facts.hedged,
        "dollars": facts.bill,
        "dollars_per_month": facts.bill_per_month,
        "stored": None if stored is None else {
            "segments": stored.segments,
            "segment_bytes": stored.segment_bytes,
            "wal_entries": stored.wal_entries,
            "wal_bytes": stored.wal_bytes,
            "wal_object_bytes": stored.wal_object_bytes,
            "garbage_objects": stored.garbage_objects,
            "garbage_bytes": stored.garbage_bytes,
        },
        "wal": {
            "pending_bytes": facts.pending_bytes,
            "unstored_bytes": facts.unstored_bytes,
            "inline_entries": counts.inline_entries,
            "inline_bytes": counts.inline_bytes,
            "slow_entries": counts.slow_entries,
            "object_entries": counts.object_entries,
            "object_bytes": counts.object_bytes,
            "commits": sum(facts.commits[0]),
            "commits_total_ms": round(facts.commits[1] / 1000),
            "entries_total_ms": round(facts.entries[1] / 1000),
            "waits": counts.waits,
            "sessions_lost": counts.sessions_lost,
            "freed_bytes": counts.freed_wal_bytes,
        },
        "logs": {
            "opened": counts.opened_logs,
            "opening_ms": counts.opening_ms,
            "opening_wal_bytes": counts.opening_wal_bytes,
            "exchanged_segments": counts.exchanged_segments,
            "merged_segments": counts.merged_segments,
            "merged_bytes": counts.merged_bytes,
            "deleted_objects": counts.deleted_objects,
        },
        "cache": {
            "hits": cache.counters.hits,
            "misses": cache.counters.misses,
            "fetched_bytes": cache.counters.fetched_bytes,
            "dropped_bytes": cache.counters.dropped_bytes,
            "bytes": cache.size_bytes,
            "bytes_max": cache.size_bytes_max,
        },
    }  # fmt: skip


def _trouble(trouble: Trouble | None, now_ms: int) -> Json | None:
    """Return the last error, when it was, and since when there has been no answer, if so."""
    if trouble is None:
        return None
    since_ms = trouble.since_ms
    return {
        "error": trouble.text,
        "at_ms": now_ms - trouble.last_ms,
        "failing_since_ms": None if since_ms is None else now_ms - since_ms,
    }
