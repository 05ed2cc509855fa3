"""AddPartitionsToTxn (24): make partitions part of a transaction before they are written to.

Version notes: 2 may answer PRODUCER_FENCED (KIP-588); 3 is flexible. From 4 on brokers ask each
other, for several transactions at once, and may only ask whether partitions have been added
(KIP-890); 5 may answer TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int16, int32, int64, string


@struct
class AddPartitionsToTxnTopic:
    """Partitions of a topic."""

    name: string
    partitions: list[int32]


@struct
class AddPartitionsToTxnTransaction:
    """A transaction and the partitions to add to it, or to check for in it."""

    transactional_id: string = field("4+")
    producer_id: int64 = field("4+")
    producer_epoch: int16 = field("4+")
    verify_only: boolean = field("4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = field("4+")


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    """Clients name one transaction, brokers any number."""

    transactions: list[AddPartitionsToTxnTransaction] = field("4+")
    v3_and_below_transactional_id: string = field("0-3")
    v3_and_below_producer_id: int64 = field("0-3")
    v3_and_below_producer_epoch: int16 = field("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3")


@struct
class AddPartitionsToTxnPartitionResult:
    """The result for a partition."""

    partition_index: int32
    partition_error_code: int16


@struct
class AddPartitionsToTxnTopicResult:
    """The result for a topic's partitions."""

    name: string
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnResult:
    """The result for a transaction's partitions."""

    transactional_id: string = field("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = field("4+")


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """All partitions of a transaction are added, or none."""

    throttle_time_ms: int32 = field(default=0)
    error_code: int16 = field("4+", default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3")
