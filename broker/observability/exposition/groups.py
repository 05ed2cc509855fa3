"""Groups, their lag, and transactions.

Kafka's brokers do not report lag; the names are those of kafka_exporter, which most dashboards
for Kafka's consumer groups use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from odradek.broker.observability.exposition.families import gauge

if TYPE_CHECKING:
    from odradek.broker.observability.exposition.group_rows import GroupRows

_CLASSIC = "classic"
_TYPES = (_CLASSIC, "consumer", "share", "streams")
_OF_MANAGER = "kafka_coordinator_group_groupmetadatamanager"

OFFSET = gauge(
    "kafka_consumergroup_current_offset",
    "The offset that a group has committed for a partition.",
    "consumergroup",
    "topic",
    "partition",
)
LAG = gauge(
    "kafka_consumergroup_lag",
    "Offsets between a group's committed offset and the last stable offset. When it grows, the"
    " group reads too slowly or not at all: look at its members, then at its log. A compacted"
    " topic has fewer records than offsets.",
    "consumergroup",
    "topic",
    "partition",
)
MEMBERS = gauge(
    "kafka_consumergroup_members",
    "Members of a group. When it is 0 while the lag grows, nobody reads.",
    "consumergroup",
)
SHARE_START = gauge(
    "odradek_sharegroup_start_offset",
    "The first offset that a share group has not finished.",
    "sharegroup",
    "topic",
    "partition",
)
SHARE_LAG = gauge(
    "odradek_sharegroup_lag",
    "Records that a share group has yet to accept or reject, including those that its members"
    " hold; the same number as in `kafka-share-groups --describe`. When it grows, add members.",
    "sharegroup",
    "topic",
    "partition",
)
SHARE_MEMBERS = gauge(
    "odradek_sharegroup_members",
    "Members of a share group. When it is 0 while the lag grows, nobody reads.",
    "sharegroup",
)
LEFT_OUT = gauge(
    "odradek_group_series_left_out",
    "Partitions of groups whose offset and lag are not shown, of the last groups by name: raise"
    " odradek.group.series.max.",
)
GROUPS = gauge(
    "kafka_server_group_coordinator_metrics_group_count",
    "Groups by protocol; groups without offsets and members are removed by themselves.",
    "protocol",
)
CONSUMER_STATES = gauge(
    "kafka_server_group_coordinator_metrics_consumer_group_count",
    "Groups of the consumer protocol by state. When one is Reconciling for long, a member does not"
    " give up its partitions.",
    "state",
)
SHARE_STATES = gauge(
    "kafka_server_group_coordinator_metrics_share_group_count",
    "Share groups by state.",
    "state",
)
STREAMS_STATES = gauge(
    "kafka_server_group_coordinator_metrics_streams_group_count",
    "Streams groups by state. When one is NotReady for long, topics of its application are missing"
    " or do not fit together: the application logs which.",
    "state",
)
CLASSIC = gauge(f"{_OF_MANAGER}_numgroups", "Groups of the classic protocol.")
OFFSETS = gauge(f"{_OF_MANAGER}_numoffsets", "Offsets that all groups have committed.")
CLASSIC_STATES = {
    state: gauge(
        f"{_OF_MANAGER}_numgroups{state.lower()}",
        f"Groups of the classic protocol that are {state}.{advice}",
    )
    for state, advice in {
        "Stable": "",
        "Empty": " They have offsets and no members.",
        "PreparingRebalance": " If for long, a member does not join again in time.",
        "CompletingRebalance": " If for long, the leader does not send the assignment.",
        "Dead": "",
    }.items()
}
TRANSACTIONS = gauge(
    "odradek_transactional_ids",
    "Transactional ids by state. A transaction that is Ongoing for long holds back read_committed"
    " consumers and the cleaner: `kafka-transactions find-hanging` names it.",
    "state",
)


def group_families(rows: GroupRows, transactions: Mapping[str, int]) -> Iterator[Metric]:
    """Iterate over the families."""
    yield OFFSET.each((one.group, one.topic, one.partition, one.offset) for one in rows.offsets)
    yield LAG.each((one.group, one.topic, one.partition, one.lag) for one in rows.offsets)
    yield MEMBERS.each(rows.members)
    yield SHARE_START.each(
        (one.group, one.topic, one.partition, one.start_offset) for one in rows.shares
    )
    yield SHARE_LAG.each((one.group, one.topic, one.partition, one.lag) for one in rows.shares)
    yield SHARE_MEMBERS.each(rows.share_members)
    left_out = rows.offset_count - len(rows.offsets) + rows.share_count - len(rows.shares)
    yield LEFT_OUT.one(left_out)
    yield GROUPS.each((one, _sum(rows, one)) for one in _TYPES)
    yield CONSUMER_STATES.each(
        (state, rows.states.get(("consumer", state), 0))
        for state in ("Empty", "Assigning", "Reconciling", "Stable")
    )
    yield SHARE_STATES.each(
        (state, rows.states.get(("share", state), 0)) for state in ("Empty", "Stable")
    )
    yield STREAMS_STATES.each(
        (state, rows.states.get(("streams", state), 0))
        for state in ("Empty", "NotReady", "Assigning", "Reconciling", "Stable")
    )
    yield CLASSIC.one(_sum(rows, _CLASSIC))
    yield OFFSETS.one(rows.offset_count)
    for state, family in CLASSIC_STATES.items():
        yield family.one(rows.states.get((_CLASSIC, state), 0))
    yield TRANSACTIONS.each(transactions.items())


def _sum(rows: GroupRows, kind: str) -> int:
    return sum(count for (one, _), count in rows.states.items() if one == kind)
