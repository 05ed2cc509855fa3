"""What the broker counts, and a snapshot of it for /metrics (broker/exposition.py).

Counters are plain integers, since a Prometheus counter's lock would cost more than the request
that it counts.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.apis import BY_KEY
from broker.latency import Times
from broker.telemetry.clients import ClientRow
from cleaner.history import Totals
from cleaner.pool import CleanerPool, PoolStatus
from cleaner.runs import Run
from cleaner.survey import Noted
from storage.log import Log

if TYPE_CHECKING:
    from broker.composition import Broker

# So many are noted in one turn of the event loop.
_LOGS_AT_ONCE = 100


class Metrics:
    """The broker's own counts; the event loop owns them."""

    __slots__ = (
        "failed_requests",
        "fetched_bytes",
        "malformed_requests",
        "produced_bytes",
        "produced_records",
        "refused_batches",
        "requests",
        "times",
    )

    def __init__(self) -> None:
        self.requests: dict[int, int] = {}
        self.times: defaultdict[int, Times] = defaultdict(Times)  # by API key
        self.malformed_requests = 0
        self.failed_requests = 0
        self.refused_batches = 0
        self.produced_bytes = 0
        self.produced_records = 0
        self.fetched_bytes = 0

    def count_request(self, api_key: int) -> None:
        """Count a request."""
        self.requests[api_key] = self.requests.get(api_key, 0) + 1

    async def turn_minute(self) -> None:
        """Note that a minute has passed, for what is told of the last few."""
        for times in self.times.values():
            times.turn_minute()


@dataclass(frozen=True, slots=True)
class LogRow:
    """What is shown of a partition."""

    topic: str
    partition: int
    size_bytes: int
    start_offset: int
    end_offset: int
    segment_count: int


@dataclass(frozen=True, slots=True)
class CleanerRow:
    """What is shown of a compacted partition's cleaning, before it is worked out."""

    noted: Noted
    last: Run | None  # that went well
    totals: Totals


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is shown, as it was at one moment."""

    requests: Mapping[str, int]
    malformed_requests: int
    failed_requests: int
    refused_batches: int
    produced_bytes: int
    fetched_bytes: int
    flushes: int
    connection_count: int
    parked_fetch_count: int
    fetch_session_count: int
    fetch_session_partition_count: int
    fetch_session_evictions: int
    logs: Sequence[LogRow]
    cleaner: PoolStatus
    offline_directory_count: int
    offline_partition_count: int
    disk_failures: Mapping[str, int]  # by log directory
    now_ms: int = 0
    cleaner_rows: Sequence[CleanerRow] = ()
    clients: Sequence[ClientRow] = ()
    dropped_client_series: int = 0


async def take_snapshot(broker: Broker) -> Snapshot:
    """Note what there is to show, letting the event loop do other things in between."""
    rows: list[LogRow] = []
    cleaner_rows: list[CleanerRow] = []
    for at, log in enumerate(list(broker.logs())):
        if at % _LOGS_AT_ONCE == _LOGS_AT_ONCE - 1:
            await asyncio.sleep(0)
        if log.is_closed:
            continue
        rows.append(_log_row(log))
        if log.config.compact:
            cleaner_rows.append(_cleaner_row(broker.cleaner, log))
    metrics = broker.metrics
    return Snapshot(
        requests={BY_KEY[key].name: count for key, count in metrics.requests.items()},
        malformed_requests=metrics.malformed_requests,
        failed_requests=metrics.failed_requests,
        refused_batches=metrics.refused_batches,
        produced_bytes=metrics.produced_bytes,
        fetched_bytes=metrics.fetched_bytes,
        flushes=broker.group_commit.flushes,
        connection_count=len(broker.server.connections),
        parked_fetch_count=len(broker.purgatory),
        fetch_session_count=len(broker.sessions),
        fetch_session_partition_count=broker.sessions.partition_count,
        fetch_session_evictions=broker.sessions.evictions,
        logs=rows,
        cleaner=broker.cleaner.status(),
        offline_directory_count=len(broker.partitions.offline_directories),
        offline_partition_count=len(broker.topics.offline()),
        disk_failures={str(path): count for path, count in broker.disks.failures.items()},
        now_ms=broker.clock.now_ms(),
        cleaner_rows=cleaner_rows,
        clients=broker.telemetry.rows(),
        dropped_client_series=broker.telemetry.dropped_series,
    )


def _log_row(log: Log) -> LogRow:
    return LogRow(
        log.topic,
        log.partition,
        log.size_bytes,
        log.log_start_offset,
        log.log_end_offset,
        len(log.segments),
    )


def _cleaner_row(cleaner: CleanerPool, log: Log) -> CleanerRow:
    runs = cleaner.desk.runs
    return CleanerRow(cleaner.note(log), runs.last_good(log), copy(runs.totals(log)))
