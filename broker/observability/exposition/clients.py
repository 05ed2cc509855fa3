"""The metrics that clients pushed, as families of /metrics.

`org.apache.kafka.producer.record.send.total` becomes `kafka_client_producer_record_send_total`,
with the labels client_id and client_instance_id in addition to its own. The prefix keeps clients
from using the names of the broker's metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric

from odradek.broker.observability.exposition.families import counter
from odradek.broker.telemetry.clients import ClientRow
from odradek.broker.telemetry.series import Key

DROPPED = counter(
    "odradek_dropped_client_series_total",
    "Values that clients pushed and that were dropped for lack of room: raise"
    " odradek.telemetry.series.max, or let clients push less (kafka-client-metrics).",
)

_PREFIX = "kafka_client_"
_KAFKAS = "org.apache.kafka."
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_]")


def client_families(rows: Sequence[ClientRow], dropped_series: int) -> Iterator[Metric]:
    """Iterate over the families, one for each metric that some client pushed."""
    families: dict[str, Metric] = {}
    for row in rows:
        shown: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
        for key, value in row.series.items():
            name, family_name = _names(key)
            kind = "counter" if key.is_counter else "gauge"
            family = families.get(name)
            if family is None:
                family = Metric(family_name, "Pushed by clients (KIP-714).", kind)
                families[name] = family
            labels = _labels(row, key)
            place = name, tuple(sorted(labels.items()))
            # Of names that differ only in illegal characters, the first one is shown.
            if family.type == kind and place not in shown:
                shown.add(place)
                family.add_sample(name, labels, value)
    yield from families.values()
    yield DROPPED.one(dropped_series)


def _names(key: Key) -> tuple[str, str]:
    """Return the name of a sample, and that of its family."""
    name = _PREFIX + _ILLEGAL.sub("_", key.name.removeprefix(_KAFKAS))
    if not key.is_counter:
        return name, name
    family = name.removesuffix("_total")
    return f"{family}_total", family


def _labels(row: ClientRow, key: Key) -> dict[str, str]:
    own = {_label_name(name): value for name, value in key.labels}
    ours = {"client_id": row.client_id, "client_instance_id": row.client_instance_id}
    return own | ours


def _label_name(name: str) -> str:
    legal = _ILLEGAL.sub("_", name)
    return legal if legal[:1].isalpha() else f"label_{legal}"
