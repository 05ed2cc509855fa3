"""All numbers of a broker's shared topics at one moment, for metrics and the page."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.catalog.stored_sizes import StoredSizes
from odradek.broker.counters.latency import Counts
from odradek.broker.counters.object_requests import PurposeCounts, Trouble
from odradek.broker.counters.sharing import SharedCounts
from odradek.dataclass import dataclass
from odradek.storage.objects.block_cache import CacheCounters


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """The blocks of segments on the disk, and those in memory."""

    counters: CacheCounters
    size_bytes: int
    size_bytes_max: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class SharedFacts:
    """The numbers; sums are since the start."""

    url: str
    requests: Mapping[str, PurposeCounts]
    rates: Mapping[str, float]  # requests a second of the last minute, by purpose
    retries: int
    hedged: int
    trouble: Trouble | None
    bill: Mapping[str, float]  # by kind
    bill_per_month: Mapping[str, float]
    stored: StoredSizes | None  # None where another broker measures it
    counts: SharedCounts  # without its times
    commits: tuple[Counts, int]  # and their sum in microseconds
    entries: tuple[Counts, int]
    pending_bytes: int
    unstored_bytes: int
    replicas: int  # partitions of other leaders that consumers read here
    leased: int  # partitions that jobs outside clean
    cache: CacheFacts
    pending_bytes_max: int
    unstored_bytes_max: int
    obstacles: Mapping[str, bool]  # by the work: whether it cannot be done now
