"""InitProducerId (22): get a producer id, for idempotence or for transactions (KIP-98).

Version notes: 2 is flexible; 3 can continue with the producer's id (KIP-360); 4 may answer
PRODUCER_FENCED (KIP-588); 5 TRANSACTION_ABORTABLE (KIP-890). Version 6, two-phase commit, is
not stable in Kafka 4.3 and not declared here.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message
from odradek.protocol.wire import int16, int32, int64, string


@message(key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest:
    """A null transactional id asks for idempotence only."""

    transactional_id: string | None
    transaction_timeout_ms: int32
    producer_id: int64 = field("3+", default=-1)
    producer_epoch: int16 = field("3+", default=-1)


@message(key=22, versions="0-5", flexible="2+")
class InitProducerIdResponse:
    """The id, and an epoch that fences the producer's earlier instances."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    producer_id: int64 = field(default=-1)
    producer_epoch: int16
