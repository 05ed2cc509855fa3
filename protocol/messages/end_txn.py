"""EndTxn (26): commit or abort a transaction.

Version notes: 2 may answer PRODUCER_FENCED (KIP-588); 3 is flexible; 4 may answer
TRANSACTION_ABORTABLE; 5 raises the producer's epoch, and answers with the id and the epoch for
the next transaction (KIP-890).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message
from odradek.protocol.wire import boolean, int16, int32, int64, string


@message(key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    """Asks for the end of a producer's transaction."""

    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    committed: boolean


@message(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    """Sent once the decision cannot be lost any more."""

    throttle_time_ms: int32 = field(default=0)
    error_code: int16
    producer_id: int64 = field("5+", default=-1)
    producer_epoch: int16 = field("5+", default=-1)
