"""Writes docs/grafana/odradek.json: `python -m docs.grafana.dashboard` prints the dashboard."""

from __future__ import annotations

import json
import sys

from docs.grafana.broker_rows import DISK, GROUPS, LATENCY, OVERVIEW, PROCESS, THROUGHPUT
from docs.grafana.cleaner_row import CLEANER
from docs.grafana.cluster_row import CLUSTER
from docs.grafana.panels import DATASOURCE, Json
from docs.grafana.shared_row import SHARED

WIDTH = 24  # of Grafana's grid
ROWS = {
    "Overview": OVERVIEW,
    "Cluster": CLUSTER,
    "Shared topics": SHARED,
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
