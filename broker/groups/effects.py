"""The tickets of the machine of groups: they come back when the log has the records."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.coordination.effects import Caller, Effect, Note, Purpose, Token
from odradek.broker.groups.modern.unstored import Stored
from odradek.broker.groups.records import OffsetRecord
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek.protocol.messages.offset_delete import OffsetDeleteResponse
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)


class TimerKind(Purpose):
    """The purpose of a deadline of a group."""

    SESSION = "session"  # A member has sent no heartbeat.
    JOIN = "join"  # Members have not rejoined.
    SYNC = "sync"  # Members have not asked for their assignment.


@dataclass(frozen=True, slots=True)
class AssignmentStored:
    """The leader's assignment: the generation becomes stable."""

    group_id: str
    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class StaticMemberStored:
    """A static member's new id, in a group that stays stable; undone if it is not stored."""

    group_id: str
    caller: Caller
    instance_id: str
    member_id: str
    old_member_id: str
    old_leader_id: str | None
    old_protocols: tuple[tuple[str, bytes], ...]
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int


@dataclass(frozen=True, slots=True)
class EmptyGroupStored:
    """A generation without members; no request waits for it."""

    group_id: str


@dataclass(frozen=True, slots=True)
class OffsetsStored:
    """The offsets of an OffsetCommit, with its prepared answer."""

    records: tuple[OffsetRecord, ...]
    token: Token
    request: OffsetCommitRequest
    response: OffsetCommitResponse


@dataclass(frozen=True, slots=True)
class UndecidedOffsetsStored:
    """The offsets of a TxnOffsetCommit, with its prepared answer."""

    records: tuple[OffsetRecord, ...]
    token: Token
    request: TxnOffsetCommitRequest
    response: TxnOffsetCommitResponse


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """The marker that ends a producer's transaction; answered with an ErrorCode."""

    producer_id: int
    is_commit: bool
    token: Token


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    """Tombstones of the offsets of an OffsetDelete, with its prepared answer."""

    records: tuple[OffsetRecord, ...]
    token: Token
    response: OffsetDeleteResponse


@dataclass(frozen=True, slots=True)
class OffsetsRemoved:
    """Tombstones of offsets that have expired, or whose topic was deleted."""

    records: tuple[OffsetRecord, ...]


@dataclass(frozen=True, slots=True)
class GroupRemoved:
    """Tombstones of a group and its offsets; the token is None when no request waits."""

    group_id: str
    generation: int
    records: tuple[OffsetRecord, ...]
    token: Token | None
    # Whether the group is no longer in memory, and must be loaded again if the log refuses.
    is_gone: bool = False


OffsetTicket = (
    OffsetsStored
    | UndecidedOffsetsStored
    | TransactionEnded
    | OffsetsDeleted
    | OffsetsRemoved
    | GroupRemoved
)
Ticket = (
    AssignmentStored
    | StaticMemberStored
    | EmptyGroupStored
    | OffsetTicket
    | Stored
)


def note_failure(group_id: str, error: ErrorCode) -> list[Effect]:
    """Return a line for the broker's log after a failed append for which no request waits."""
    if error is ErrorCode.NONE:
        return []
    # The records of the group in the log stay valid until the group is written again.
    return [Note(f"failed to store group={group_id} error={error.name}", is_warning=True)]
