"""AddOffsetsToTxn (25): make a group's offsets part of a transaction.

The request adds the group's partition of __consumer_offsets. Version notes: 2 may answer
PRODUCER_FENCED (KIP-588); 3 is flexible; 4 may answer TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message
from odradek.protocol.wire import int16, int32, int64, string


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    """Names the transaction and the group."""

    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    group_id: string


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """Whether the group's offsets may now be committed in the transaction."""

    throttle_time_ms: int32 = field(default=0)
    error_code: int16
