"""The brokers of the cluster, and the catalog; without one, its families are empty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from odradek.broker.observability.exposition.families import counter, gauge, histogram
from odradek.broker.observability.exposition.times import as_histogram

if TYPE_CHECKING:
    from odradek.broker.observability.exposition.cluster_rows import CatalogRow, ClusterRow

_CONTROLLER = "kafka_controller_kafkacontroller"
_MS_PER_S = 1000

ALIVE = gauge(
    f"{_CONTROLLER}_activebrokercount",
    "Brokers that are alive, as this one knows; 1 without a catalog. When it falls, look at the"
    " log of the broker that is missing in `odradek cluster brokers`.",
)
AWAY = gauge(
    f"{_CONTROLLER}_fencedbrokercount",
    "Brokers that are away and have the files of partitions, which have no leader until they are"
    " back: /api/cluster names them.",
)
CONTROLLER = gauge(
    f"{_CONTROLLER}_activecontrollercount",
    "1 at the live broker with the lowest node id, 0 at the others, so that the sum is 1 as in"
    " Kafka; each broker carries out changes.",
)
REVISION = gauge(
    "kafka_server_broker_metadata_metrics_last_applied_record_offset",
    "Revision of the metadata that this broker has, which grows with each change. In a cluster,"
    " all brokers have the same one within 100 ms; one that stays behind cannot use the catalog.",
)
LEASE = gauge(
    "odradek_session_lease_seconds",
    "Seconds that are left of the lease of this broker's session, which it extends every"
    " broker.heartbeat.interval.ms. At 0 it stops serving.",
)
SUSPENDED = gauge(
    "odradek_session_suspended",
    "1 while this broker serves nothing, since it could not extend its session in the catalog:"
    " /health has the cause.",
)
SILENCE = gauge(
    "odradek_catalog_silence_seconds",
    "Seconds since the catalog last answered; it is asked every 40 ms. When it grows, see the log"
    " for the cause, and whether the database runs and can be reached.",
)
SECONDS = histogram(
    "odradek_catalog_seconds",
    "Seconds that transactions in the catalog took, by kind: changes of the metadata, extended"
    " leases, reads. When they rise, look at the load of the database and at the network.",
    "kind",
)
FAILURES = counter(
    "odradek_catalog_failures_total",
    "Transactions in the catalog that failed: the log has the cause.",
)
CONFLICTS = counter(
    "odradek_catalog_conflicts_total",
    "Changes that were decided again, since another broker had changed the metadata meanwhile.",
)


def cluster_families(row: ClusterRow) -> Iterator[Metric]:
    """Iterate over the families."""
    yield ALIVE.one(row.alive_count)
    yield AWAY.one(row.away_count)
    yield CONTROLLER.one(int(row.is_controller))
    yield REVISION.one(row.revision)
    if row.catalog is not None:
        yield from _of_catalog(row.catalog)
    else:
        for one in (LEASE, SUSPENDED, SILENCE, SECONDS, FAILURES, CONFLICTS):
            yield one.empty()


def _of_catalog(row: CatalogRow) -> Iterator[Metric]:
    yield LEASE.one(row.standing.lease_left_ms / _MS_PER_S)
    yield SUSPENDED.one(int(row.standing.is_suspended))
    yield SILENCE.one(row.silence_ms / _MS_PER_S)
    yield as_histogram(SECONDS, ((kind, *of) for kind, of in row.times.items()))
    yield FAILURES.one(row.failures)
    yield CONFLICTS.one(row.conflicts)
