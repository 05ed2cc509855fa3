"""The kinds of panels of the dashboard, and the expressions that they show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

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
