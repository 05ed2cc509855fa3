"""What the broker counts, and how /metrics shows it.

Counters are plain integers, since a Prometheus counter's lock would cost more than the request
that it counts; a collector reads them when /metrics is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.core import Metric

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


class BrokerCollector:
    """Reads the broker for Prometheus."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def collect(self) -> Iterator[Metric]:
        """Yield every series."""
        yield from self._requests()
        yield from self._logs()
        yield from self._cleaner()

    def _requests(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        from broker.apis import BY_KEY

        metrics = self._broker.metrics
        requests = CounterMetricFamily(
            "kafka_network_requests", "Requests served, by API.", labels=["request"]
        )
        for key, count in metrics.requests.items():
            requests.add_metric([BY_KEY[key].name], count)
        yield requests
        for name, text, value in (
            (
                "odradek_malformed_requests",
                "Connections closed for bytes that are no request: look in the log for the peer.",
                metrics.malformed_requests,
            ),
            (
                "odradek_failed_requests",
                "Requests that hit a bug in the broker: report the trace in the log.",
                metrics.failed_requests,
            ),
            (
                "odradek_refused_batches",
                "Record batches refused: the producer's error says what to change.",
                metrics.refused_batches,
            ),
            ("kafka_server_bytes_in", "Bytes of record batches appended.", metrics.produced_bytes),
            ("kafka_server_bytes_out", "Bytes of record batches fetched.", metrics.fetched_bytes),
            (
                "odradek_flushes",
                "Trips to the disk; many appends share one.",
                self._broker.group_commit.flushes,
            ),
        ):
            counter = CounterMetricFamily(name, text)
            counter.add_metric([], value)
            yield counter
        connections = GaugeMetricFamily("kafka_server_connections", "Open connections.")
        connections.add_metric([], len(self._broker.server.connections))
        yield connections

    def _logs(self) -> Iterable[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        labels = ["topic", "partition"]
        families = {
            "kafka_log_size_bytes": ("Bytes of a partition's segments.", "size_bytes"),
            "kafka_log_start_offset": ("First offset that can be read.", "log_start_offset"),
            "kafka_log_end_offset": ("Offset that the next record gets.", "log_end_offset"),
        }
        logs = list(self._broker.logs())
        for name, (text, attribute) in families.items():
            gauge = GaugeMetricFamily(name, text, labels=labels)
            for log in logs:
                gauge.add_metric([log.topic, str(log.partition)], getattr(log, attribute))
            yield gauge
        segments = GaugeMetricFamily("kafka_log_num_segments", "Segments.", labels=labels)
        for log in logs:
            segments.add_metric([log.topic, str(log.partition)], len(log.segments))
        yield segments

    def _cleaner(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        status = self._broker.cleaner.status()
        for name, text, value in (
            (
                "kafka_log_cleaner_dead_thread_count",
                "Cleaner threads that should run and do not: look in the log for the cause.",
                status.threads_wanted - status.threads_alive,
            ),
            (
                "kafka_log_cleaner_manager_max_dirty_percent",
                "Dirty share of the filthiest compacted log.",
                100 * status.last_choice.max_dirty_ratio,
            ),
            (
                "kafka_log_cleaner_max_compaction_delay_secs",
                "By how much the most overdue log has missed max.compaction.lag.ms.",
                status.last_choice.max_overdue_ms / 1000,
            ),
            (
                "kafka_log_cleaner_manager_uncleanable_partitions_count",
                "Partitions whose last cleaning failed; /health names them and the cause.",
                len(status.quarantined),
            ),
        ):
            gauge = GaugeMetricFamily(name, text)
            gauge.add_metric([], value)
            yield gauge
        died = CounterMetricFamily(
            "odradek_cleaner_threads_died", "Cleaner threads that ended by an error, replaced."
        )
        died.add_metric([], status.threads_died)
        yield died
        reclaimed = GaugeMetricFamily(
            "odradek_cleaner_last_reclaimed_bytes",
            "Bytes that a partition's last cleaning gave back.",
            labels=["topic", "partition"],
        )
        for result in status.last_results:
            reclaimed.add_metric([result.topic, str(result.partition)], result.reclaimed_bytes)
        yield reclaimed
