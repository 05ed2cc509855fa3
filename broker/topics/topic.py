"""A topic as requests see it: its settings, and the log of each partition."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.metadata.store import TopicRecord
from odradek.broker.topics import names as topic_names
from odradek.broker.topics.states import Partition, RemotePartition
from odradek.config.topic import TopicConfig
from odradek.dataclass import dataclass
from odradek.storage.log import Log


@dataclass(frozen=True, slots=True)
class Topic:
    """The current state of a topic; each change replaces the whole object."""

    record: TopicRecord
    partitions: tuple[Partition, ...]
    overrides: Mapping[str, str]
    config: TopicConfig

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.record.name

    @property
    def topic_id(self) -> bytes:
        """The topic's id, 16 bytes; a later topic of the same name has a different one."""
        return self.record.topic_id

    @property
    def is_internal(self) -> bool:
        """Whether the broker itself writes to the topic."""
        return self.name in topic_names.INTERNAL

    def log(self, partition: int) -> Log | None:
        """Return a partition's log, None when there is no such partition.

        Raises StorageError for an offline partition, and for one that another broker leads.
        """
        if not 0 <= partition < len(self.partitions):
            return None
        found = self.partitions[partition]
        if not isinstance(found, Log):
            raise found.cause
        return found

    def other_leader(self, partition: int) -> int | None:
        """Return the node id of the other broker that leads a partition.

        NO_LEADER while none does; None when this broker does, or there is no such partition.
        """
        if not 0 <= partition < len(self.partitions):
            return None
        found = self.partitions[partition]
        return found.leader.node_id if isinstance(found, RemotePartition) else None

    @property
    def remote_count(self) -> int:
        """The number of partitions that other brokers lead."""
        return sum(isinstance(one, RemotePartition) for one in self.partitions)

    @property
    def logs(self) -> list[Log]:
        """The logs of the partitions that this broker leads, and that are not offline."""
        return [one for one in self.partitions if isinstance(one, Log)]
