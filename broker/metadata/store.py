"""The cluster's metadata: topics, configurations, levels of features, producer ids, security.

`MetadataStore` is the seam: all operations that the broker needs of its metadata, few enough that
another engine (PostgreSQL, once there are many brokers) can implement them. `SqliteMetadata`
(`sqlite.py`) is the embedded default. A store only remembers; callers apply the rules for topic
names and configuration values.

Each change is one transaction, durable when it returns. The caller awaits it and then updates its
own memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import IntEnum
from typing import Protocol

from odradek.broker.metadata.members import Leader
from odradek.dataclass import dataclass


class ResourceType(IntEnum):
    """The type of a configuration's owner (ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class SecurityKind(IntEnum):
    """The kind of a row about security; its name and value are for the module that owns it."""

    ACL = 1
    SCRAM_CREDENTIAL = 2
    QUOTA = 3
    DELEGATION_TOKEN = 4


Rows = Mapping[str, str]
"""Texts by name."""
RowChanges = Mapping[str, str | None]
"""New texts by name; None removes the row of the name."""


@dataclass(frozen=True, slots=True, order=True)
class Resource:
    """The owner of configurations: a topic by its name, a broker by its id, "" for all brokers."""

    type: ResourceType
    name: str


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic in the store; `is_deleting` once its deletion has begun.

    Its first `made_count` partitions are known to have had their directories.
    """

    name: str
    topic_id: bytes
    partition_count: int
    replication_factor: int
    created_ms: int
    is_deleting: bool = False
    made_count: int = field(default=0, compare=False)
    # By partition, where brokers share the store; otherwise the one broker leads all partitions.
    leaders: tuple[Leader, ...] = ()

    def led_by(self, leader: Leader) -> TopicRecord:
        """Return the topic with one leader for all partitions."""
        return replace(self, leaders=(leader,) * self.partition_count)

    def is_made(self, partition: int) -> bool:
        """Return whether a partition is known to have had its directory."""
        if self.leaders:
            return self.leaders[partition].is_made
        return partition < self.made_count


@dataclass(frozen=True, slots=True)
class Metadata:
    """All that a store holds, read once when the broker starts."""

    cluster_id: str
    topics: tuple[TopicRecord, ...]
    configs: Mapping[Resource, Mapping[str, str]]
    # The levels of features that clients have finalized, by name.
    features: Mapping[str, int] = field(default_factory=dict)
    security: Mapping[SecurityKind, Rows] = field(default_factory=dict)
    # All ids below it are taken.
    next_producer_id: int = 0
    # Topics that other brokers have deleted, and of which this one still has files.
    removals: tuple[TopicRecord, ...] = ()


class MetadataStore(Protocol):
    """The operations on the metadata. Every method may raise MetadataError."""

    @property
    def revision(self) -> int:
        """A number that grows with every change, like the end of Kafka's metadata log."""

    @property
    def is_shared(self) -> bool:
        """Whether other brokers may use the store, too: topics then have leaders."""

    async def load(self) -> Metadata:
        """Return everything; nothing is written."""

    async def settle(self) -> None:
        """Make the loaded metadata durable, and repair damaged copies.

        Called once the log directories are known to belong to this process.
        """

    async def create_topics(self, topics: Sequence[tuple[TopicRecord, Mapping[str, str]]]) -> None:
        """Add topics, each with its configurations; all of them or none."""

    def note_made(self, topic_id: bytes, partitions: Sequence[int]) -> None:
        """Note that partitions of a topic, the first or later ones, have their directories.

        The note is written with the next change, or when the store is closed.
        """

    def note_removed(self, topic_ids: Iterable[bytes]) -> None:
        """Note that this broker has no files of topics whose deletion is finished.

        The note is written as that of `note_made` is.
        """

    async def begin_deletion(self, topic_ids: Sequence[bytes]) -> None:
        """Mark topics whose files will be removed, so that a restart finishes the removal."""

    async def finish_deletion(self, topic_ids: Sequence[bytes]) -> None:
        """Remove topics and their configurations."""

    async def enlarge_topics(self, enlarged: Sequence[TopicRecord]) -> None:
        """Set the numbers of partitions of topics; all of them or none."""

    async def replace_configs(self, changes: Mapping[Resource, Mapping[str, str]]) -> None:
        """Replace all configurations of some resources; all of them or none."""

    async def finalize_features(self, levels: Mapping[str, int]) -> None:
        """Set the levels of some features; all of them or none."""

    async def change_security(self, kind: SecurityKind, changes: RowChanges) -> None:
        """Write or remove rows of a kind; all of them or none."""

    async def unregister(self, node_id: int) -> None:
        """Forget a broker that has stopped, until it comes back."""

    async def allocate_producer_ids(self, count: int) -> int:
        """Reserve a block of producer ids for good; return the first id."""

    async def close(self) -> None:
        """Finish the changes that have begun, and close the database."""
