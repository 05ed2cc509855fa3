"""The values of the cluster at one moment, as this broker sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.broker.counters.latency import Counts
from odradek.broker.topics.leadership import count_leaders
from odradek.dataclass import dataclass

if TYPE_CHECKING:
    from odradek.broker.catalog.membership import Membership, Standing
    from odradek.broker.observability.observed import Observed


@dataclass(frozen=True, slots=True)
class CatalogRow:
    """The values of the catalog, and of the session in it."""

    standing: Standing
    silence_ms: int
    times: Mapping[str, tuple[Counts, int]]  # and their sum in microseconds, by kind
    failures: int
    conflicts: int


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """The values of the cluster; a broker without a catalog is all of it."""

    revision: int
    partition_count: int
    leader_count: int
    leaderless_count: int
    moving_count: int = 0
    alive_count: int = 1
    away_count: int = 0
    is_controller: bool = True
    catalog: CatalogRow | None = None


async def read_cluster(broker: Observed, online_count: int, offline_count: int) -> ClusterRow:
    """Read the values; the counts are those of this broker's partitions."""
    membership, revision = broker.membership, broker.store.revision
    if membership is None:
        return ClusterRow(revision, online_count + offline_count, online_count, 0)
    catalog = _catalog(membership)
    alive = {one.node_id for one in broker.brokers}
    if catalog.standing.is_suspended:
        alive.discard(broker.node_id)
    topics = list(broker.topics)
    found = await asyncio.to_thread(count_leaders, topics, broker.node_id)
    return ClusterRow(
        revision,
        partition_count=found.partition_count,
        leader_count=max(found.led[broker.node_id] - offline_count, 0),
        leaderless_count=found.leaderless_count,
        moving_count=found.moving[broker.node_id],
        alive_count=len(alive),
        away_count=len(found.known - alive),
        is_controller=broker.node_id == min(alive, default=None),
        catalog=catalog,
    )


def _catalog(membership: Membership) -> CatalogRow:
    calls = membership.store.calls
    times = {"change": calls.changes, "lease": calls.leases, "read": calls.reads}
    return CatalogRow(
        standing=membership.standing(),
        silence_ms=calls.silence_ms,
        times={kind: (one.counts.copy(), one.total_us) for kind, one in times.items()},
        failures=calls.failures,
        conflicts=calls.conflicts,
    )
