"""The settings of a topic, and the values that apply where it sets none.

A topic's own setting comes first, then the broker's option of the same meaning (its synonym),
whose name mostly begins with `log.`, then the default. Names, defaults, bounds and synonyms are
those of Kafka 4.3's LogConfig, with the few that 4.4 added.
"""

from __future__ import annotations

import re

from odradek.config.errors import ConfigError
from odradek.config.object_store import SharedTopicOptions
from odradek.config.option import (
    DAY_MS,
    HOUR_MS,
    Fallback,
    hours,
    milliseconds,
    minutes,
    option,
    options,
)
from odradek.config.values import (
    INT32_MAX,
    INT64_MAX,
    Validator,
    Value,
    at_least,
    between,
    between_or,
    int32,
    int64,
    invalid,
    one_of,
    subset_of,
)

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
MESSAGE_BYTES = 1024 * 1024 + 12  # Kafka's default: 1 MiB and the overhead of an old log entry
DECOMPRESSED_BYTES_MAX = INT32_MAX - 8  # the longest array that a Java virtual machine makes
SEGMENT_BYTES_MIN = 1024 * 1024  # since Kafka 4.0

_TIERED = "Accepted without effect: there is no tiered storage."
_ONE_REPLICA = "Accepted without effect: a partition has one replica."
_REPLICA_LIST = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
_REPLICA = re.compile(r"([0-9]+:[0-9]+)?")


def _check_replicas(name: str, value: Value) -> None:
    words = value if isinstance(value, tuple) else ()
    if "".join(words) != "*" and not all(map(_REPLICA.fullmatch, words)):
        message = f"{name} must be the literal '*' or a list of replicas in the following format: "
        raise invalid(name, value, message + _REPLICA_LIST)


replica_list = Validator(_REPLICA_LIST, _check_replicas)


