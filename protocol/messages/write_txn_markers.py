"""WriteTxnMarkers (27): end transactions in partitions.

A coordinator sends it to the brokers that lead the partitions; an administrator uses it to end a
transaction that no coordinator knows (KIP-664). Version 1 is flexible; 2 names the transaction
version that the marker follows (KIP-1228).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int8, int16, int32, int64, string


@struct
class WritableTxnMarkerTopic:
    """Partitions of a topic."""

    name: string
    partition_indexes: list[int32]


@struct
class WritableTxnMarker:
    """A marker and the partitions to write it to."""

    producer_id: int64
    producer_epoch: int16
    transaction_result: boolean
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: int32
    transaction_version: int8 = field("2+", default=0)


@message(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    """Asks for any number of markers."""

    markers: list[WritableTxnMarker]


@struct
class WritableTxnMarkerPartitionResult:
    """The result for a marker in a partition."""

    partition_index: int32
    error_code: int16


@struct
class WritableTxnMarkerTopicResult:
    """The result for a marker in a topic."""

    name: string
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerResult:
    """The result for a producer's markers."""

    producer_id: int64
    topics: list[WritableTxnMarkerTopicResult]


@message(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    """Sent once the markers are as durable as acks=all makes a batch."""

    markers: list[WritableTxnMarkerResult]
