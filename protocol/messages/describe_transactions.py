"""DescribeTransactions (65): the state of transactional ids (KIP-664)."""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, int64, string


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    """Names the transactional ids."""

    transactional_ids: list[string]


@struct
class TopicData:
    """Partitions of a topic in the open transaction that have no marker yet."""

    topic: string
    partitions: list[int32]


@struct
class TransactionState:
    """The state of a transactional id."""

    error_code: int16
    transactional_id: string
    transaction_state: string
    transaction_timeout_ms: int32
    transaction_start_time_ms: int64
    producer_id: int64
    producer_epoch: int16
    topics: list[TopicData]


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    """The states, in the order of the request."""

    throttle_time_ms: int32 = field(default=0)
    transaction_states: list[TransactionState]
