"""Shared topics: the object store and its costs, the WAL, the cache. None without a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from odradek.broker.observability.exposition.families import (
    Family,
    counter,
    gauge,
    histogram,
)
from odradek.broker.observability.exposition.times import as_histogram

if TYPE_CHECKING:
    from odradek.broker.shared.facts import SharedFacts

_STORE = "odradek_object_store"
_MS_PER_S = 1000

REQUESTS = counter(
    f"{_STORE}_requests_total",
    "Requests to the object store, each attempt by itself, by method and purpose: new entries of"
    " the WAL, new objects with segments, reads, deletions of garbage, the probe of a start. The"
    " deletion of many objects is one.",
    "purpose",
    "method",
)
FAILURES = counter(
    f"{_STORE}_failures_total",
    "Requests to the object store that failed, by purpose and kind of error. StoreUnavailable is"
    " tried again; for StoreRefused see the log and /health.",
    "purpose",
    "error",
)
RETRIES = counter(
    f"{_STORE}_retries_total",
    "Requests that were sent again, since the object store did not answer. When they rise, see the"
    " log, and whether the store asks for fewer requests.",
)
HEDGED = counter(
    f"{_STORE}_hedged_total",
    "Requests that were sent a second time, since the answers to the first ones took unusually"
    " long; odradek.object.store.hedged.percent limits them.",
)
SENT = counter(
    f"{_STORE}_sent_bytes_total", "Bytes stored in the object store, by purpose.", "purpose"
)
RECEIVED = counter(
    f"{_STORE}_received_bytes_total",
    "Bytes read from the object store, by purpose. When reads rise, raise odradek.cache.bytes.",
    "purpose",
)
SECONDS = histogram(
    f"{_STORE}_seconds",
    "Seconds that requests to the object store took, by purpose; those that failed are among"
    " them.",
    "purpose",
)
FAILING = gauge(
    f"{_STORE}_failing_seconds",
    "Seconds since the object store has failed, without an answer in between; 0 while it answers."
    " A store that takes no PUTs fails, even if it serves reads. See /health for the cause.",
)
DOLLARS = counter(
    f"{_STORE}_dollars_total",
    "Costs since the start by the prices odradek.object.store.price.…: requests that write (put)"
    " and read (get), bytes read (out), and bytes stored by their time (storage), which the broker"
    " counts that has stored_bytes. Sum all brokers.",
    "kind",
)
PER_MONTH = gauge(
    f"{_STORE}_dollars_per_month",
    "Costs of a month at the pace of the last five minutes, by the same kinds. Fewer"
    " odradek.wal.puts.per.second lower those of put.",
    "kind",
)
STORED = gauge(
    f"{_STORE}_stored_bytes",
    "Bytes of all shared topics in the object store: segments without their indexes, the WAL, and"
    " garbage that is still to be deleted. One broker reads them from the catalog each minute.",
    "kind",
)
BACKLOG = gauge(
    "odradek_wal_backlog_entries",
    "Entries of all brokers' WAL that are not freed yet, in the catalog or the object store. When"
    " they only rise, see /health. The broker that has stored_bytes has them.",
)
ENTRIES = counter(
    "odradek_wal_entries_total",
    "Entries of the WAL that were committed, in the catalog as a whole (inline) or with their"
    " bodies in the object store (object).",
    "kind",
)
SLOW = counter(
    "odradek_wal_slow_entries_total",
    "Entries that were committed inline because their uploads took longer than most;"
    " odradek.wal.slow.bytes.per.second limits them.",
)
BYTES = counter("odradek_wal_bytes_total", "Bytes of these entries.", "kind")
WAL_SECONDS = histogram(
    "odradek_wal_seconds",
    "Seconds from an entry's sealing to its commit, with its upload (entry), and of commits alone,"
    " with their repetitions (commit). Producers wait for both.",
    "step",
)
OBSTACLES = gauge(
    "odradek_shared_obstacles",
    "1 while this broker cannot commit records of shared topics (commit), store their logs in the"
    " object store (store), merge their segments (merge), free the WAL (free) or serve consumers"
    " of other leaders' partitions (serve), and tries again. See /health for the cause.",
    "work",
)
GAUGES: Mapping[Family, Callable[[SharedFacts], float]] = {
    gauge(
        "odradek_wal_pending_bytes",
        "Bytes that were appended to shared topics and are not committed yet. At"
        " odradek.wal.pending.bytes.max producers wait.",
    ): lambda one: one.pending_bytes,
    gauge(
        "odradek_wal_pending_max_bytes", "The bound of these bytes, odradek.wal.pending.bytes.max."
    ): lambda one: one.pending_bytes_max,
    gauge(
        "odradek_wal_unstored_bytes",
        "Committed bytes that only the WAL has. Brokers that take partitions over read them first."
        " When they stay above odradek_wal_unstored_max_bytes, see /health, and whether segments"
        " are uploaded fast enough.",
    ): lambda one: one.unstored_bytes,
    gauge(
        "odradek_wal_unstored_max_bytes",
        "The bound of these bytes: odradek.wal.checkpoint.bytes for each broker on another host."
        " Lower it for quicker takeovers.",
    ): lambda one: one.unstored_bytes_max,
    gauge(
        "odradek_shared_replicas",
        "Partitions of other leaders that consumers of this broker's rack read here.",
    ): lambda one: one.replicas,
    gauge(
        "odradek_shared_leased",
        "Partitions that this broker leads and a job cleans: odradek pipeline clean.",
    ): lambda one: one.leased,
    gauge(
        "odradek_cache_bytes", "Bytes of segments in the object store that the disk has as well."
    ): lambda one: one.cache.size_bytes,
    gauge(
        "odradek_cache_max_bytes", "The bound of these bytes, odradek.cache.bytes."
    ): lambda one: one.cache.size_bytes_max,
    gauge(
        "odradek_cache_memory_bytes",
        "Bytes of segments in the object store that are in memory, since they were fetched once;"
        " odradek.cache.memory.bytes bounds them.",
    ): lambda one: one.cache.memory_bytes,
}
COUNTERS: Mapping[Family, Callable[[SharedFacts], float]] = {
    counter(
        "odradek_wal_waits_total",
        "Requests of producers that waited, since too many bytes were not committed yet. When they"
        " rise, look at the object store and the catalog.",
    ): lambda one: one.counts.waits,
    counter(
        "odradek_wal_sessions_lost_total",
        "Sessions that others closed: their uncommitted records were refused.",
    ): lambda one: one.counts.sessions_lost,
    counter(
        "odradek_wal_freed_bytes_total",
        "Bytes of WAL entries that were removed, since segments have their records.",
    ): lambda one: one.counts.freed_wal_bytes,
    counter(
        "odradek_shared_logs_opened_total",
        "Logs of shared topics that were opened, at a start or when the broker took them over.",
    ): lambda one: one.counts.opened_logs,
    counter(
        "odradek_shared_logs_opening_seconds_total",
        "Seconds that opening them took, during which their partitions were not served.",
    ): lambda one: one.counts.opening_ms / _MS_PER_S,
    counter(
        "odradek_shared_logs_opening_wal_bytes_total",
        "Bytes of the WAL that were read to open them. To read less, lower"
        " odradek.wal.checkpoint.bytes.",
    ): lambda one: one.counts.opening_wal_bytes,
    counter(
        "odradek_shared_replicas_opened_total",
        "Partitions of other leaders that were opened for consumers of this broker's rack: at"
        " first, after a change of the leader, and after each cleaning or merge.",
    ): lambda one: one.counts.opened_replicas,
    counter(
        "odradek_shared_segments_exchanged_total",
        "Segments in the object store that were exchanged for cleaned ones.",
    ): lambda one: one.counts.exchanged_segments,
    counter(
        "odradek_shared_segments_merged_total",
        "Small segments in the object store of topics without compaction that were merged: each"
        " merge counts those that became one.",
    ): lambda one: one.counts.merged_segments,
    counter(
        "odradek_shared_segments_merged_bytes_total",
        "Bytes of the segments that these have become. They were read and uploaded once more.",
    ): lambda one: one.counts.merged_bytes,
    counter(
        "odradek_garbage_deleted_objects_total",
        "Objects that were deleted, since no segment and no WAL entry was left in them.",
    ): lambda one: one.counts.deleted_objects,
    counter(
        "odradek_cache_fetched_bytes_total",
        "Bytes of segments that were fetched from the object store, read-ahead included.",
    ): lambda one: one.cache.counters.fetched_bytes,
    counter(
        "odradek_cache_dropped_bytes_total",
        "Bytes of segments that were dropped from the disk to make room for others. When many were"
        " dropped and fetched again, raise odradek.cache.bytes.",
    ): lambda one: one.cache.counters.dropped_bytes,
}
CACHE_READS = counter(
    "odradek_cache_reads_total",
    "Reads of segments in the object store: hits are those that needed no request.",
    "result",
)


def object_families(facts: SharedFacts | None) -> Iterator[Metric]:
    """Iterate over the families; there are none without an object store."""
    if facts is None:
        return
    yield from _of_store(facts)
    counts, cache = facts.counts, facts.cache.counters
    yield ENTRIES.each([("inline", counts.inline_entries), ("object", counts.object_entries)])
    yield SLOW.one(counts.slow_entries)
    yield BYTES.each([("inline", counts.inline_bytes), ("object", counts.object_bytes)])
    yield as_histogram(
        WAL_SECONDS, [("commit", *facts.commits), ("entry", *facts.entries)]
    )
    yield OBSTACLES.each(facts.obstacles.items())
    for family, value_of in (*GAUGES.items(), *COUNTERS.items()):
        yield family.one(value_of(facts))
    yield CACHE_READS.each([("hit", cache.hits), ("miss", cache.misses)])


def _of_store(facts: SharedFacts) -> Iterator[Metric]:
    by_purpose, trouble, stored = facts.requests, facts.trouble, facts.stored
    yield REQUESTS.each(
        (purpose, method, count)
        for purpose, one in by_purpose.items()
        for method, count in one.methods.items()
    )
    yield FAILURES.each(
        (purpose, error, count)
        for purpose, one in by_purpose.items()
        for error, count in one.errors.items()
    )
    yield RETRIES.one(facts.retries)
    yield HEDGED.one(facts.hedged)
    yield SENT.each((purpose, one.sent_bytes) for purpose, one in by_purpose.items())
    yield RECEIVED.each((purpose, one.received_bytes) for purpose, one in by_purpose.items())
    yield as_histogram(
        SECONDS, ((purpose, one.times, one.total_us) for purpose, one in by_purpose.items())
    )
    since_ms = None if trouble is None else trouble.since_ms
    yield FAILING.one((since_ms or 0) / _MS_PER_S)
    yield DOLLARS.each(facts.bill.items())
    yield PER_MONTH.each(facts.bill_per_month.items())
    if stored is None:
        yield STORED.empty()
        yield BACKLOG.empty()
        return
    kinds = {
        "segments": stored.segment_bytes,
        "wal": stored.wal_object_bytes,
        "garbage": stored.garbage_bytes,
    }
    yield STORED.each(kinds.items())
    yield BACKLOG.one(stored.wal_entries)
