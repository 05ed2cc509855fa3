"""One operation on one share group: its inputs and its decisions.

A record is taken in as soon as it is decided on, so the operation continues with the changed
state. All its records are appended as one batch, and the request is answered after that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from odradek.broker.coordination.effects import (
    CancelTimer,
    Effect,
    Note,
    Purpose,
    StartTimer,
    Timer,
    Token,
)
from odradek.broker.groups.modern.tables import Moment
from odradek.broker.groups.modern.topics import TopicHashes, TopicView
from odradek.broker.groups.modern.unstored import Answer
from odradek.broker.groups.share.group import ShareGroup
from odradek.broker.groups.share.partitions import StatePartitions
from odradek.broker.groups.share.records import Kind, ShareRecord, Value
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.share_group_metadata import ShareGroupMetadataValue


class ShareTimer(Purpose):
    """The purpose of a deadline of a share group."""

    SESSION = "session"  # A member has sent no heartbeat.


@dataclass(frozen=True, slots=True)
class ShareGroupConfig:
    """The options for the members of a share group, with Kafka's defaults."""

    members_max: int = 200
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    initialize_retry_ms: int = 30_000


@dataclass(slots=True)
class ShareTurn:
    """One operation, owned by the ShareGroups that carries it out."""

    group: ShareGroup
    config: ShareGroupConfig
    now_ms: int
    topics: TopicView
    hashes: TopicHashes
    records: list[ShareRecord] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    # The table of members at the beginning: Kafka takes in decisions when all are made.
    begun: Moment = field(init=False)

    def __post_init__(self) -> None:
        self.begun = self.group.members.now()

    def emit(self, kind: Kind, value: Value | None, member_id: str = "") -> None:
        """Decide on a record, and take it in."""
        record = ShareRecord(kind, self.group.group_id, member_id, value)
        self.group.apply(record, self.now_ms)
        self.records.append(record)

    def emit_partitions(self, partitions: StatePartitions) -> None:
        """Decide on the partitions with state."""
        self.emit(Kind.PARTITIONS, partitions.stored(self.topics.name_of))

    def raise_epoch(self) -> None:
        """Begin another epoch of the group; its target assignment must then be computed again."""
        value = ShareGroupMetadataValue(epoch=self.group.epoch + 1, metadata_hash=self.hash())
        self.emit(Kind.GROUP, value)

    def hash(self) -> int:
        """Hash the topics that the group reads."""
        return self.hashes.of_group(self.group.subscriptions)

    def answer(
        self, token: Token, response: object, refuse: Callable[[ErrorCode], object]
    ) -> None:
        """Answer a request once the log has all decisions made so far."""
        self.answers.append(Answer(token, response, refuse))

    def watch(self, member_id: str) -> None:
        """Give a member its whole session timeout again."""
        timer = Timer(self.group.group_id, ShareTimer.SESSION, member_id)
        self.effects.append(StartTimer(timer, self.config.session_timeout_ms))

    def unwatch(self, member_id: str) -> None:
        """Stop the session timeout of a member."""
        self.effects.append(
            CancelTimer(Timer(self.group.group_id, ShareTimer.SESSION, member_id))
        )

    def note(self, text: str) -> None:
        """Log a line, which ends with the group's id."""
        self.effects.append(Note(f"{text} group={self.group.group_id}"))
