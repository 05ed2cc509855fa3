"""A partition as this broker sees it: its log, offline, or led by another broker."""

from __future__ import annotations

from dataclasses import replace

from odradek.broker.metadata.members import NO_LEADER, Leader
from odradek.broker.metadata.store import TopicRecord
from odradek.config.topic import TopicConfig
from odradek.dataclass import dataclass
from odradek.storage.checkpoints import LeftLog
from odradek.storage.errors import NotLeader, StorageError
from odradek.storage.log import Log


@dataclass(frozen=True, slots=True)
class OfflinePartition:
    """A partition that cannot be used for now, and the error that is the cause."""

    topic: str
    partition: int
    cause: StorageError
    log: Log | None = None  # its log until the disk failed
    is_made: bool = False  # whether it is known to have had a directory

    @property
    def leader_epoch(self) -> int:
        """The epoch until it went offline, -1 when that is not known."""
        return self.log.leader_epoch if self.log else -1


@dataclass(frozen=True, slots=True)
class RemotePartition:
    """A partition that another broker leads, or, with NO_LEADER, none for now."""

    topic: str
    partition: int
    leader: Leader

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader."""
        return self.leader.epoch

    @property
    def is_shared(self) -> bool:
        """Whether the bucket has the partition."""
        return self.leader.is_shared

    @property
    def cause(self) -> StorageError:
        """The error that a client gets here."""
        return NotLeader(f"{self.topic}-{self.partition} is led by another broker")


Partition = Log | OfflinePartition | RemotePartition


@dataclass(frozen=True, slots=True)
class Wanted:
    """A partition of a topic that is to be opened, with the topic's settings.

    `failed` is the log whose disk failed, and `left` the state in which another broker of the
    host left it. With `is_made` it has had a directory: a new one would silently hide the loss of
    its records. With `is_new` its topic is being created: there are no records.
    """

    record: TopicRecord
    number: int
    config: TopicConfig
    failed: Log | None = None
    is_made: bool = False
    left: LeftLog | None = None
    is_new: bool = False

    @property
    def key(self) -> tuple[bytes, int]:
        """The topic's id and the partition's number."""
        return self.record.topic_id, self.number

    @property
    def is_shared(self) -> bool:
        """Whether the partition is in the bucket."""
        leaders = self.record.leaders
        return bool(leaders) and leaders[self.number].is_shared

    @property
    def name(self) -> str:
        """The name of the partition, and of its directory."""
        return f"{self.record.name}-{self.number}"


@dataclass(frozen=True, slots=True)
class Handover:
    """A partition that a broker is to lead, and how its log was left for it.

    One of another host has a copy, made for the move of this number; -1 stands for no copy.
    """

    node_id: int
    left: LeftLog
    move: int = -1


def remote(record: TopicRecord, number: int) -> RemotePartition:
    """Return a partition of a topic as one that another broker leads."""
    return RemotePartition(record.name, number, record.leaders[number])


def leaderless(record: TopicRecord, number: int) -> RemotePartition:
    """Return a partition of a topic without a leader."""
    leader = replace(record.leaders[number], node_id=NO_LEADER)
    return RemotePartition(record.name, number, leader)


def as_offline(wanted: Wanted, error: StorageError) -> OfflinePartition:
    """Return a partition that could not be opened."""
    name = wanted.record.name
    return OfflinePartition(name, wanted.number, error, wanted.failed, wanted.is_made)
