"""The text of /metrics: names, what they mean and the values, as Prometheus reads them.

Kafka's names for what Kafka measures; what is our own begins with `odradek_`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from broker.cleaner_exposition import cleaner_families
from broker.families import counter, gauge
from broker.metrics import LogRow, Snapshot
from broker.telemetry.exposition import client_families


def render(snapshot: Snapshot) -> bytes:
    """Write a snapshot as text, with the memory, CPU time and open files of the process.

    With thousands of partitions this takes a tenth of a second: it is called in a thread.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(snapshot))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class SnapshotCollector:
    """A snapshot as prometheus_client asks for it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        yield from _requests(self._snapshot)
        yield from _fetches(self._snapshot)
        yield from _logs(self._snapshot.logs)
        yield from _disks(self._snapshot)
        yield from cleaner_families(self._snapshot)
        yield from client_families(self._snapshot.clients, self._snapshot.dropped_client_series)


def _requests(snapshot: Snapshot) -> Iterable[Metric]:
    requests = CounterMetricFamily(
        "kafka_network_requests", "Requests served, by API.", labels=["request"]
    )
    for name, count in snapshot.requests.items():
        requests.add_metric([name], count)
    yield requests
    yield counter(
        "odradek_malformed_requests",
        "Connections closed for bytes that are no request: look in the log for the peer.",
        snapshot.malformed_requests,
    )
    yield counter(
        "odradek_failed_requests",
        "Requests that hit a bug in the broker: report the trace in the log.",
        snapshot.failed_requests,
    )
    yield counter(
        "odradek_refused_batches",
        "Record batches refused: the producer's error says what to change.",
        snapshot.refused_batches,
    )
    yield counter(
        "kafka_server_bytes_in", "Bytes of record batches appended.", snapshot.produced_bytes
    )
    yield counter(
        "kafka_server_bytes_out", "Bytes of record batches fetched.", snapshot.fetched_bytes
    )
    yield counter(
        "odradek_flushes", "Trips to the disk; many appends share one.", snapshot.flushes
    )
    yield gauge("kafka_server_connections", "Open connections.", snapshot.connection_count)


def _fetches(snapshot: Snapshot) -> Iterable[Metric]:
    yield gauge(
        "kafka_server_delayed_fetches",
        "Fetches that wait for records.",
        snapshot.parked_fetch_count,
    )
    yield gauge(
        "kafka_server_fetch_session_cache_num_incremental_fetch_sessions",
        "Fetch sessions that the broker remembers.",
        snapshot.fetch_session_count,
    )
    yield gauge(
        "kafka_server_fetch_session_cache_num_incremental_fetch_partitions_cached",
        "Partitions of all fetch sessions.",
        snapshot.fetch_session_partition_count,
    )
    yield counter(
        "kafka_server_fetch_session_cache_incremental_fetch_session_evictions",
        "Fetch sessions that had to make room: more slots may be needed.",
        snapshot.fetch_session_evictions,
    )


def _logs(logs: Sequence[LogRow]) -> Iterable[Metric]:
    for name, text, attribute in (
        ("kafka_log_size_bytes", "Bytes of a partition's segments.", "size_bytes"),
        ("kafka_log_start_offset", "First offset that can be read.", "start_offset"),
        ("kafka_log_end_offset", "Offset that the next record gets.", "end_offset"),
        ("kafka_log_num_segments", "Segments of a partition.", "segment_count"),
    ):
        family = GaugeMetricFamily(name, text, labels=["topic", "partition"])
        for row in logs:
            family.add_metric([row.topic, str(row.partition)], getattr(row, attribute))
        yield family


def _disks(snapshot: Snapshot) -> Iterable[Metric]:
    yield gauge(
        "kafka_log_log_manager_offline_log_directory_count",
        "Log directories that cannot be used; /health names them and the cause.",
        snapshot.offline_directory_count,
    )
    yield gauge(
        "kafka_server_replica_manager_offline_replica_count",
        "Partitions that cannot be used because of a disk.",
        snapshot.offline_partition_count,
    )
    failures = CounterMetricFamily(
        "odradek_disk_failures",
        "What a log directory's disk has refused, and damage found on it.",
        labels=["directory"],
    )
    for directory, count in snapshot.disk_failures.items():
        failures.add_metric([directory], count)
    yield failures
