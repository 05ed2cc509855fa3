"""ShareAcknowledge (79): report the processing of acquired records (KIP-932).

Version 2 adds acknowledgements that renew a lock (KIP-1222).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int8, int16, int32, int64, string, uuid


@struct
class AcknowledgementBatch:
    """Acknowledges a range: one type counts for all of it, several for each offset in turn."""

    first_offset: int64
    last_offset: int64
    acknowledge_types: list[int8]


@struct
class AcknowledgePartition:
    """The acknowledgements of one partition."""

    partition_index: int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class AcknowledgeTopic:
    """The partitions of one topic."""

    topic_id: uuid
    partitions: list[AcknowledgePartition]


@message(key=79, versions="1-2", flexible="1+")
class ShareAcknowledgeRequest:
    """Acknowledges outside of a fetch; the session epoch counts this request, too."""

    group_id: string | None = field(default=None)
    member_id: string | None
    share_session_epoch: int32
    is_renew_ack: boolean = field("2+")
    topics: list[AcknowledgeTopic]


@struct
class LeaderIdAndEpoch:
    """The leader of the partition, where this broker is not the leader."""

    leader_id: int32 = field()
    leader_epoch: int32 = field()


@struct
class PartitionData:
    """The result of one partition's acknowledgements."""

    partition_index: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)
    current_leader: LeaderIdAndEpoch = field()


@struct
class ShareAcknowledgeTopicResponse:
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


@message(key=79, versions="1-2", flexible="1+")
class ShareAcknowledgeResponse:
    """Sent once the new state is stored."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)
    acquisition_lock_timeout_ms: int32 = field("2+")
    responses: list[ShareAcknowledgeTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field()
