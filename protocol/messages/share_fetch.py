"""ShareFetch (78): acquire records for a member of a share group (KIP-932).

The request may acknowledge records that were acquired before. Version 2 adds how strictly
max_records is meant (KIP-1206) and acknowledgements that renew a lock (KIP-1222).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int8, int16, int32, int64, records, string, uuid


@struct
class AcknowledgementBatch:
    """Acknowledges a range: one type counts for all of it, several for each offset in turn."""

    first_offset: int64
    last_offset: int64
    acknowledge_types: list[int8]


@struct
class FetchPartition:
    """A partition to fetch, and the acknowledgements in it."""

    partition_index: int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class FetchTopic:
    """The partitions of one topic."""

    topic_id: uuid
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    """Partitions that leave the share session."""

    topic_id: uuid
    partitions: list[int32]


@message(key=78, versions="1-2", flexible="1+")
class ShareFetchRequest:
    """Answered once min_bytes can be acquired or max_wait_ms has passed."""

    group_id: string | None = field(default=None)
    member_id: string | None
    share_session_epoch: int32
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32 = field(default=2**31 - 1)
    max_records: int32
    batch_size: int32
    share_acquire_mode: int8 = field("2+")
    is_renew_ack: boolean = field("2+")
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]


@struct
class LeaderIdAndEpoch:
    """The leader of the partition, where this broker is not the leader."""

    leader_id: int32 = field()
    leader_epoch: int32 = field()


@struct
class AcquiredRecords:
    """A range of offsets that is locked for the member."""

    first_offset: int64 = field()
    last_offset: int64 = field()
    delivery_count: int16 = field()


@struct
class PartitionData:
    """The records acquired from one partition, and the result of its acknowledgements."""

    partition_index: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)
    acknowledge_error_code: int16 = field()
    acknowledge_error_message: string | None = field(default=None)
    current_leader: LeaderIdAndEpoch = field()
    records: records = field()
    acquired_records: list[AcquiredRecords] = field()


@struct
class ShareFetchableTopicResponse:
    """The partitions of one topic."""

    topic_id: uuid = field()
    partitions: list[PartitionData] = field()


@struct
class NodeEndpoint:
    """The address of a leader."""

    node_id: int32 = field()
    host: string = field()
    port: int32 = field()
    rack: string | None = field(default=None)


@message(key=78, versions="1-2", flexible="1+")
class ShareFetchResponse:
    """Batches that hold the acquired records, and maybe more records."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)
    acquisition_lock_timeout_ms: int32 = field()
    responses: list[ShareFetchableTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field()
