"""The value of a transaction marker, the control record that ends a transaction (KIP-98).

A marker is alone in a control batch:

    key    | version i16 = 0 | type i16: 0 abort, 1 commit |
    value  | version i16 = 0 | EndTxnMarker |
"""

from __future__ import annotations

from odradek.protocol.schema import message
from odradek.protocol.wire import int32


@message(versions="0", flexible="none")
class EndTxnMarker:
    """The epoch of the transaction coordinator that wrote the marker."""

    coordinator_epoch: int32
