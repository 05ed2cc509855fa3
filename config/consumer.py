"""Settings of consumer groups, the groups of KIP-848.

A group may set for itself each option that has a `min` and a `max` here (config/group.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.config.member_intervals import interval_problems
from odradek.config.option import option, options
from odradek.config.values import INT32_MAX, at_least, int32, one_of_any_case, subset_of

_PREFIX = "group.consumer."


@options
class ConsumerConfig:
    """The effective settings of consumer groups."""

    group_coordinator_rebalance_protocols: tuple[str, ...] = option(
        "group.coordinator.rebalance.protocols",
        default=("classic", "consumer", "streams"),
        valid=subset_of("classic", "consumer", "share", "streams"),
        doc="The protocols that groups may follow; classic must be among them. Groups of KIP-848 "
        "also need the feature group.version at level 1.",
    )
    group_consumer_session_timeout_ms: int32 = option(
        "group.consumer.session.timeout.ms",
        default=45_000,
        valid=at_least(1),
        doc="How long a member of a consumer group may be silent before it is considered dead.",
    )
    group_consumer_min_session_timeout_ms: int32 = option(
        "group.consumer.min.session.timeout.ms",
        default=45_000,
        valid=at_least(1),
        doc="The shortest session timeout that a consumer group may set for itself.",
    )
    group_consumer_max_session_timeout_ms: int32 = option(
        "group.consumer.max.session.timeout.ms",
        default=60_000,
        valid=at_least(1),
        doc="The longest session timeout that a consumer group may set for itself.",
    )
    group_consumer_heartbeat_interval_ms: int32 = option(
        "group.consumer.heartbeat.interval.ms",
        default=5_000,
        valid=at_least(1),
        doc="How often the members of a consumer group send heartbeats.",
    )
    group_consumer_min_heartbeat_interval_ms: int32 = option(
        "group.consumer.min.heartbeat.interval.ms",
        default=5_000,
        valid=at_least(1),
        doc="The shortest heartbeat interval that a consumer group may set for itself.",
    )
    group_consumer_max_heartbeat_interval_ms: int32 = option(
        "group.consumer.max.heartbeat.interval.ms",
        default=15_000,
        valid=at_least(1),
        doc="The longest heartbeat interval that a consumer group may set for itself.",
    )
    group_consumer_assignment_interval_ms: int32 = option(
        "group.consumer.assignment.interval.ms",
        default=1_000,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="The shortest time between two target assignments of a consumer group: members that "
        "join within it are assigned together.",
    )
    group_consumer_min_assignment_interval_ms: int32 = option(
        "group.consumer.min.assignment.interval.ms",
        default=0,
        valid=at_least(0),
        doc="The shortest assignment interval that a consumer group may set for itself.",
    )
    group_consumer_max_assignment_interval_ms: int32 = option(
        "group.consumer.max.assignment.interval.ms",
        default=15_000,
        valid=at_least(0),
        doc="The longest assignment interval that a consumer group may set for itself.",
    )
    group_consumer_max_size: int32 = option(
        "group.consumer.max.size",
        default=INT32_MAX,
        valid=at_least(1),
        doc="How many members a consumer group may have.",
    )
    group_consumer_assignors: tuple[str, ...] = option(
        "group.consumer.assignors",
        default=("uniform", "range"),
        valid=subset_of("uniform", "range"),
        doc="The assignors that members of a consumer group may ask for; the first is used where "
        "no member asks for one. Kafka also takes Java classes.",
    )
    group_consumer_migration_policy: str = option(
        "group.consumer.migration.policy",
        default="bidirectional",
        valid=one_of_any_case("disabled", "upgrade", "downgrade", "bidirectional"),
        doc="Whether a group with members may change between the classic and the consumer "
        "protocol: to the consumer protocol (upgrade), back (downgrade), both ways "
        "(bidirectional), or not at all (disabled).",
    )
    group_consumer_regex_refresh_interval_ms: int32 = option(
        "group.consumer.regex.refresh.interval.ms",
        default=600_000,
        valid=at_least(10_000),
        internal=True,
        doc="How often the broker looks again for the topics that a consumer group's regular "
        "expressions match, unless a new topic makes it look earlier.",
    )


def consumer_problems(config: ConsumerConfig) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each contradiction, in Kafka's words, with the names of its options."""
    if "classic" not in config.group_coordinator_rebalance_protocols:
        name = "group.coordinator.rebalance.protocols"
        yield f"Disabling the 'classic' protocol is not supported: {name}.", (name,)
    yield from interval_problems(_PREFIX, config)
