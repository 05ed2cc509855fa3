"""ListTransactions (66): the transactional ids that a coordinator knows (KIP-664).

Version notes: 1 can ask for transactions that have run for some time (KIP-994); 2 can ask for ids
that a regular expression matches (KIP-1152).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, int64, string


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    """Filters; an empty filter lets everything through, as does a negative duration."""

    state_filters: list[string] = field()
    producer_id_filters: list[int64] = field()
    duration_filter: int64 = field("1+", default=-1)
    transactional_id_pattern: string | None = field("2+", default=None)


@struct
class TransactionState:
    """A transactional id and its state."""

    transactional_id: string
    producer_id: int64
    transaction_state: string


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    """The ids that pass the filters, and the unknown state names in the request."""

    throttle_time_ms: int32 = field(default=0)
    error_code: int16
    unknown_state_filters: list[string]
    transaction_states: list[TransactionState]
