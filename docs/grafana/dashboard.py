"""Writes docs/grafana/odradek.json: `python docs/grafana/dashboard.py` prints the dashboard."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

WIDTH = 24  # of Grafana's grid
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
HERE = 'instance=~"$instance"'
# The value for all topics needs a name: the series for all topics together has no name.
TOPIC = f'{HERE},topic=~"$topic"'
GROUP = f'{TOPIC},consumergroup=~"$group"'
IN = "kafka_server_brokertopicmetrics"
CONTROLLER = "kafka_controller_kafkacontroller"
REVISION = "kafka_server_broker_metadata_metrics_last_applied_record_offset"
BAD = [(None, "green"), (1, "red")]


def rate(metric: str, labels: str = HERE) -> str:
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def by(labels: str, expression: str) -> str:
    return f"sum by ({labels}) ({expression})"


def quantile(share: float, labels: str) -> str:
    counts = by("le, request", rate("odradek_request_seconds_bucket", labels))
    return f"histogram_quantile({share}, {counts})"


def target(number: int, expression: str, legend: str, *, is_now: bool = False) -> Json:
    return {
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": expression,
        "legendFormat": legend,
        "refId": "ABCDEFGH"[number],
        "instant": is_now,
        "range": not is_now,
    }


def stat(
    title: str,
    expression: str,
    unit: str,
    help_text: str,
    *,
    steps: Sequence[tuple[float | None, str]] = ((None, "text"),),
    legend: str = "",
) -> Json:
    """Return the panel of a number; each of `steps` is a value and the colour from there on."""
    thresholds = [{"value": at, "color": colour} for at, colour in steps]
    is_rate = unit.endswith("ps")
    return {
        "type": "stat",
        "title": title,
        "description": help_text,
        "datasource": DATASOURCE,
        "targets": [target(0, expression, legend, is_now=not is_rate)],
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "thresholds": {"mode": "absolute", "steps": thresholds},
                "color": {"mode": "thresholds"},
            },
            "overrides": [],
        },
        "options": {
            "colorMode": "value",
            "graphMode": "area" if is_rate else "none",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "name" if legend else "auto",
        },
        "size": (3, 4),
    }


def lines(
    title: str,
    queries: list[tuple[str, str]],
    unit: str,
    help_text: str,
    *,
    stacked: bool = False,
    dashed: str = "",
    width: int = 8,
) -> Json:
    """Return the panel of a plot over time; `dashed` names the line that is a limit."""
    limit = {
        "matcher": {"id": "byRegexp", "options": dashed},
        "properties": [
            {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 8]}},
            {"id": "custom.fillOpacity", "value": 0},
            {"id": "color", "value": {"mode": "fixed", "fixedColor": "red"}},
        ],
    }
    custom = {
        "lineWidth": 1,
        "fillOpacity": 25 if stacked else 8,
        "showPoints": "never",
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
    }
    return {
        "type": "timeseries",
        "title": title,
        "description": help_text,
        "datasource": DATASOURCE,
        "targets": [target(at, *query) for at, query in enumerate(queries)],
        "fieldConfig": {
            "defaults": {"unit": unit, "min": 0, "custom": custom},
            "overrides": [limit] if dashed else [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "size": (width, 8),
    }


def table(title: str, expression: str, columns: list[str], help_text: str) -> Json:
    """Return the panel of a table of present values, a row for each series."""
    hidden = {"Time": True, "Value": True}
    order = {name: at for at, name in enumerate(columns)}
    return {
        "type": "table",
        "title": title,
        "description": help_text,
        "datasource": DATASOURCE,
        "targets": [{**target(0, expression, "", is_now=True), "format": "table"}],
        "fieldConfig": {"defaults": {}, "overrides": []},
        "options": {"showHeader": True},
        "transformations": [
            {"id": "organize", "options": {"excludeByName": hidden, "indexByName": order}}
        ],
        "size": (8, 8),
    }


def total(name: str) -> str:
    return rate(f"{IN}_{name}_total", f'{HERE},topic=""')


def of_topics(name: str) -> str:
    return by("topic", rate(f"{IN}_{name}_total", TOPIC))


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
CLUSTER = [
    stat(
        "Brokers alive",
        f"max({CONTROLLER}_activebrokercount{{{HERE}}})",
        "none",
        "Brokers with a session in the catalog; 1 without a catalog.",
    ),
    stat(
        "Brokers away",
        f"max({CONTROLLER}_fencedbrokercount{{{HERE}}})",
        "none",
        "Brokers that are away with the files of partitions.",
        steps=BAD,
    ),
    stat(
        "Without leader",
        f"max({CONTROLLER}_offlinepartitionscount{{{HERE}}})",
        "none",
        "Partitions that can be neither read nor written: a disk refuses them, or their broker is"
        " away. /api/cluster and /health name them.",
        steps=BAD,
    ),
    stat(
        "Suspended",
        f"sum(odradek_session_suspended{{{HERE}}})",
        "none",
        "Brokers that serve nothing, since their session in the catalog has ended.",
        steps=BAD,
    ),
    stat(
        "Shortest lease",
        f"min(odradek_session_lease_seconds{{{HERE}}})",
        "s",
        "The time that is left of a broker's session. At 0 the broker stops serving.",
        steps=[(None, "red"), (1, "green")],
    ),
    stat(
        "Catalog silent",
        f"max(odradek_catalog_silence_seconds{{{HERE}}})",
        "s",
        "The longest time since the catalog last answered a broker.",
        steps=[(None, "green"), (1, "orange"), (10, "red")],
    ),
    stat(
        "Changes",
        f"max({REVISION}{{{HERE}}})",
        "none",
        "The revision of the metadata, which grows with each change.",
    ),
    stat(
        "Behind",
        f"max({REVISION}{{{HERE}}}) - min({REVISION}{{{HERE}}})",
        "none",
        "Changes that the last of the brokers has not followed yet.",
        steps=BAD,
    ),
    lines(
        "Partitions led",
        [(f"kafka_server_replicamanager_leadercount{{{HERE}}}", "{{instance}}")],
        "none",
        "Partitions that each broker leads, and that are not offline.",
        stacked=True,
    ),
    lines(
        "Catalog",
        [
            (
                "histogram_quantile(0.99, "
                + by("le, kind", rate("odradek_catalog_seconds_bucket"))
                + ")",
                "p99 {{kind}}",
            )
        ],
        "s",
        "The time of transactions in the catalog: changes, extended leases, reads.",
    ),
    lines(
        "Trouble with the catalog",
        [
            (f"sum({rate('odradek_catalog_failures_total')})", "failed"),
            (f"sum({rate('odradek_catalog_conflicts_total')})", "decided again"),
        ],
        "ops",
        "Transactions that failed, and changes that another broker's change had preceded.",
        dashed="failed",
    ),
]
ROWS = {
    "Overview": OVERVIEW,
    "Cluster": CLUSTER,
    "Cleaner": CLEANER,
    "Throughput": THROUGHPUT,
    "Latency": LATENCY,
    "Groups and lag": GROUPS,
    "Disk": DISK,
    "Process": PROCESS,
}


def panels() -> list[Json]:
    """Place the panels of all rows, from left to right and from the top."""
    placed: list[Json] = []
    y = 0
    for title, row in ROWS.items():
        place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        placed.append({"type": "row", "title": title, "collapsed": False, "gridPos": place})
        y, x, height = y + 1, 0, 0
        for panel in row:
            width, tall = panel["size"]
            if x + width > WIDTH:
                x, y, height = 0, y + height, 0
            place = {"x": x, "y": y, "w": width, "h": tall}
            shown = {name: value for name, value in panel.items() if name != "size"}
            placed.append({**shown, "gridPos": place})
            x, height = x + width, max(height, tall)
        y += height
    return [{"id": at, **panel} for at, panel in enumerate(placed, 1)]


def variable(name: str, label: str, metric: str, of: str) -> Json:
    query = f"label_values({metric}, {of})"
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def dashboard() -> Json:
    """Return the whole dashboard."""
    datasource = {"type": "datasource", "name": "datasource", "label": "Data source"}
    return {
        "uid": "odradek",
        "title": "Odradek",
        "description": "A broker of Kafka's protocol and its cleaner. Written by `make docs`.",
        "tags": ["kafka", "odradek"],
        "schemaVersion": 38,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {
            "list": [
                {**datasource, "query": "prometheus", "current": {}},
                variable("instance", "Broker", "odradek_build_info", "instance"),
                variable("topic", "Topic", "kafka_log_log_size", "topic"),
                variable("group", "Group", "kafka_consumergroup_members", "consumergroup"),
            ]
        },
        "annotations": {"list": []},
        "panels": panels(),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(dashboard(), indent=2) + "\n")
