"""Settings of copies of partitions between brokers (KIP-73).

Kafka's tool sets both rates with `kafka-reassign-partitions.sh --execute --throttle`, at each
broker that takes part, and the settings of the topics by which they apply to a partition:

    leader.replication.throttled.replicas=0:1,1:1    partition 0 of broker 1, ...
    follower.replication.throttled.replicas=*        all partitions

As in Kafka, the rates are no options of the broker: clients set them, and see them once set.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.config.option import option, options
from odradek.config.values import INT64_MAX, at_least, int64


@options
class ReplicationConfig:
    """The effective settings of copies."""

    leader_replication_throttled_rate: int64 = option(
        "leader.replication.throttled.rate",
        default=INT64_MAX,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="The most bytes that other brokers may copy from this one in a second, of the "
        "partitions in leader.replication.throttled.replicas of their topics.",
    )
    follower_replication_throttled_rate: int64 = option(
        "follower.replication.throttled.rate",
        default=INT64_MAX,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="The most bytes that this broker copies from others in a second, of the partitions "
        "in follower.replication.throttled.replicas of their topics.",
    )


def is_throttled(replicas: Sequence[str], partition: int, node_id: int) -> bool:
    """Return whether a topic's list of throttled replicas has a broker's copy of a partition."""
    return "*" in replicas or f"{partition}:{node_id}" in replicas
