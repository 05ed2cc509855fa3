"""UnregisterBroker (64): remove a broker that will not return (KIP-631)."""

from __future__ import annotations

from odradek.protocol.schema import field, message
from odradek.protocol.wire import int16, int32, string


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    """The broker to remove."""

    broker_id: int32


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    """Whether the broker is removed."""

    throttle_time_ms: int32 = field()
    error_code: int16
    error_message: string | None
