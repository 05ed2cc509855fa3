"""The records of the coordinator of transactions in __transaction_state.

Key and value of each record begin with an int16, the kind of the key and the version of the value:

    key    | 0 | TransactionLogKey      value  | 0 or 1 | TransactionLogValue

A null value is a tombstone: the transactional id has expired.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int8, int16, int32, int64, string


@message(versions="0", flexible="none")
class TransactionLogKey:
    """Identifies a transactional id."""

    transactional_id: string


@struct
class PartitionsSchema:
    """Partitions of a topic in the transaction."""

    topic: string
    partition_ids: list[int32]


@message(versions="0-1", flexible="1+")
class TransactionLogValue:
    """The state of a transactional id."""

    producer_id: int64
    previous_producer_id: int64 = field("1+", tag=0, default=-1)
    next_producer_id: int64 = field("1+", tag=1, default=-1)
    producer_epoch: int16
    next_producer_epoch: int16 = field("1+", tag=3, default=-1)
    transaction_timeout_ms: int32
    transaction_status: int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: int64
    transaction_start_timestamp_ms: int64
    client_transaction_version: int16 = field("1+", tag=2, default=0)
