"""Produce (0): append record batches to partitions.

Version notes: 3 is the oldest that can be written (the advertised 0 to 2 only keep old
librdkafka talking, KAFKA-18659, and are answered with an error); 5 adds the log start offset;
7 permits zstd (KIP-110); 8 names the records that spoil a batch (KIP-467); 9 is flexible; 10 adds
the new leader's address (KIP-951); 11 and 12 change the rules of transactions (KIP-890); 13
names topics by id (KIP-516).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, int64, records, string, uuid


@struct
class PartitionProduceData:
    """The batches for one partition."""

    index: int32
    records: records | None


@struct
class TopicProduceData:
    """The batches for one topic."""

    name: string = field("0-12")
    topic_id: uuid = field("13+")
    partition_data: list[PartitionProduceData]


@message(key=0, versions="3-13", flexible="9+")
class ProduceRequest:
    """Not answered when acks is 0; with -1, answered once the in-sync replicas have the batches.
    """

    transactional_id: string | None = field("3+", default=None)
    acks: int16
    timeout_ms: int32
    topic_data: list[TopicProduceData]


@struct
class BatchIndexAndErrorMessage:
    """A record that caused its batch to be refused."""

    batch_index: int32 = field("8+")
    batch_index_error_message: string | None = field("8+", default=None)


@struct
class LeaderIdAndEpoch:
    """The current leader of the partition."""

    leader_id: int32 = field("10+", default=-1)
    leader_epoch: int32 = field("10+", default=-1)


@struct
class PartitionProduceResponse:
    """The offset given to the first record, or an error."""

    index: int32
    error_code: int16 = field()
    base_offset: int64
    log_append_time_ms: int64 = field("2+", default=-1)
    log_start_offset: int64 = field("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+")
    error_message: string | None = field("8+", default=None)
    current_leader: LeaderIdAndEpoch = field("10+", tag=0)


@struct
class TopicProduceResponse:
    """The result for one topic's batches."""

    name: string = field("0-12")
    topic_id: uuid = field("13+")
    partition_responses: list[PartitionProduceResponse]


@struct
class NodeEndpoint:
    """The address of a current leader."""

    node_id: int32 = field("10+")
    host: string = field("10+")
    port: int32 = field("10+")
    rack: string | None = field("10+", default=None)


@message(key=0, versions="3-13", flexible="9+")
class ProduceResponse:
    """The result for each partition's batches."""

    responses: list[TopicProduceResponse]
    throttle_time_ms: int32 = field("1+")
    node_endpoints: list[NodeEndpoint] = field("10+", tag=0)
