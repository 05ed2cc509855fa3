"""The row of the dashboard about the cleaner."""

from __future__ import annotations

from docs.grafana.panels import BAD, HERE, TOPIC, by, lines, rate, stat, table

CLEANER = [
    stat(
        "Dead threads",
        f"sum(kafka_log_logcleaner_deadthreadcount{{{HERE}}})",
        "none",
        "When all threads are dead, nothing is cleaned; the log has the cause.",
        steps=BAD,
    ),
    stat(
        "Quarantined",
        f"sum(kafka_log_logcleanermanager_uncleanable_partitions_count{{{HERE}}})",
        "none",
        "Partitions whose last cleaning failed.",
        steps=BAD,
    ),
    stat(
        "Most overdue",
        f"max(odradek_cleaner_overdue_seconds{{{TOPIC}}})",
        "s",
        "The longest time by which a log missed max.compaction.lag.ms; see `odradek cleaner why`.",
        steps=[(None, "green"), (1, "orange"), (600, "red")],
    ),
    stat(
        "Filthiest",
        f"max(odradek_cleaner_dirty_ratio{{{TOPIC}}})",
        "percentunit",
        "The highest dirty ratio of a log.",
    ),
    stat(
        "Dirty",
        f"sum(odradek_cleaner_dirty_bytes{{{TOPIC}}})",
        "bytes",
        "Bytes of all compacted partitions that are not clean.",
    ),
    stat(
        "Reclaimed",
        f"sum(increase(odradek_cleaner_reclaimed_bytes_total{{{TOPIC}}}[$__range]))",
        "bytes",
        "Bytes that cleaning freed in the time shown.",
    ),
    stat(
        "Last look",
        f"max(kafka_log_logcleanermanager_time_since_last_run_ms{{{HERE}}})",
        "ms",
        "Time since a thread last looked for work; a thread looks every log.cleaner.backoff.ms.",
        steps=[(None, "green"), (3.6e6, "red")],
    ),
    stat(
        "Map in use",
        f"max(kafka_log_logcleaner_max_buffer_utilization_percent{{{HERE}}})",
        "percent",
        "How full the offset maps of the last runs were; at 100 they spill to the disk.",
    ),
    lines(
        "Clean and dirty bytes",
        [
            (f"sum(odradek_cleaner_clean_bytes{{{TOPIC}}})", "clean"),
            (f"sum(odradek_cleaner_cleanable_bytes{{{TOPIC}}})", "cleanable"),
            (
                f"sum(odradek_cleaner_dirty_bytes{{{TOPIC}}})"
                f" - sum(odradek_cleaner_cleanable_bytes{{{TOPIC}}})",
                "held back",
            ),
        ],
        "bytes",
        "Bytes of the compacted partitions of the chosen topics. The active segment, open"
        " transactions and min.compaction.lag.ms hold bytes back.",
        stacked=True,
    ),
    lines(
        "Dirty ratio against its threshold",
        [
            (f"max by (topic) (odradek_cleaner_dirty_ratio{{{TOPIC}}})", "{{topic}}"),
            (
                f"min(odradek_cleaner_dirty_ratio_threshold{{{TOPIC}}})",
                "min.cleanable.dirty.ratio",
            ),
        ],
        "percentunit",
        "The dirty ratio of each topic's dirtiest partition. A log above its threshold is cleaned"
        " as soon as a thread is free.",
        dashed="min.cleanable.dirty.ratio",
    ),
    lines(
        "Runs",
        [
            (by("topic", f"increase(odradek_cleaner_runs_total{{{TOPIC}}}[5m])"), "{{topic}}"),
            (f"sum(increase(odradek_cleaner_failures_total{{{TOPIC}}}[5m]))", "failed"),
        ],
        "none",
        "Cleanings in five minutes; `odradek cleaner history` lists each of them.",
        dashed="failed",
    ),
    lines(
        "Bytes read, written, given back",
        [
            (f"sum({rate('odradek_cleaner_read_bytes_total')})", "read"),
            (f"sum({rate('odradek_cleaner_written_bytes_total')})", "written"),
            (f"sum({rate('odradek_cleaner_reclaimed_bytes_total', TOPIC)})", "given back"),
        ],
        "Bps",
        "Cost and gain of cleaning; log.cleaner.io.max.bytes.per.second bounds the first two.",
    ),
    lines(
        "Overdue",
        [(f"max by (topic) (odradek_cleaner_overdue_seconds{{{TOPIC}}})", "{{topic}}")],
        "s",
        "The time by which logs missed max.compaction.lag.ms.",
    ),
    table(
        "In quarantine",
        f"odradek_cleaner_uncleanable{{{TOPIC}}} == 1",
        ["topic", "partition", "exception", "file", "position", "offset"],
        "Partitions whose last cleaning failed, and the place of the failure; see /health.",
    ),
]
