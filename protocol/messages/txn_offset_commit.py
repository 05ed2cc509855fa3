"""TxnOffsetCommit (28): store how far a group has read, as part of a producer's transaction.

Version notes: 2 adds the leader epoch; 3 names the member, so that a former member cannot
commit (KIP-447), and is flexible; 4 may answer TRANSACTION_ABORTABLE, and 5 makes the group part
of the transaction, in place of AddOffsetsToTxn (KIP-890).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, int64, string


@struct
class TxnOffsetCommitRequestPartition:
    """The next offset to read, with the client's own metadata."""

    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = field("2+", default=-1)
    committed_metadata: string | None


@struct
class TxnOffsetCommitRequestTopic:
    """The offsets of one topic."""

    name: string
    partitions: list[TxnOffsetCommitRequestPartition]


@message(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest:
    """Offsets to store when the transaction is committed."""

    transactional_id: string
    group_id: string
    producer_id: int64
    producer_epoch: int16
    generation_id: int32 = field("3+", default=-1)
    member_id: string = field("3+", default="")
    group_instance_id: string | None = field("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic]


@struct
class TxnOffsetCommitResponsePartition:
    """Whether one offset was stored."""

    partition_index: int32
    error_code: int16 = field()


@struct
class TxnOffsetCommitResponseTopic:
    """Whether the offsets of one topic were stored."""

    name: string
    partitions: list[TxnOffsetCommitResponsePartition]


@message(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitResponse:
    """The result for each offset."""

    throttle_time_ms: int32 = field()
    topics: list[TxnOffsetCommitResponseTopic]
