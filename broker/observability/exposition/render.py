"""Writes the text of /metrics: names, meanings and values, as Prometheus reads them.

Where Kafka has an MBean, the metric has the name that Prometheus' JMX exporter gives it with its
configuration for Kafka; dashboards and alerts for these names work here. Our own names begin with
`odradek_`.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric

from odradek.broker.observability.exposition.authorization import authorization_families
from odradek.broker.observability.exposition.cleaner import cleaner_families
from odradek.broker.observability.exposition.clients import client_families
from odradek.broker.observability.exposition.cluster import cluster_families
from odradek.broker.observability.exposition.groups import group_families
from odradek.broker.observability.exposition.logins import login_families
from odradek.broker.observability.exposition.objects import object_families
from odradek.broker.observability.exposition.quotas import quota_families
from odradek.broker.observability.exposition.requests import request_families
from odradek.broker.observability.exposition.snapshot import Snapshot
from odradek.broker.observability.exposition.storage import storage_families
from odradek.broker.observability.exposition.whole import whole_families


def render(snapshot: Snapshot) -> bytes:
    """Write a snapshot as text, with the memory, CPU time and open files of the process.

    With thousands of partitions this takes a tenth of a second, so a thread calls it.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(snapshot))
    return generate_latest(registry)


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Iterate over all families, including those of the process; in a thread, as render()."""
    yield from whole_families(snapshot)
    yield from cluster_families(snapshot.cluster)
    yield from login_families(snapshot.logins, snapshot.certificates)
    yield from authorization_families(snapshot.authorizations)
    yield from request_families(snapshot)
    yield from storage_families(snapshot)
    yield from object_families(snapshot.shared)
    yield from cleaner_families(snapshot.cleaner, snapshot.now_ms)
    yield from group_families(snapshot.groups, snapshot.transactions)
    yield from quota_families(snapshot.quotas)
    yield from client_families(snapshot.clients, snapshot.dropped_client_series)
    yield from ProcessCollector(registry=None).collect()


class SnapshotCollector:
    """A snapshot with the interface of prometheus_client's collectors."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """Iterate over all families."""
        return collect(self._snapshot)
