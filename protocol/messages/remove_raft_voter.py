"""RemoveRaftVoter (81): remove a controller from the quorum (KIP-853)."""

from __future__ import annotations

from odradek.protocol.schema import field, message
from odradek.protocol.wire import int16, int32, string, uuid


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    """The controller to remove."""

    cluster_id: string | None
    voter_id: int32
    voter_directory_id: uuid


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    """Whether the controller no longer votes."""

    throttle_time_ms: int32 = field()
    error_code: int16
    error_message: string | None
