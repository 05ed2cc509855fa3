"""The cleaner's part of /metrics.

Kafka's gauges of LogCleaner and LogCleanerManager keep their names, a word that would be there
twice said once; what Kafka has nothing of begins with `odradek_cleaner_`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from broker.families import by_partition, counter, gauge
from cleaner.pool import PoolStatus
from cleaner.survey import Finding, survey

if TYPE_CHECKING:
    from broker.metrics import CleanerRow, Snapshot


def cleaner_families(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield every family; looks at all compacted logs, which takes a while."""
    findings, unreadable = survey([row.noted for row in snapshot.cleaner_rows], snapshot.now_ms)
    yield from _of_threads(snapshot.cleaner)
    yield from _of_logs(snapshot, findings)
    yield from _of_partitions(findings)
    yield from _of_runs(snapshot.cleaner_rows)
    yield gauge(
        "odradek_cleaner_unreadable_partitions",
        "Compacted partitions whose segments cannot be looked at, and which have no metrics.",
        len(unreadable),
    )


def _of_threads(status: PoolStatus) -> Iterator[Metric]:
    results = status.results_by_thread
    yield gauge(
        "kafka_log_cleaner_dead_thread_count",
        "Cleaner threads that should run and do not: look in the log for the cause.",
        status.threads_wanted - status.threads_alive,
    )
    yield counter(
        "odradek_cleaner_threads_died",
        "Cleaner threads that ended by an error, and were replaced.",
        status.threads_died,
    )
    yield gauge(
        "kafka_log_cleaner_max_buffer_utilization_percent",
        "How full the offset map of a thread's last run was; the fullest of all threads.",
        100 * max((one.map_utilization for one in results), default=0.0),
    )
    read_bytes = sum(one.read_bytes for one in results)
    yield gauge(
        "kafka_log_cleaner_recopy_percent",
        "Bytes written by the threads' last runs, as a share of those read.",
        100 * sum(one.written_bytes for one in results) / max(read_bytes, 1),
    )
    yield gauge(
        "kafka_log_cleaner_max_clean_time_secs",
        "How long a thread's last run took; the longest of all threads.",
        max((one.total_ms for one in results), default=0) / 1000,
    )
    yield gauge(
        "kafka_log_cleaner_max_compaction_delay_secs",
        "By how much the most overdue log has missed max.compaction.lag.ms.",
        status.last_choice.max_overdue_ms / 1000,
    )


def _of_logs(snapshot: Snapshot, findings: Sequence[Finding]) -> Iterator[Metric]:
    choice = snapshot.cleaner.last_choice
    yield gauge(
        "kafka_log_cleaner_manager_max_dirty_percent",
        "Dirty share of the filthiest compacted log.",
        100 * choice.max_dirty_ratio,
    )
    yield gauge(
        "kafka_log_cleaner_manager_time_since_last_run_ms",
        "How long ago a thread last looked for a log to clean.",
        max(snapshot.now_ms - choice.at_ms, 0),
    )
    directories = {one.noted.directory for one in findings}
    failed = [one for one in findings if one.noted.standing.quarantined is not None]
    yield _by_directory(
        "kafka_log_cleaner_manager_uncleanable_partitions_count",
        "Partitions whose last cleaning failed; /health names them and the cause.",
        ((one, sum(f.noted.directory == one for f in failed)) for one in directories),
    )
    yield _by_directory(
        "kafka_log_cleaner_manager_uncleanable_bytes",
        "Dirty bytes of partitions whose last cleaning failed.",
        (
            (one, sum(f.dirty.cleanable_bytes for f in failed if f.noted.directory == one))
            for one in directories
        ),
    )


def _by_directory(name: str, text: str, values: Iterable[tuple[Path, int]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["log_directory"])
    for directory, value in sorted(values):
        family.add_metric([str(directory)], value)
    return family


def _of_partitions(findings: Sequence[Finding]) -> Iterator[Metric]:
    def family(name: str, text: str, value: Callable[[Finding], float | None]) -> Metric:
        return by_partition(
            GaugeMetricFamily,
            f"odradek_cleaner_{name}",
            text,
            ((one.topic, one.partition, value(one)) for one in findings),
        )

    yield family(
        "dirty_bytes", "Bytes that are not clean.", lambda one: one.dirty_bytes
    )
    yield family(
        "cleanable_bytes",
        "Bytes that are not clean, and could be cleaned now.",
        lambda one: one.dirty.cleanable_bytes,
    )
    yield family(
        "dirty_ratio",
        "The cleanable share, which min.cleanable.dirty.ratio is compared with.",
        lambda one: one.dirty.cleanable_ratio,
    )
    yield family(
        "due_timestamp_seconds",
        "When there is a reason to clean, if nothing is appended; absent when time brings none.",
        lambda one: None if one.due_ms is None else one.due_ms / 1000,
    )
    uncleanable = GaugeMetricFamily(
        "odradek_cleaner_uncleanable",
        "1 for a partition whose last cleaning failed, with where; /health has the sentence.",
        labels=["topic", "partition", "exception", "file", "position", "offset"],
    )
    for one in findings:
        failed = one.noted.standing.quarantined
        if failed is not None:
            places = (failed.file, failed.position, failed.offset)
            where = ("" if it is None else str(it) for it in places)
            kind, _, _ = failed.exception.partition(":")
            uncleanable.add_metric([one.topic, str(one.partition), kind, *where], 1)
    yield uncleanable


def _of_runs(rows: Sequence[CleanerRow]) -> Iterator[Metric]:
    def family(
        name: str,
        text: str,
        value: Callable[[CleanerRow], float | None],
        make: type[CounterMetricFamily] | type[GaugeMetricFamily] = CounterMetricFamily,
    ) -> Metric:
        return by_partition(
            make,
            f"odradek_cleaner_{name}",
            text,
            ((one.noted.log.topic, one.noted.log.partition, value(one)) for one in rows),
        )

    yield family("runs", "Cleanings that went well.", lambda one: one.totals.run_count)
    yield family("failures", "Cleanings that failed.", lambda one: one.totals.failure_count)
    yield family(
        "reclaimed_bytes", "Bytes given back.", lambda one: one.totals.reclaimed_bytes
    )
    yield family(
        "spilled_bytes",
        "Bytes written to temporary files, for maps larger than their share of memory.",
        lambda one: one.totals.spilled_bytes,
    )
    yield family(
        "last_run_timestamp_seconds",
        "When the last cleaning ended that went well.",
        lambda one: one.last.at_ms / 1000 if one.last else None,
        GaugeMetricFamily,
    )
    yield family(
        "last_run_duration_seconds",
        "How long the last cleaning took that went well.",
        lambda one: one.last.result.total_ms / 1000 if one.last and one.last.result else None,
        GaugeMetricFamily,
    )
    yield family(
        "last_reclaimed_bytes",
        "Bytes that the last cleaning gave back.",
        lambda one: one.last.result.reclaimed_bytes if one.last and one.last.result else None,
        GaugeMetricFamily,
    )
