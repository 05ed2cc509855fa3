"""What a group's state machine decides, as values for the coordinator to carry out.

A decision never waits. What must be in the log before it is answered is asked for with
`Persist`: it names the records and a ticket, and when the log has them (or has failed), the
ticket comes back to the machine, which then decides what follows, the answer included.

    request -> machine -> [Persist(records, ticket)]     the log appends
    ticket  -> machine -> [Reply(token, response)]       the client is told
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from broker.groups.records import OffsetRecord, Record
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatResponse
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupResponse
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.offset_delete import OffsetDeleteResponse
from protocol.messages.sync_group import SyncGroupResponse

Response = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | OffsetCommitResponse
    | OffsetDeleteResponse
    | ErrorCode
)
Token = object
"""Stands for one request that waits for its answer; the machine only hands it back."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A request's token and what the machine must know of who sent it.

    `fresh_id` is unique, drawn by the coordinator: a new member's id is made of it.
    """

    token: Token
    api_version: int
    client_id: str = ""
    client_host: str = ""
    fresh_id: str = ""


class TimerKind(enum.Enum):
    """What a deadline of a group is for."""

    SESSION = "session"  # a member has sent no heartbeat
    JOIN = "join"  # members have not rejoined
    SYNC = "sync"  # members have not asked for their assignment


class Timer(NamedTuple):
    """A deadline of a group; starting it again moves it."""

    group_id: str
    kind: TimerKind
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class AssignmentStored:
    """The leader's assignment: the generation becomes stable."""

    group_id: str
    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class StaticMemberStored:
    """A static member's new id, in a group that stays stable; undone when not stored."""

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
    """A generation without members: nobody waits for it."""

    group_id: str


@dataclass(frozen=True, slots=True)
class OffsetsStored:
    """The offsets of an OffsetCommit, with the answer that was prepared for it."""

    records: tuple[OffsetRecord, ...]
    token: Token
    request: OffsetCommitRequest
    response: OffsetCommitResponse


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    """Tombstones of the offsets of an OffsetDelete, with the answer that was prepared for it."""

    records: tuple[OffsetRecord, ...]
    token: Token
    response: OffsetDeleteResponse


@dataclass(frozen=True, slots=True)
class OffsetsRemoved:
    """Tombstones of offsets that have expired or whose topic is gone."""

    records: tuple[OffsetRecord, ...]


@dataclass(frozen=True, slots=True)
class GroupRemoved:
    """Tombstones of a group and its offsets; the token is None when nobody asked."""

    group_id: str
    generation: int
    records: tuple[OffsetRecord, ...]
    token: Token | None


Ticket = (
    AssignmentStored
    | StaticMemberStored
    | EmptyGroupStored
    | OffsetsStored
    | OffsetsDeleted
    | OffsetsRemoved
    | GroupRemoved
)


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a request."""

    token: Token
    response: Response


@dataclass(frozen=True, slots=True)
class Persist:
    """Append records to the group's partition, as one batch, and bring the ticket back."""

    records: tuple[Record, ...]
    ticket: Ticket


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Start a timer, or move it, to a time from now."""

    timer: Timer
    delay_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Stop a timer; one that does not run is left alone."""

    timer: Timer


@dataclass(frozen=True, slots=True)
class Note:
    """Something for the broker's log: one line, past tense, key=value."""

    text: str
    is_warning: bool = False


Effect = Reply | Persist | StartTimer | CancelTimer | Note
