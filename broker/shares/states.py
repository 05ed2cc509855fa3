"""The operations on the states of share-partitions: Kafka's Persister (KIP-932)."""

from __future__ import annotations

from typing import Protocol

from odradek.broker.coordination.runtime import Answer
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.state_records import ShareState
from odradek.broker.shares.state_shard import StateAnswer


class Persister(Protocol):
    """The operations on the states of share-partitions."""

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> Answer[StateAnswer]:
        """Begin the state of a share-partition; -1 leaves the start to its first reader."""

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Answer[StateAnswer]:
        """Read the state of a share-partition, from which its leader continues."""

    def write(self, key: SharePartitionKey, change: ShareState) -> Answer[StateAnswer]:
        """Store a change of a share-partition."""

    def summarize(self, key: SharePartitionKey) -> Answer[StateAnswer]:
        """Return a summary of a share-partition's state."""

    def delete(self, key: SharePartitionKey) -> Answer[StateAnswer]:
        """Delete the state of a share-partition."""
