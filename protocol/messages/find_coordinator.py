"""FindCoordinator (10): find the broker that coordinates a group or a transaction.

Version notes: 1 adds the kind of key (0 group, 1 transaction, 2 share group); 3 is flexible;
4 asks for several keys at once (KIP-699); 5 may answer TRANSACTION_ABORTABLE (KIP-890); 6
adds share groups, whose key reads "group:topic id:partition" (KIP-932).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int8, int16, int32, string


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    """Asks for the coordinator of a key, or of several."""

    key: string = field("0-3")
    key_type: int8 = field("1+")
    coordinator_keys: list[string] = field("4+")


@struct
class Coordinator:
    """The coordinator of one key, or the reason why none is known."""

    key: string = field("4+")
    node_id: int32 = field("4+")
    host: string = field("4+")
    port: int32 = field("4+")
    error_code: int16 = field("4+")
    error_message: string | None = field("4+")


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """The coordinators; up to version 3 the one coordinator, field by field."""

    throttle_time_ms: int32 = field("1+")
    error_code: int16 = field("0-3")
    error_message: string | None = field("1-3")
    node_id: int32 = field("0-3")
    host: string = field("0-3")
    port: int32 = field("0-3")
    coordinators: list[Coordinator] = field("4+")
