"""Settings of share groups: their members, their records, and their state's topic.

A group may set for itself each option that has a `min` and a `max` here (config/group.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.config.option import option, options
from odradek.config.values import at_least, between, int16, int32

_NO_WAIT = "Accepted without effect: state is written at once."
_NOTHING_TO_SIZE = "Accepted without effect: there is no such buffer."
_ONE_LOOP = "Accepted without effect: the event loop does all of the work."
_ONE_REPLICA = "Accepted without effect: a partition has one replica."
_PREFIX = "group.share."
_NO_PLUGINS = "Accepted without effect: Java classes cannot be loaded."


@options
class ShareConfig:
    """The effective settings of share groups."""

    # Members.

    group_share_session_timeout_ms: int32 = option(
        "group.share.session.timeout.ms",
        default=45_000,
        valid=at_least(1),
        doc="How long a member may be silent before it is considered dead.",
    )
    group_share_min_session_timeout_ms: int32 = option(
        "group.share.min.session.timeout.ms",
        default=45_000,
        valid=at_least(1),
        doc="The shortest session timeout that a group may set for itself.",
    )
    group_share_max_session_timeout_ms: int32 = option(
        "group.share.max.session.timeout.ms",
        default=60_000,
        valid=at_least(1),
        doc="The longest session timeout that a group may set for itself.",
    )
    group_share_heartbeat_interval_ms: int32 = option(
        "group.share.heartbeat.interval.ms",
        default=5_000,
        valid=at_least(1),
        doc="How often the members send heartbeats.",
    )
    group_share_min_heartbeat_interval_ms: int32 = option(
        "group.share.min.heartbeat.interval.ms",
        default=5_000,
        valid=at_least(1),
        doc="The shortest heartbeat interval that a group may set for itself.",
    )
    group_share_max_heartbeat_interval_ms: int32 = option(
        "group.share.max.heartbeat.interval.ms",
        default=15_000,
        valid=at_least(1),
        doc="The longest heartbeat interval that a group may set for itself.",
    )
    group_share_assignment_interval_ms: int32 = option(
        "group.share.assignment.interval.ms",
        default=1_000,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="The shortest time between two assignments of a group.",
    )
    group_share_min_assignment_interval_ms: int32 = option(
        "group.share.min.assignment.interval.ms",
        default=0,
        valid=at_least(0),
        doc="The shortest assignment interval that a group may set for itself.",
    )
    group_share_max_assignment_interval_ms: int32 = option(
        "group.share.max.assignment.interval.ms",
        default=15_000,
        valid=at_least(0),
        doc="The longest assignment interval that a group may set for itself.",
    )
    group_share_max_size: int32 = option(
        "group.share.max.size",
        default=200,
        valid=between(1, 1_000),
        doc="How many members a share group may have.",
    )
    group_share_initialize_retry_interval_ms: int32 = option(
        "group.share.initialize.retry.interval.ms",
        default=30_000,
        valid=at_least(1),
        internal=True,
        doc="How long the broker waits before it begins a partition's state again, when it does "
        "not know whether the first attempt succeeded.",
    )

    # Records.

    group_share_record_lock_duration_ms: int32 = option(
        "group.share.record.lock.duration.ms",
        default=30_000,
        valid=between(1_000, 3_600_000),
        doc="How long a record stays locked for the member that acquired it.",
    )
    group_share_min_record_lock_duration_ms: int32 = option(
        "group.share.min.record.lock.duration.ms",
        default=15_000,
        valid=between(1_000, 30_000),
        doc="The shortest lock duration that a group may set for itself.",
    )
    group_share_max_record_lock_duration_ms: int32 = option(
        "group.share.max.record.lock.duration.ms",
        default=60_000,
        valid=between(30_000, 3_600_000),
        doc="The longest lock duration that a group may set for itself.",
    )
    group_share_delivery_count_limit: int32 = option(
        "group.share.delivery.count.limit",
        default=5,
        valid=between(2, 10),
        doc="How many times a record may be delivered.",
    )
    group_share_min_delivery_count_limit: int32 = option(
        "group.share.min.delivery.count.limit",
        default=2,
        valid=between(2, 5),
        doc="The lowest delivery count limit that a group may set for itself.",
    )
    group_share_max_delivery_count_limit: int32 = option(
        "group.share.max.delivery.count.limit",
        default=10,
        valid=between(5, 25),
        doc="The highest delivery count limit that a group may set for itself.",
    )
    group_share_partition_max_record_locks: int32 = option(
        "group.share.partition.max.record.locks",
        default=2_000,
        valid=between(100, 10_000),
        doc="How many records of a partition may be in flight at once.",
    )
    group_share_min_partition_max_record_locks: int32 = option(
        "group.share.min.partition.max.record.locks",
        default=100,
        valid=between(100, 2_000),
        doc="The lowest number of record locks that a group may set for itself.",
    )
    group_share_max_partition_max_record_locks: int32 = option(
        "group.share.max.partition.max.record.locks",
        default=4_000,
        valid=between(2_000, 10_000),
        doc="The highest number of record locks that a group may set for itself.",
    )
    group_share_max_share_sessions: int32 = option(
        "group.share.max.share.sessions",
        default=2_000,
        valid=at_least(1),
        doc="How many members may fetch at once, over all groups.",
    )
    group_share_persister_class_name: str | None = option(
        "group.share.persister.class.name",
        default=None,
        internal=True,
        inert=_NO_PLUGINS,
        doc="The class that stores the state of share groups.",
    )
    share_fetch_purgatory_purge_interval_requests: int32 = option(
        "share.fetch.purgatory.purge.interval.requests",
        default=1_000,
        inert="Accepted without effect: a fetch that no longer waits is removed at once.",
        doc="After how many requests completed fetches are removed from the waiting ones.",
    )

    # The state's topic.

    share_coordinator_state_topic_num_partitions: int32 = option(
        "share.coordinator.state.topic.num.partitions",
        default=50,
        valid=at_least(1),
        doc="How many partitions __share_group_state is created with. The place of a group's "
        "state depends on this number, so it must not change afterwards.",
    )
    share_coordinator_state_topic_segment_bytes: int32 = option(
        "share.coordinator.state.topic.segment.bytes",
        default=100 * 1024 * 1024,
        valid=at_least(1),
        doc="The segment size of __share_group_state.",
    )
    share_coordinator_state_topic_min_isr: int16 = option(
        "share.coordinator.state.topic.min.isr",
        default=1,
        valid=at_least(1),
        doc="The min.insync.replicas of __share_group_state. Kafka's default is 2.",
    )
    share_coordinator_state_topic_replication_factor: int16 = option(
        "share.coordinator.state.topic.replication.factor",
        default=1,
        valid=at_least(1),
        inert=_ONE_REPLICA,
        doc="How many replicas __share_group_state is created with. Kafka's default is 3.",
    )
    share_coordinator_state_topic_compression_codec: int32 = option(
        "share.coordinator.state.topic.compression.codec",
        default=0,
        doc="The codec of batches in __share_group_state, by its number on the wire.",
    )
    share_coordinator_state_topic_prune_interval_ms: int32 = option(
        "share.coordinator.state.topic.prune.interval.ms",
        default=300_000,
        valid=at_least(1),
        internal=True,
        doc="How often the broker deletes records that no state needs any more.",
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int32 = option(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        default=300_000,
        valid=at_least(1),
        internal=True,
        doc="How often states without changes are written again, so that older records can be "
        "deleted.",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int32 = option(
        "share.coordinator.snapshot.update.records.per.snapshot",
        default=500,
        valid=between(0, 500),
        doc="How many changes of a state are written between two snapshots of it.",
    )
    share_coordinator_append_linger_ms: int32 = option(
        "share.coordinator.append.linger.ms",
        default=-1,
        valid=at_least(-1),
        inert=_NO_WAIT,
        doc="How long to wait for more records to write together.",
    )
    share_coordinator_write_timeout_ms: int32 = option(
        "share.coordinator.write.timeout.ms",
        default=5_000,
        valid=at_least(1),
        inert="Accepted without effect: a write is answered once the disk has it or refuses it.",
        doc="How long a write may take before the waiting client is asked to retry.",
    )
    share_coordinator_threads: int32 = option(
        "share.coordinator.threads",
        default=1,
        valid=at_least(1),
        inert=_ONE_LOOP,
        doc="How many threads serve the state of share groups.",
    )
    share_coordinator_load_buffer_size: int32 = option(
        "share.coordinator.load.buffer.size",
        default=5 * 1024 * 1024,
        valid=at_least(1),
        inert=_NOTHING_TO_SIZE,
        doc="How much of __share_group_state is read at a time when it is loaded.",
    )
    share_coordinator_cached_buffer_max_bytes: int32 = option(
        "share.coordinator.cached.buffer.max.bytes",
        default=1024 * 1024 + 12,
        valid=at_least(512 * 1024),
        dynamic="cluster-wide",
        inert=_NOTHING_TO_SIZE,
        doc="The largest buffer that is kept for the next write.",
    )


def share_problems(config: ShareConfig) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each contradiction, in Kafka's words, with the names of its options."""
    bounded = {
        "heartbeat.interval.ms": (
            config.group_share_min_heartbeat_interval_ms,
            config.group_share_heartbeat_interval_ms,
            config.group_share_max_heartbeat_interval_ms,
        ),
        "session.timeout.ms": (
            config.group_share_min_session_timeout_ms,
            config.group_share_session_timeout_ms,
            config.group_share_max_session_timeout_ms,
        ),
        "assignment.interval.ms": (
            config.group_share_min_assignment_interval_ms,
            config.group_share_assignment_interval_ms,
            config.group_share_max_assignment_interval_ms,
        ),
        "delivery.count.limit": (
            config.group_share_min_delivery_count_limit,
            config.group_share_delivery_count_limit,
            config.group_share_max_delivery_count_limit,
        ),
        "partition.max.record.locks": (
            config.group_share_min_partition_max_record_locks,
            config.group_share_partition_max_record_locks,
            config.group_share_max_partition_max_record_locks,
        ),
        "record.lock.duration.ms": (
            config.group_share_min_record_lock_duration_ms,
            config.group_share_record_lock_duration_ms,
            config.group_share_max_record_lock_duration_ms,
        ),
    }
    for name, (low, value, high) in bounded.items():
        lowest, own, highest = f"{_PREFIX}min.{name}", f"{_PREFIX}{name}", f"{_PREFIX}max.{name}"
        if high < value:
            yield f"{highest} must be greater than or equal to {own}", (highest, own)
        if value < low:
            yield f"{own} must be greater than or equal to {lowest}", (own, lowest)
    if config.group_share_max_share_sessions < config.group_share_max_size:
        sessions, size = f"{_PREFIX}max.share.sessions", f"{_PREFIX}max.size"
        yield f"{sessions} must be greater than or equal to {size}", (sessions, size)
