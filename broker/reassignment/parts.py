"""The parts of a broker that moves of partitions take."""

from __future__ import annotations

from typing import Protocol

from odradek.broker.clock import Clock
from odradek.broker.durability.group_commit import GroupCommit
from odradek.broker.metadata.changes import Changes
from odradek.broker.metadata.configs import Configs
from odradek.broker.metadata.members import Brokers
from odradek.broker.topics.moves import Moves
from odradek.broker.topics.partitions import Partitions
from odradek.broker.topics.registry import Topics
from odradek.cleaner.runtime.pool import CleanerPool
from odradek.storage.files import FileSystem


class Parts(Protocol):
    """A broker, for the modules of this room."""

    fs: FileSystem
    clock: Clock
    configs: Configs
    changes: Changes
    topics: Topics
    partitions: Partitions
    moves: Moves
    group_commit: GroupCommit
    cleaner: CleanerPool

    @property
    def brokers(self) -> Brokers:
        """The members of the cluster."""