@options
class TopicConfig(SharedTopicOptions):
    """The effective settings of one topic."""

    cleanup_policy: frozenset[str] = option(
        "cleanup.policy",
        default=frozenset({"delete"}),
        valid=subset_of("compact", "delete", empty=True),
        broker="log.cleanup.policy",
        doc="delete drops segments past retention; compact keeps the latest value of each key; "
        "both may be given, and an empty list keeps everything for ever.",
    )
    compression_gzip_level: int32 = option(
        "compression.gzip.level",
        default=-1,
        valid=between_or(1, 9, -1),
        broker="compression.gzip.level",
        doc="The level at which the broker compresses with gzip; -1 is gzip's own default.",
    )
    compression_lz4_level: int32 = option(
        "compression.lz4.level",
        default=9,
        valid=between(1, 17),
        broker="compression.lz4.level",
        doc="The level at which the broker compresses with lz4.",
    )
    compression_type: str = option(
        "compression.type",
        default="producer",
        valid=one_of(*CODECS),
        broker="compression.type",
        doc="The codec that batches are stored with; producer stores each batch as it was sent.",
    )
    compression_zstd_level: int32 = option(
        "compression.zstd.level",
        default=3,
        valid=between(-131072, 22),
        broker="compression.zstd.level",
        doc="The level at which the broker compresses with zstd.",
    )
    delete_retention_ms: int64 = option(
        "delete.retention.ms",
        default=DAY_MS,
        valid=at_least(0),
        broker="log.cleaner.delete.retention.ms",
        doc="How long a tombstone outlives the first cleaning that met it, so that a consumer "
        "that reads from the start within this time sees the deletion.",
    )
    errors_deadletterqueue_group_enable: bool = option(
        "errors.deadletterqueue.group.enable",
        default=False,
        broker=(),
        inert="Accepted without effect: there is no dead letter queue.",
        doc="Whether share groups may write the records that they could not process to this "
        "topic.",
    )
    file_delete_delay_ms: int64 = option(
        "file.delete.delay.ms",
        default=60_000,
        valid=at_least(0),
        broker="log.segment.delete.delay.ms",
        doc="How long a segment's files stay, renamed to .deleted, once nothing refers to them.",
    )
    flush_messages: int64 = option(
        "flush.messages",
        default=INT64_MAX,
        valid=at_least(1),
        broker="log.flush.interval.messages",
        doc="How many records are appended to a partition before it is flushed to disk and they "
        "are acknowledged; 1 flushes after each append.",
    )
    flush_ms: int64 = option(
        "flush.ms",
        default=INT64_MAX,
        valid=at_least(0),
        broker=(
            "log.flush.interval.ms",
            Fallback("log.flush.scheduler.interval.ms", default=INT64_MAX),
        ),
        doc="The longest time that an appended record may wait to be flushed to disk.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = option(
        "follower.replication.throttled.replicas",
        default=(),
        valid=replica_list,
        broker=(),
        doc="Replicas whose fetching is throttled, as partition:broker pairs, or * for all.",
    )
    index_interval_bytes: int32 = option(
        "index.interval.bytes",
        default=4096,
        valid=at_least(0),
        broker="log.index.interval.bytes",
        doc="How many bytes of batches lie between two entries of a segment's indexes.",
    )
    internal_segment_bytes: int32 | None = option(
        "internal.segment.bytes",
        default=None,
        valid=at_least(1),
        broker="internal.segment.bytes",
        internal=True,
        doc="Replaces segment.bytes, without its lower bound, for tests that need segments of a "
        "few records.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = option(
        "leader.replication.throttled.replicas",
        default=(),
        valid=replica_list,
        broker=(),
        doc="Replicas whose serving is throttled, as partition:broker pairs, or * for all.",
    )
    local_retention_bytes: int64 = option(
        "local.retention.bytes",
        default=-2,
        valid=at_least(-2),
        broker="log.local.retention.bytes",
        inert=_TIERED,
        doc="The size that a partition may keep locally when it is tiered; -2 follows "
        "retention.bytes.",
    )
    local_retention_ms: int64 = option(
        "local.retention.ms",
        default=-2,
        valid=at_least(-2),
        broker="log.local.retention.ms",
        inert=_TIERED,
        doc="How long a tiered segment is kept locally; -2 follows retention.ms.",
    )
    max_compaction_lag_ms: int64 = option(
        "max.compaction.lag.ms",
        default=INT64_MAX,
        valid=at_least(1),
        broker="log.cleaner.max.compaction.lag.ms",
        doc="The longest time that a record may stay uncompacted: after it the log is cleaned "
        "however low its dirty ratio is.",
    )
    max_decompressed_message_bytes: int32 = option(
        "max.decompressed.message.bytes",
        default=DECOMPRESSED_BYTES_MAX,
        valid=between(1, DECOMPRESSED_BYTES_MAX),
        broker="max.decompressed.message.bytes",
        doc="The largest size that a batch may decompress to; a larger one is refused.",
    )
    odradek_append_decompressed_bytes_max: int32 = option(
        "odradek.append.decompressed.bytes.max",
        default=64 * 1024 * 1024,
        valid=between(1, DECOMPRESSED_BYTES_MAX),
        broker="odradek.append.decompressed.bytes.max",
        internal=True,
        doc="The largest size that a producer's batch may decompress to. The broker decompresses "
        "a batch in memory to check it: without a bound, 1 MB from a producer could take 2 GB of "
        "memory. Stored batches are bound by max.decompressed.message.bytes alone.",
    )
    max_message_bytes: int32 = option(
        "max.message.bytes",
        default=MESSAGE_BYTES,
        valid=at_least(0),
        broker="message.max.bytes",
        doc="The largest batch that may be appended, in its size as it was sent.",
    )
    message_timestamp_after_max_ms: int64 = option(
        "message.timestamp.after.max.ms",
        default=HOUR_MS,
        valid=at_least(0),
        broker="log.message.timestamp.after.max.ms",
        doc="How far in the future a record's CreateTime may lie before it is refused.",
    )
    message_timestamp_before_max_ms: int64 = option(
        "message.timestamp.before.max.ms",
        default=INT64_MAX,
        valid=at_least(0),
        broker="log.message.timestamp.before.max.ms",
        doc="How far in the past a record's CreateTime may lie before it is refused.",
    )
    message_timestamp_type: str = option(
        "message.timestamp.type",
        default="CreateTime",
        valid=one_of("CreateTime", "LogAppendTime"),
        broker="log.message.timestamp.type",
        doc="Whether a record's timestamp is its producer's or the time of the append.",
    )
    min_cleanable_dirty_ratio: float = option(
        "min.cleanable.dirty.ratio",
        default=0.5,
        valid=between(0, 1),
        broker="log.cleaner.min.cleanable.ratio",
        doc="The share of a compacted log's bytes that must be dirty before it is cleaned. "
        "Lower means fewer stale values on disk and more rewriting.",
    )
    min_compaction_lag_ms: int64 = option(
        "min.compaction.lag.ms",
        default=0,
        valid=at_least(0),
        broker="log.cleaner.min.compaction.lag.ms",
        doc="How long every record stays in the log before a cleaning may drop it.",
    )
    min_insync_replicas: int32 = option(
        "min.insync.replicas",
        inert=_ONE_REPLICA,
        default=1,
        valid=at_least(1),
        broker="min.insync.replicas",
        doc="How many replicas acks=all needs. A partition has one, so that a higher number "
        "refuses such writes.",
    )
    preallocate: bool = option(
        "preallocate",
        default=False,
        broker="log.preallocate",
        doc="Whether a new segment's file is given its full size on disk at once.",
    )
    remote_copy_lag_bytes: int64 = option(
        "remote.copy.lag.bytes",
        default=-1,
        valid=at_least(-1),
        broker="log.remote.copy.lag.bytes",
        inert=_TIERED,
        doc="How many bytes a segment may lie behind the end before it is copied; -1 copies "
        "by time only.",
    )
    remote_copy_lag_ms: int64 = option(
        "remote.copy.lag.ms",
        default=0,
        valid=at_least(-1),
        broker="log.remote.copy.lag.ms",
        inert=_TIERED,
        doc="How old a rolled segment grows before it is copied; -1 copies by size only.",
    )
    remote_log_copy_disable: bool = option(
        "remote.log.copy.disable",
        default=False,
        broker=(),
        inert=_TIERED,
        doc="Whether a tiered topic stops copying segments and only reads those it has.",
    )
    remote_log_delete_on_disable: bool = option(
        "remote.log.delete.on.disable",
        default=False,
        broker=(),
        inert=_TIERED,
        doc="Whether turning tiering off deletes the copied segments.",
    )
    remote_storage_enable: bool = option(
        "remote.storage.enable",
        default=False,
        broker=(),
        inert="Only false is accepted: there is no tiered storage.",
        doc="Whether segments are copied to remote storage.",
    )
    retention_bytes: int64 = option(
        "retention.bytes",
        default=-1,
        broker="log.retention.bytes",
        doc="The size past which the delete policy drops a partition's oldest segments; -1 is "
        "no limit.",
    )
    retention_ms: int64 = option(
        "retention.ms",
        default=7 * DAY_MS,
        valid=at_least(-1),
        broker=(
            milliseconds("log.retention.ms"),
            minutes("log.retention.minutes"),
            hours("log.retention.hours", default=7 * 24),
        ),
        doc="How long the delete policy keeps a segment after its newest record; -1 keeps it "
        "for ever.",
    )
    segment_bytes: int32 = option(
        "segment.bytes",
        default=1024 * 1024 * 1024,
        valid=at_least(SEGMENT_BYTES_MIN),
        broker="log.segment.bytes",
        doc="The size at which a segment is closed and a new one begun. Retention and cleaning "
        "work on closed segments, so smaller segments make both act sooner.",
    )
    segment_index_bytes: int32 = option(
        "segment.index.bytes",
        default=10 * 1024 * 1024,
        valid=at_least(4),
        broker="log.index.size.max.bytes",
        doc="The size at which a full index closes its segment.",
    )
    segment_jitter_ms: int64 = option(
        "segment.jitter.ms",
        default=0,
        valid=at_least(0),
        broker=(
            "log.roll.jitter.ms",
            hours("log.roll.jitter.hours", default=0, valid=at_least(0)),
        ),
        doc="The most by which a segment is closed earlier than segment.ms. The time is random, "
        "so that partitions do not all roll at once.",
    )
    segment_ms: int64 = option(
        "segment.ms",
        default=7 * DAY_MS,
        valid=at_least(1),
        broker=("log.roll.ms", hours("log.roll.hours", default=7 * 24, valid=at_least(1))),
        doc="The age at which a segment is closed even if it is not full.",
    )
    unclean_leader_election_enable: bool = option(
        "unclean.leader.election.enable",
        default=False,
        broker="unclean.leader.election.enable",
        inert=_ONE_REPLICA,
        doc="Whether a replica that is behind may become the leader.",
    )

    @property
    def compact(self) -> bool:
        """Return whether the cleaner keeps each key's latest value."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Return whether retention drops old segments."""
        return "delete" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """The age at which a segment rolls; in a compacted log at most the max compaction lag."""
        if self.compact:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms


def check_topic(config: TopicConfig) -> None:
    """Raise ConfigError when settings contradict one another (LogConfig.validateValues)."""
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            "conflict topic config setting "
            f"min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
    if config.remote_storage_enable:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
