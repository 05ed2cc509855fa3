"""The settings of the coordinators of consumer groups and of transactions."""

from __future__ import annotations

from odradek.config.option import DAY_MS, HOUR_MS, option, section
from odradek.config.values import INT32_MAX, at_least, int16, int32, int64


@section
class CoordinatorOptions:
    """The options of groups, offsets and transactions, which are the broker's."""

    # Consumer groups and their offsets.

    group_min_session_timeout_ms: int32 = option(
        "group.min.session.timeout.ms",
        default=6_000,
        doc="The shortest session timeout that a member may ask for.",
    )
    group_max_session_timeout_ms: int32 = option(
        "group.max.session.timeout.ms",
        default=1_800_000,
        doc="The longest session timeout that a member may ask for.",
    )
    group_initial_rebalance_delay_ms: int32 = option(
        "group.initial.rebalance.delay.ms",
        default=3_000,
        doc="How long an empty group waits for more members before its first rebalance.",
    )
    group_max_size: int32 = option(
        "group.max.size",
        default=INT32_MAX,
        valid=at_least(1),
        doc="How many members a group may have.",
    )
    offset_metadata_max_bytes: int32 = option(
        "offset.metadata.max.bytes",
        default=4096,
        doc="The largest metadata that a client may commit with an offset.",
    )
    offsets_commit_timeout_ms: int32 = option(
        "offsets.commit.timeout.ms",
        inert="Accepted without effect: a commit is answered once the disk has it or refuses it.",
        default=5_000,
        valid=at_least(1),
        doc="How long a commit may wait to be written before the client is asked to retry.",
    )
    offsets_retention_minutes: int32 = option(
        "offsets.retention.minutes",
        default=7 * 24 * 60,
        valid=at_least(1),
        doc="How long the offsets of a group without members are kept.",
    )
    offsets_retention_check_interval_ms: int64 = option(
        "offsets.retention.check.interval.ms",
        default=600_000,
        valid=at_least(1),
        doc="How often the broker looks for offsets past their retention.",
    )
    offsets_topic_compression_codec: int32 = option(
        "offsets.topic.compression.codec",
        default=0,
        doc="The codec of batches in __consumer_offsets, by its number on the wire.",
    )
    offsets_topic_num_partitions: int32 = option(
        "offsets.topic.num.partitions",
        default=50,
        valid=at_least(1),
        doc="How many partitions __consumer_offsets is created with. A group's partition depends "
        "on this number, so it must not change afterwards.",
    )
    offsets_topic_replication_factor: int16 = option(
        "offsets.topic.replication.factor",
        inert="Accepted without effect: a partition has one replica.",
        default=1,
        valid=at_least(1),
        doc="How many replicas __consumer_offsets is created with. Kafka's default is 3.",
    )
    offsets_topic_segment_bytes: int32 = option(
        "offsets.topic.segment.bytes",
        default=100 * 1024 * 1024,
        valid=at_least(1),
        doc="The segment size of __consumer_offsets; smaller segments are cleaned sooner.",
    )

    # Idempotent producers and transactions.

    producer_id_expiration_ms: int32 = option(
        "producer.id.expiration.ms",
        default=DAY_MS,
        valid=at_least(1),
        dynamic="cluster-wide",
        doc="How long a partition remembers the sequence numbers of an idle producer.",
    )
    producer_id_expiration_check_interval_ms: int32 = option(
        "producer.id.expiration.check.interval.ms",
        default=600_000,
        valid=at_least(1),
        internal=True,
        doc="How often each partition looks for producers to forget.",
    )
    transactional_id_expiration_ms: int32 = option(
        "transactional.id.expiration.ms",
        default=7 * DAY_MS,
        valid=at_least(1),
        doc="How long a transactional id is remembered after its last transaction.",
    )
    transaction_max_timeout_ms: int32 = option(
        "transaction.max.timeout.ms",
        default=900_000,
        valid=at_least(1),
        doc="The longest transaction timeout that a producer may ask for.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int32 = option(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        default=10_000,
        valid=at_least(1),
        doc="How often the broker looks for transactions that have timed out, to abort them.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int32 = option(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        default=HOUR_MS,
        valid=at_least(1),
        doc="How often the broker looks for transactional ids to forget.",
    )
    transaction_partition_verification_enable: bool = option(
        "transaction.partition.verification.enable",
        default=True,
        dynamic="cluster-wide",
        doc="Whether the broker checks that a transactional write belongs to an open "
        "transaction.",
    )
    transaction_state_log_min_isr: int32 = option(
        "transaction.state.log.min.isr",
        default=1,
        valid=at_least(1),
        doc="The min.insync.replicas of __transaction_state. Kafka's default is 2.",
    )
    transaction_state_log_num_partitions: int32 = option(
        "transaction.state.log.num.partitions",
        default=50,
        valid=at_least(1),
        doc="How many partitions __transaction_state is created with. A transactional id's "
        "partition depends on this number, so it must not change afterwards.",
    )
    transaction_state_log_replication_factor: int16 = option(
        "transaction.state.log.replication.factor",
        inert="Accepted without effect: a partition has one replica.",
        default=1,
        valid=at_least(1),
        doc="How many replicas __transaction_state is created with. Kafka's default is 3.",
    )
    transaction_state_log_segment_bytes: int32 = option(
        "transaction.state.log.segment.bytes",
        default=100 * 1024 * 1024,
        valid=at_least(1),
        doc="The segment size of __transaction_state; smaller segments are cleaned sooner.",
    )
