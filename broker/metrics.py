"""What the broker counts, and a snapshot of it for /metrics (broker/exposition.py).

Counters are plain integers, since a Prometheus counter's lock would cost more than the request
that it counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.apis import BY_KEY
from cleaner.pool import PoolStatus

if TYPE_CHECKING:
    from broker.composition import Broker


class Metrics:
    """The broker's own counts; the event loop owns them."""

    __slots__ = (
        "failed_requests",
        "fetched_bytes",
        "malformed_requests",
        "produced_bytes",
        "refused_batches",
        "requests",
    )

    def __init__(self) -> None:
        self.requests: dict[int, int] = {}
        self.malformed_requests = 0
        self.failed_requests = 0
        self.refused_batches = 0
        self.produced_bytes = 0
        self.fetched_bytes = 0

    def count_request(self, api_key: int) -> None:
        """Count a request."""
        self.requests[api_key] = self.requests.get(api_key, 0) + 1


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
    logs: Sequence[LogRow]
    cleaner: PoolStatus
    offline_directory_count: int
    offline_partition_count: int
    disk_failures: Mapping[str, int]  # by log directory


def take_snapshot(broker: Broker) -> Snapshot:
    """Note what there is to show; on the event loop."""
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
        logs=[
            LogRow(
                log.topic,
                log.partition,
                log.size_bytes,
                log.log_start_offset,
                log.log_end_offset,
                len(log.segments),
            )
            for log in broker.logs()
        ],
        cleaner=broker.cleaner.status(),
        offline_directory_count=len(broker.partitions.offline_directories),
        offline_partition_count=len(broker.topics.offline()),
        disk_failures={str(path): count for path, count in broker.disks.failures.items()},
    )
