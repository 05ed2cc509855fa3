"""Settings of streams groups, the groups of KIP-1071.

A group may set for itself each option that has a `max` here, and its initial delay
(config/group.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.config.member_intervals import interval_problems
from odradek.config.option import option, options
from odradek.config.values import INT32_MAX, at_least, int32

_PREFIX = "group.streams."


@options
class StreamsConfig:
    """The effective settings of streams groups."""

    group_streams_session_timeout_ms: int32 = option(
        "group.streams.session.timeout.ms",
        default=45_000,
        valid=at_least(1),
        doc="How long a member may be silent before it is considered dead.",
    )
    group_streams_min_session_timeout_ms: int32 = option(
        "group.streams.min.session.timeout.ms",
        default=45_000,
        valid=at_least(1),
        doc="The shortest session timeout that a group may set for itself.",
    )
    group_streams_max_session_timeout_ms: int32 = option(
        "group.streams.max.session.timeout.ms",
        default=60_000,
        valid=at_least(1),
        doc="The longest session timeout that a group may set for itself.",
    )
    group_streams_heartbeat_interval_ms: int32 = option(
        "group.streams.heartbeat.interval.ms",
        default=5_000,
        valid=at_least(1),
        doc="How often the members send heartbeats.",
    )
    group_streams_min_heartbeat_interval_ms: int32 = option(
        "group.streams.min.heartbeat.interval.ms",
        default=5_000,
        valid=at_least(1),
        doc="The shortest heartbeat interval that a group may set for itself.",
    )
    group_streams_max_heartbeat_interval_ms: int32 = option(
        "group.streams.max.heartbeat.interval.ms",
        default=15_000,
        valid=at_least(1),
        doc="The longest heartbeat interval that a group may set for itself.",
    )
    group_streams_assignment_interval_ms: int32 = option(
        "group.streams.assignment.interval.ms",
        default=1_000,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="The shortest time between two assignments of a group.",
    )
    group_streams_min_assignment_interval_ms: int32 = option(
        "group.streams.min.assignment.interval.ms",
        default=0,
        valid=at_least(0),
        doc="The shortest assignment interval that a group may set for itself.",
    )
    group_streams_max_assignment_interval_ms: int32 = option(
        "group.streams.max.assignment.interval.ms",
        default=15_000,
        valid=at_least(0),
        doc="The longest assignment interval that a group may set for itself.",
    )
    group_streams_initial_rebalance_delay_ms: int32 = option(
        "group.streams.initial.rebalance.delay.ms",
        default=3_000,
        valid=at_least(0),
        doc="How long a new group waits for more members before its first assignment.",
    )
    group_streams_num_standby_replicas: int32 = option(
        "group.streams.num.standby.replicas",
        default=0,
        valid=at_least(0),
        doc="How many standby tasks each active task with state has.",
    )
    group_streams_max_standby_replicas: int32 = option(
        "group.streams.max.standby.replicas",
        default=2,
        valid=at_least(0),
        doc="The most standby tasks that a group may set for itself.",
    )
    group_streams_max_size: int32 = option(
        "group.streams.max.size",
        default=INT32_MAX,
        valid=at_least(1),
        doc="How many members a group may have.",
    )


def streams_problems(config: StreamsConfig) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each contradiction, in Kafka's words, with the names of its options."""
    yield from interval_problems(_PREFIX, config)
    count, most = f"{_PREFIX}num.standby.replicas", f"{_PREFIX}max.standby.replicas"
    if config.group_streams_num_standby_replicas > config.group_streams_max_standby_replicas:
        yield f"{count} must be less than or equal to {most}", (count, most)
