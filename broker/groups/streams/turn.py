"""One operation on one streams group: its inputs and its decisions.

All records are decided on by the state before the operation. They are taken in together at its
end, appended as one batch, and the request is answered after that. An operation that is refused
has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from odradek.broker.coordination.effects import (
    CancelTimer,
    Effect,
    Note,
    Purpose,
    StartTimer,
    Timer,
    Token,
)
from odradek.broker.groups.modern.topics import TopicHashes, TopicView
from odradek.broker.groups.modern.unstored import Answer
from odradek.broker.groups.streams.group import StreamsGroup, Unlogged
from odradek.broker.groups.streams.member import MemberState, StreamsMember
from odradek.broker.groups.streams.records import Kind, StreamsRecord, Value
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.streams_group_records import (
    LastAssignmentConfig,
    StreamsGroupMetadataValue,
)

if TYPE_CHECKING:
    from odradek.broker.groups.streams.configured import Condition, Configured

STANDBYS = "num.standby.replicas"


class StreamsTimer(Purpose):
    """The purpose of a deadline of a streams group."""

    SESSION = "session"  # A member has sent no heartbeat.
    REBALANCE = "rebalance"  # A member has not given up its tasks.
    INITIAL = "initial"  # More members may join before the first assignment.


@dataclass(frozen=True, slots=True)
class StreamsGroupConfig:
    """The options for the members of a streams group, with Kafka's defaults."""

    members_max: int = 2**31 - 1
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    initial_delay_ms: int = 3_000
    standby_count: int = 0


@dataclass(slots=True)
class StreamsTurn:
    """One operation, owned by the StreamsGroups that carries it out."""

    group: StreamsGroup
    config: StreamsGroupConfig
    now_ms: int
    topics: TopicView
    hashes: TopicHashes
    # Whether the group comes into being by this operation.
    is_new: bool = False
    # Whether an empty classic group of the same id goes.
    replaces_classic: bool = False
    records: list[StreamsRecord] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    # The state outside the log after the operation.
    unlogged: Unlogged = field(init=False)
    is_delayed: bool = field(init=False)

    def __post_init__(self) -> None:
        before = self.group.unlogged
        self.unlogged = Unlogged(
            before.configured,
            before.needs_refresh,
            before.shutdown_member,
            before.endpoint_epoch,
            before.endpoints,
        )
        self.is_delayed = self.group.is_delayed

    def emit(self, kind: Kind, value: Value | None, member_id: str = "") -> None:
        """Decide on a record."""
        self.records.append(StreamsRecord(kind, self.group.group_id, member_id, value))

    def emit_epoch(
        self, metadata_hash: int, validated_epoch: int, standbys: str | None
    ) -> int:
        """Begin another epoch of the group, and return it; `standbys` is None if not known."""
        epoch = self.group.epoch + 1
        configs = [] if standbys is None else [LastAssignmentConfig(key=STANDBYS, value=standbys)]
        value = StreamsGroupMetadataValue(
            epoch=epoch,
            metadata_hash=metadata_hash,
            validated_topology_epoch=validated_epoch,
            last_assignment_configs=configs,
        )
        self.emit(Kind.GROUP, value)
        self.note(f"raised epoch epoch={epoch}")
        return epoch

    def set_configured(self, configured: Configured) -> None:
        """Replace the topology with its numbers."""
        self.unlogged.configured = configured
        self.unlogged.endpoints = {}

    def take_in(self) -> None:
        """Take in all decisions.

        A new group begins without a state outside the log, as in Kafka, where another object
        takes its place.
        """
        group = self.group
        group.unlogged = Unlogged() if self.is_new else self.unlogged
        group.is_delayed = self.is_delayed
        for record in self.records:
            group.apply(record)

    def answer(
        self, token: Token, response: object, refuse: Callable[[ErrorCode], object]
    ) -> None:
        """Answer a request once the log has all decisions made so far."""
        self.answers.append(Answer(token, response, refuse))

    def delay_assignment(self) -> None:
        """Let the first assignment wait for more members, unless it waits already."""
        delay_ms = self.config.initial_delay_ms
        if delay_ms > 0 and not self.is_delayed:
            self.is_delayed = True
            timer = Timer(self.group.group_id, StreamsTimer.INITIAL)
            self.effects.append(StartTimer(timer, delay_ms))

    def watch(self, member_id: str) -> None:
        """Give a member its whole session timeout again."""
        self._start(StreamsTimer.SESSION, member_id, self.config.session_timeout_ms)

    def watch_revocation(self, member: StreamsMember) -> None:
        """Start the rebalance timeout of a member that must give up tasks, else stop it."""
        if member.state is MemberState.UNREVOKED_TASKS:
            timeout_ms = member.rebalance_timeout_ms
            self._start(StreamsTimer.REBALANCE, member.member_id, timeout_ms)
        else:
            self._cancel(StreamsTimer.REBALANCE, member.member_id)

    def unwatch(self, member_id: str) -> None:
        """Stop the timeouts of a member."""
        self._cancel(StreamsTimer.SESSION, member_id)
        self._cancel(StreamsTimer.REBALANCE, member_id)

    def note(self, text: str) -> None:
        """Log a line, which ends with the group's id."""
        self.effects.append(Note(f"{text} group={self.group.group_id}"))

    def _start(self, kind: StreamsTimer, member_id: str, delay_ms: int) -> None:
        timer = Timer(self.group.group_id, kind, member_id)
        self.effects.append(StartTimer(timer, delay_ms))

    def _cancel(self, kind: StreamsTimer, member_id: str) -> None:
        self.effects.append(CancelTimer(Timer(self.group.group_id, kind, member_id)))
