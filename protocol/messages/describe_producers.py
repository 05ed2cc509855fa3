"""DescribeProducers (61): what partitions know about the producers that write to them (KIP-664).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, int64, string


@struct
class TopicRequest:
    """Partitions of a topic."""

    name: string
    partition_indexes: list[int32]


@message(key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    """Names the partitions."""

    topics: list[TopicRequest]


@struct
class ProducerState:
    """A producer; -1 stands for an unknown value."""

    producer_id: int64
    producer_epoch: int32
    last_sequence: int32 = field(default=-1)
    last_timestamp: int64 = field(default=-1)
    coordinator_epoch: int32
    current_txn_start_offset: int64 = field(default=-1)


@struct
class PartitionResponse:
    """A partition's producers."""

    partition_index: int32
    error_code: int16
    error_message: string | None = field(default=None)
    active_producers: list[ProducerState]


@struct
class TopicResponse:
    """A topic's partitions."""

    name: string
    partitions: list[PartitionResponse]


@message(key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    """The producers, in the order of the request."""

    throttle_time_ms: int32 = field(default=0)
    topics: list[TopicResponse]
