"""Fetch (1): long-poll for record batches from an offset in each partition.

Version notes: 7 adds sessions (KIP-227); 11 the rack; 12 is flexible and adds the last fetched
epoch (KIP-595); 13 names topics by id (KIP-516); 15 moves the replica id into replica_state;
16 adds the node endpoints; 17 the directory id of followers; 18 the high watermark tag.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import ZERO_UUID, int8, int16, int32, int64, records, string, uuid

_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1


@struct
class ReplicaState:
    """The follower that fetches, if one does."""

    replica_id: int32 = field("15+", default=-1)
    replica_epoch: int64 = field("15+", default=-1)


@struct
class FetchPartition:
    """A partition and the offset to read it from."""

    partition: int32
    current_leader_epoch: int32 = field("9+", default=-1)
    fetch_offset: int64
    last_fetched_epoch: int32 = field("12+", default=-1)
    log_start_offset: int64 = field("5+", default=-1)
    partition_max_bytes: int32
    replica_directory_id: uuid = field("17+", tag=0, default=ZERO_UUID)
    high_watermark: int64 = field("18+", tag=1, default=_INT64_MAX)


@struct
class FetchTopic:
    """The partitions to fetch of one topic."""

    topic: string = field("0-12")
    topic_id: uuid = field("13+")
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    """Partitions to drop from an incremental session."""

    topic: string = field("7-12")
    topic_id: uuid = field("13+")
    partitions: list[int32] = field("7+")


@message(key=1, versions="4-18", flexible="12+")
class FetchRequest:
    """Answered once min_bytes are ready or max_wait_ms has passed."""

    cluster_id: string | None = field("12+", tag=0, default=None)
    replica_id: int32 = field("0-14", default=-1)
    replica_state: ReplicaState = field("15+", tag=1)
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32 = field("3+", default=_INT32_MAX)
    isolation_level: int8 = field("4+")
    session_id: int32 = field("7+")
    session_epoch: int32 = field("7+", default=-1)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field("7+")
    rack_id: string = field("11+")


@struct
class EpochEndOffset:
    """The point where the reader's history and the log part."""

    epoch: int32 = field("12+", default=-1)
    end_offset: int64 = field("12+", default=-1)


@struct
class LeaderIdAndEpoch:
    """The current leader of the partition."""

    leader_id: int32 = field("12+", default=-1)
    leader_epoch: int32 = field("12+", default=-1)


@struct
class SnapshotId:
    """The metadata snapshot to read instead; used by controllers only."""

    end_offset: int64 = field("0+", default=-1)
    epoch: int32 = field("0+", default=-1)


@struct
class AbortedTransaction:
    """An aborted transaction whose records a read_committed reader leaves out."""

    producer_id: int64 = field("4+")
    first_offset: int64 = field("4+")


@struct
class PartitionData:
    """The batches read from one partition; they may begin before the offset asked for."""

    partition_index: int32
    error_code: int16 = field()
    high_watermark: int64
    last_stable_offset: int64 = field("4+", default=-1)
    log_start_offset: int64 = field("5+", default=-1)
    diverging_epoch: EpochEndOffset = field("12+", tag=0)
    current_leader: LeaderIdAndEpoch = field("12+", tag=1)
    snapshot_id: SnapshotId = field("12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field("4+")
    preferred_read_replica: int32 = field("11+", default=-1)
    records: records | None


@struct
class FetchableTopicResponse:
    """The partitions read of one topic."""

    topic: string = field("0-12")
    topic_id: uuid = field("13+")
    partitions: list[PartitionData]


@struct
class NodeEndpoint:
    """The address of a current leader."""

    node_id: int32 = field("16+")
    host: string = field("16+")
    port: int32 = field("16+")
    rack: string | None = field("16+", default=None)


@message(key=1, versions="4-18", flexible="12+")
class FetchResponse:
    """The batches, partition by partition."""

    throttle_time_ms: int32 = field("1+")
    error_code: int16 = field("7+")
    session_id: int32 = field("7+")
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field("16+", tag=0)
