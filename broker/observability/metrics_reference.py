"""Prints docs/metrics.md: `python -m broker.observability.metrics_reference`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType

from broker.observability.exposition import (
    authorization,
    cleaner,
    clients,
    groups,
    logins,
    quotas,
    requests,
    storage,
    whole,
)
from broker.observability.exposition.families import Family

_HEAD = """\
# Metrics

What `/metrics` on `metrics.listener` tells. Made by `make docs`; do not edit.

Where Apache Kafka has an MBean, the metric has the name that Prometheus' JMX exporter gives it
with the configuration for Kafka that comes with it (`kafka-2_0_0.yml`, names in lower case), so
dashboards and alerts made for that work here; `kafka_consumergroup_…` are kafka_exporter's names.
What begins with `odradek_` is of Odradek alone. Metrics that clients push (KIP-714) are there as
`kafka_client_…`, and `process_…` are memory, CPU time and open files.

`grafana/odradek.json` is a dashboard of them, `alerts/odradek.yml` are alert rules.

## Pushed to OpenTelemetry

With `odradek.otlp.endpoint=http://127.0.0.1:4318` all of it is pushed to an OpenTelemetry
collector as well, by OTLP over HTTP as gzipped JSON, every `odradek.otlp.interval.ms` (a
minute). An endpoint without a path means `/v1/metrics`; Prometheus takes OTLP at
`/api/v1/otlp/v1/metrics`. Names and labels stay the same, counters are cumulative, and the
resource is `service.name=odradek` with the cluster's id and the node's as `service.instance.id`.
What a collector wants to be shown goes into `odradek.otlp.headers` (`Authorization=Bearer%20…`),
which nothing prints. `https://` is held against the system's authorities, or those of
`SSL_CERT_FILE`.

A collector that does not answer within 10 seconds, or refuses, is told of in the log at once and
then once a minute, and counted in `odradek_otlp_failures_total`; clients wait for none of it.
Pushes are not repeated: counts are since the start, so that the next one has them.
"""
_TABLE = "| metric | type | labels | what it says |\n|---|---|---|---|\n"
_SECTIONS: Mapping[str, ModuleType] = {
    "The broker": whole,
    "Logins": logins,
    "Authorization": authorization,
    "Requests and topics": requests,
    "Partitions and disks": storage,
    "The cleaner": cleaner,
    "Groups and transactions": groups,
    "Quotas and connections": quotas,
    "Metrics of clients": clients,
}


def families(module: ModuleType) -> Iterator[Family]:
    """Iterate over the families that a module declares, in its order."""
    for value in vars(module).values():
        if isinstance(value, Family):
            yield value
        elif isinstance(value, Mapping):
            for one in (*value.keys(), *value.values()):
                if isinstance(one, Family):
                    yield one


def all_families() -> list[Family]:
    """Return all that are declared."""
    return [one for module in _SECTIONS.values() for one in families(module)]


def markdown() -> str:
    """Return the page."""
    page = [_HEAD]
    for title, module in _SECTIONS.items():
        page.append(f"\n## {title}\n\n{_TABLE}")
        for one in families(module):
            labels = ", ".join(f"`{label}`" for label in one.labels)
            page.append(f"| `{one.name}` | {one.kind} | {labels} | {one.text} |\n")
    return "".join(page)


if __name__ == "__main__":
    sys.stdout.write(markdown())
