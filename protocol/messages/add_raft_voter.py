"""AddRaftVoter (80): add a controller to the quorum (KIP-853).

Version notes: 1 can ask for the answer before the change is committed.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int16, int32, string, uint16, uuid


@struct
class Listener:
    """An address of the new voter."""

    name: string
    host: string
    port: uint16


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    """The controller to add."""

    cluster_id: string | None
    timeout_ms: int32
    voter_id: int32
    voter_directory_id: uuid
    listeners: list[Listener]
    ack_when_committed: boolean = field("1+", default=True)


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    """Whether the controller votes from now on."""

    throttle_time_ms: int32 = field()
    error_code: int16
    error_message: string | None
