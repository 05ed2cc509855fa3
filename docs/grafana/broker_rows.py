"""The rows of the dashboard about the broker as a whole, its load and its machine."""

from __future__ import annotations

from docs.grafana.panels import (
    BAD,
    GROUP,
    HERE,
    TOPIC,
    by,
    lines,
    of_topics,
    quantile,
    rate,
    stat,
    total,
)

OVERVIEW = [
    stat(
        "Version",
        f"odradek_build_info{{{HERE}}}",
        "none",
        "The version that runs.",
        legend="{{version}}",
    ),
    stat(
        "Problems",
        f"sum(odradek_health_problems{{{HERE}}})",
        "none",
        "GET /health describes each problem in a sentence.",
        steps=BAD,
    ),
    stat("Records in", f"sum({total('messagesin')})", "cps", "Records that producers appended."),
    stat("Bytes in", f"sum({total('bytesin')})", "Bps", "Bytes of the record batches appended."),
    stat("Bytes out", f"sum({total('bytesout')})", "Bps", "Bytes of the record batches fetched."),
    stat(
        "Connections",
        f"sum(kafka_server_socket_server_metrics_connection_count{{{HERE}}})",
        "none",
        "Connections that are open now.",
    ),
    stat(
        "Partitions offline",
        f"sum(kafka_server_replicamanager_offlinereplicacount{{{HERE}}})",
        "none",
        "Partitions that can be neither read nor written; /health has the cause.",
        steps=BAD,
    ),
    stat(
        "Disk free",
        f"min(odradek_disk_free_bytes{{{HERE}}} / odradek_disk_size_bytes{{{HERE}}})",
        "percentunit",
        "Free space of the fullest volume.",
        steps=[(None, "red"), (0.1, "orange"), (0.25, "green")],
    ),
]
THROUGHPUT = [
    lines(
        "Bytes in",
        [(of_topics("bytesin"), "{{topic}}")],
        "Bps",
        "Appended, by topic.",
        stacked=True,
    ),
    lines(
        "Bytes out",
        [(of_topics("bytesout"), "{{topic}}")],
        "Bps",
        "Fetched, by topic.",
        stacked=True,
    ),
    lines("Records", [(of_topics("messagesin"), "{{topic}}")], "cps", "Appended, by topic."),
    lines(
        "Requests",
        [(by("request", rate("kafka_network_requestmetrics_requests_total")), "{{request}}")],
        "reqps",
        "Requests of each API, in all versions.",
        width=12,
    ),
    lines(
        "Errors",
        [
            (
                by("request, error", rate("kafka_network_requestmetrics_errors_total")),
                "{{request}} {{error}}",
            ),
            (f"sum({rate('odradek_failed_requests_total')})", "bugs of the broker"),
            (f"sum({rate('odradek_malformed_requests_total')})", "malformed"),
        ],
        "reqps",
        "Answers with an error code. Some of them are normal, such as REBALANCE_IN_PROGRESS.",
        width=12,
    ),
]
LATENCY = [
    lines(
        title,
        [(quantile(share, f'{HERE},request{which}'), legend) for share, legend in shown],
        "s",
        help_text,
    )
    for title, which, shown, help_text in (
        (
            "Produce",
            '="Produce"',
            [(0.5, "p50"), (0.95, "p95"), (0.99, "p99")],
            "With acks=all, this is the time until the batch is on the disk.",
        ),
        (
            "Fetch",
            '="Fetch"',
            [(0.5, "p50"), (0.95, "p95"), (0.99, "p99")],
            "Includes the time that a fetch waits for records, at most fetch.max.wait.ms.",
        ),
        (
            "Other requests",
            '!~"Produce|Fetch|ShareFetch|JoinGroup|SyncGroup"',
            [(0.99, "p99 {{request}}")],
            "Without requests that wait for records or other members by design.",
        ),
    )
]
GROUPS = [
    lines(
        "Lag",
        [
            (
                f"topk(15, {by('consumergroup, topic', f'kafka_consumergroup_lag{{{GROUP}}}')})",
                "{{consumergroup}} {{topic}}",
            )
        ],
        "none",
        "The number of offsets that a group still has to read, in all partitions.",
    ),
    lines(
        "Read",
        [
            (
                by(
                    "consumergroup, topic",
                    f"deriv(kafka_consumergroup_current_offset{{{GROUP}}}[5m])",
                ),
                "{{consumergroup}} {{topic}}",
            )
        ],
        "cps",
        "The rate at which the committed offsets rise.",
    ),
    lines(
        "Members",
        [
            (
                f'kafka_consumergroup_members{{{HERE},consumergroup=~"$group"}}',
                "{{consumergroup}}",
            )
        ],
        "none",
        "0 while the lag grows means that nobody reads.",
    ),
    lines(
        "Groups",
        [(f"kafka_server_group_coordinator_metrics_group_count{{{HERE}}}", "{{protocol}}")],
        "none",
        "Groups of each protocol.",
        stacked=True,
        width=12,
    ),
    lines(
        "Transactional ids",
        [(f"odradek_transactional_ids{{{HERE}}}", "{{state}}")],
        "none",
        "Ids in each state. A long Ongoing holds back read_committed consumers and the cleaner.",
        stacked=True,
        width=12,
    ),
]
DISK = [
    lines(
        "Free",
        [
            (f"odradek_disk_free_bytes{{{HERE}}}", "free {{directory}}"),
            (f"odradek_disk_size_bytes{{{HERE}}}", "size {{directory}}"),
        ],
        "bytes",
        "Free space of each log directory's volume.",
        dashed="size.*",
    ),
    lines(
        "Largest topics",
        [(f"topk(15, {by('topic', f'kafka_log_log_size{{{TOPIC}}}')})", "{{topic}}")],
        "bytes",
        "Bytes of the segments of all partitions.",
        stacked=True,
    ),
    lines(
        "Segments",
        [(by("topic", f"kafka_log_log_numlogsegments{{{TOPIC}}}"), "{{topic}}")],
        "none",
        "Each segment has open files: raise segment.bytes when there are thousands.",
        stacked=True,
    ),
    lines(
        "Flushes",
        [(rate("odradek_flushes_total"), "flushes")],
        "ops",
        "Writes to the disk; many appends share one flush.",
        width=12,
    ),
    lines(
        "Trouble",
        [(f"increase(odradek_disk_failures_total{{{HERE}}}[5m])", "{{directory}}")],
        "none",
        "Operations that a disk refused in five minutes, and damage found on it.",
        width=12,
    ),
]
PROCESS = [
    lines(
        "CPU",
        [(rate("process_cpu_seconds_total"), "cores")],
        "none",
        "1 is a core: the event loop uses one, cleaner threads use more.",
    ),
    lines(
        "Memory",
        [(f"process_resident_memory_bytes{{{HERE}}}", "resident")],
        "bytes",
        "Resident memory, without the page cache.",
    ),
    lines(
        "Files",
        [
            (f"process_open_fds{{{HERE}}}", "open"),
            (f"process_max_fds{{{HERE}}}", "limit"),
        ],
        "none",
        "Files of connections and segments; odradek.open.files.max bounds those of segments.",
        dashed="limit",
    ),
]
