"""The counts of a broker's shared topics: their WAL, their logs, their garbage."""

from __future__ import annotations

from dataclasses import field

from odradek.broker.counters.latency import Times
from odradek.dataclass import dataclass


@dataclass(slots=True)
class SharedCounts:
    """Sums since the start, over all sessions; the event loop owns them."""

    # Committed entries of the WAL: in the catalog as a whole, or with their bodies in the bucket.
    inline_entries: int = 0
    inline_bytes: int = 0
    object_entries: int = 0
    object_bytes: int = 0
    # Of the inline ones, those whose uploads were slow.
    slow_entries: int = 0
    # From the first try of a commit to its answer, and of an entry from its sealing to its commit.
    commits: Times = field(default_factory=Times)
    entries: Times = field(default_factory=Times)
    # Requests of producers that began to wait for room in the WAL.
    waits: int = 0
    sessions_lost: int = 0
    # Logs that were built from the bucket and the catalog.
    opened_logs: int = 0
    opening_ms: int = 0
    opening_wal_bytes: int = 0
    # Partitions that other brokers lead, opened for consumers that read here.
    opened_replicas: int = 0
    # Segments in the bucket that cleaned ones have replaced.
    exchanged_segments: int = 0
    # Segments in the bucket that merged ones have replaced, and the bytes of these.
    merged_segments: int = 0
    merged_bytes: int = 0
    freed_wal_bytes: int = 0
    deleted_objects: int = 0
