"""The cleaner's part of /metrics.

Kafka's gauges of LogCleaner and LogCleanerManager keep their names; metrics that Kafka lacks
begin with `odradek_cleaner_`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from odradek.broker.observability.exposition.families import Family, counter, gauge
from odradek.cleaner.runtime.pool import PoolStatus
from odradek.cleaner.runtime.survey import Finding, survey

if TYPE_CHECKING:
    from odradek.broker.observability.exposition.snapshot import CleanerRow, CleanerRows

_PARTITION = ("topic", "partition")

DEAD = gauge(
    "kafka_log_logcleaner_deadthreadcount",
    "Cleaner threads that should run and do not; when all are dead, nothing is cleaned, and disks"
    " fill. Look in the log for the cause; the broker starts another thread by itself.",
)
DIED = counter(
    "odradek_cleaner_threads_died_total",
    "Cleaner threads that died by an error and were replaced: report the trace in the log.",
)
UTILIZATION = gauge(
    "kafka_log_logcleaner_max_buffer_utilization_percent",
    "How full the offset map of a thread's last run was, the maximum of all threads. At 100, runs"
    " spill to the disk: raise log.cleaner.dedupe.buffer.size.",
)
RECOPY = gauge(
    "kafka_log_logcleaner_cleaner_recopy_percent",
    "Bytes written by the threads' last runs, as a percentage of the bytes read. Near 100, the"
    " runs reclaimed almost nothing: raise min.cleanable.dirty.ratio.",
)
CLEAN_TIME = gauge(
    "kafka_log_logcleaner_max_clean_time_secs",
    "How long a thread's last run took, the maximum of all threads. When it is too long, see"
    " log.cleaner.io.max.bytes.per.second and log.cleaner.threads.",
)
DELAY = gauge(
    "kafka_log_logcleaner_max_compaction_delay_secs",
    "By how much the most overdue log has missed max.compaction.lag.ms. `odradek cleaner why`"
    " says why it was not cleaned; if threads are busy, raise log.cleaner.threads.",
)
DIRTIEST = gauge(
    "kafka_log_logcleanermanager_max_dirty_percent",
    "Dirty percentage of the filthiest compacted log. When it stays above"
    " min.cleanable.dirty.ratio for long, see `odradek cleaner why`.",
)
SINCE_LAST = gauge(
    "kafka_log_logcleanermanager_time_since_last_run_ms",
    "How long ago a thread last looked for a log to clean. When it is longer than a run takes, see"
    " the dead threads.",
)
UNCLEANABLE_COUNT = gauge(
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "Partitions whose last cleaning failed; they are tried again at growing intervals. /health"
    " names them and the cause; `odradek cleaner run` tries at once.",
    "logDirectory",
)
UNCLEANABLE_BYTES = gauge(
    "kafka_log_logcleanermanager_uncleanable_bytes",
    "Dirty bytes of partitions whose last cleaning failed: remove the cause to have them cleaned.",
    "logDirectory",
)
READ = counter(
    "odradek_cleaner_read_bytes_total",
    "Bytes that cleanings have read, in both passes; log.cleaner.io.max.bytes.per.second bounds"
    " the sum of bytes read and written.",
)
WRITTEN = counter(
    "odradek_cleaner_written_bytes_total",
    "Bytes that cleanings have written; segments that stay unchanged do not count.",
)
UNREADABLE = gauge(
    "odradek_cleaner_unreadable_partitions",
    "Compacted partitions whose segments cannot be read, so that they have no metrics: check the"
    " disk.",
)
UNCLEANABLE = gauge(
    "odradek_cleaner_uncleanable",
    "1 for a partition whose last cleaning failed, with the place of the failure; /health explains"
    " it, and `odradek verify` checks the files.",
    *_PARTITION,
    "exception",
    "file",
    "position",
    "offset",
)

OF_FINDINGS: Mapping[Family, Callable[[Finding], float | None]] = {
    gauge(
        "odradek_cleaner_clean_bytes",
        "Bytes that are clean: the latest value of each key, and tombstones that may not be"
        " removed yet.",
        *_PARTITION,
    ): lambda one: one.dirty.clean_bytes,
    gauge(
        "odradek_cleaner_dirty_bytes",
        "Bytes that are not clean, including those that cannot be cleaned yet.",
        *_PARTITION,
    ): lambda one: one.dirty_bytes,
    gauge(
        "odradek_cleaner_cleanable_bytes",
        "Bytes that are not clean and could be cleaned now. When they are far fewer than the dirty"
        " bytes, a transaction, min.compaction.lag.ms or a large active segment is the cause.",
        *_PARTITION,
    ): lambda one: one.dirty.cleanable_bytes,
    gauge(
        "odradek_cleaner_dirty_ratio",
        "The cleanable share of a log, which is compared with min.cleanable.dirty.ratio.",
        *_PARTITION,
    ): lambda one: one.dirty.cleanable_ratio,
    gauge(
        "odradek_cleaner_dirty_ratio_threshold",
        "min.cleanable.dirty.ratio of the topic: above it, the partition is cleaned. Lower it to"
        " clean sooner, at the cost of more reading and writing.",
        *_PARTITION,
    ): lambda one: one.facts.config.min_cleanable_dirty_ratio,
    gauge(
        "odradek_cleaner_overdue_seconds",
        "By how much the partition has missed max.compaction.lag.ms, 0 when it has not: `odradek"
        " cleaner why` says why it was not cleaned.",
        *_PARTITION,
    ): lambda one: one.dirty.overdue_ms / 1000,
    gauge(
        "odradek_cleaner_due_timestamp_seconds",
        "When the partition will be cleaned if nothing is appended; absent when time alone causes"
        " no cleaning.",
        *_PARTITION,
    ): lambda one: None if one.due_ms is None else one.due_ms / 1000,
}
OF_RUNS: Mapping[Family, Callable[[CleanerRow], float | None]] = {
    counter(
        "odradek_cleaner_runs_total", "Cleanings that have succeeded.", *_PARTITION
    ): lambda one: one.totals.run_count,
    counter(
        "odradek_cleaner_failures_total",
        "Cleanings that failed: `odradek cleaner history` has the causes.",
        *_PARTITION,
    ): lambda one: one.totals.failure_count,
    counter(
        "odradek_cleaner_reclaimed_bytes_total",
        "Bytes that cleanings have reclaimed. When many runs reclaim almost nothing, raise"
        " min.cleanable.dirty.ratio.",
        *_PARTITION,
    ): lambda one: one.totals.reclaimed_bytes,
    counter(
        "odradek_cleaner_spilled_bytes_total",
        "Bytes written to temporary files, for maps larger than their share of memory: when that"
        " is frequent, raise log.cleaner.dedupe.buffer.size.",
        *_PARTITION,
    ): lambda one: one.totals.spilled_bytes,
    gauge(
        "odradek_cleaner_last_run_timestamp_seconds",
        "When the last successful cleaning ended.",
        *_PARTITION,
    ): lambda one: one.last.at_ms / 1000 if one.last else None,
    gauge(
        "odradek_cleaner_last_run_duration_seconds",
        "How long the last successful cleaning took.",
        *_PARTITION,
    ): lambda one: one.last.result.total_ms / 1000 if one.last and one.last.result else None,
    gauge(
        "odradek_cleaner_last_reclaimed_bytes",
        "Bytes that the last successful cleaning reclaimed.",
        *_PARTITION,
    ): lambda one: one.last.result.reclaimed_bytes if one.last and one.last.result else None,
}


def cleaner_families(rows: CleanerRows, now_ms: int) -> Iterator[Metric]:
    """Iterate over the families; reads all compacted logs, which takes a while."""
    findings, unreadable = survey([row.noted for row in rows.logs], now_ms)
    yield from _of_threads(rows.status, now_ms)
    yield READ.one(rows.io.read)
    yield WRITTEN.one(rows.io.written)
    yield from _of_failures(findings)
    for family, of_finding in OF_FINDINGS.items():
        yield family.each((one.topic, one.partition, of_finding(one)) for one in findings)
    for family, of_run in OF_RUNS.items():
        yield family.each(
            (one.noted.log.topic, one.noted.log.partition, of_run(one)) for one in rows.logs
        )
    yield UNREADABLE.one(len(unreadable))


def _of_threads(status: PoolStatus, now_ms: int) -> Iterator[Metric]:
    results, choice = status.results_by_thread, status.last_choice
    read_bytes = sum(one.read_bytes for one in results)
    yield DEAD.one(status.threads_wanted - status.threads_alive)
    yield DIED.one(status.threads_died)
    yield UTILIZATION.one(100 * max((one.map_utilization for one in results), default=0.0))
    yield RECOPY.one(100 * sum(one.written_bytes for one in results) / max(read_bytes, 1))
    yield CLEAN_TIME.one(max((one.total_ms for one in results), default=0) / 1000)
    yield DELAY.one(choice.max_overdue_ms / 1000)
    yield DIRTIEST.one(100 * choice.max_dirty_ratio)
    yield SINCE_LAST.one(max(now_ms - choice.at_ms, 0))


def _of_failures(findings: Sequence[Finding]) -> Iterator[Metric]:
    directories = sorted({one.noted.directory for one in findings})
    failed = [
        (one, entry)
        for one in findings
        if (entry := one.noted.standing.quarantined) is not None
    ]
    dirty = [(one.noted.directory, one.dirty.cleanable_bytes) for one, _ in failed]
    yield UNCLEANABLE_COUNT.each(
        (path, sum(where == path for where, _ in dirty)) for path in directories
    )
    yield UNCLEANABLE_BYTES.each(
        (path, sum(size for where, size in dirty if where == path)) for path in directories
    )
    rows = []
    for one, entry in failed:
        places = ("" if it is None else it for it in (entry.file, entry.position, entry.offset))
        kind, _, _ = entry.exception.partition(":")
        rows.append((one.topic, one.partition, kind, *places, 1))
    yield UNCLEANABLE.each(rows)
