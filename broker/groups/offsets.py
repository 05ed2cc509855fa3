"""The committed offsets of one group, by topic and partition.

An offset takes effect once the log has it: until then it is pending, is not fetched, and does not
expire. The records of the log, in its order, are exactly the changes applied here.

An offset that is committed in a transaction (KIP-98) takes effect once the log also has the marker
that commits it. Of several offsets for a partition, the last in the log counts, whichever
transaction ends first: a transaction cannot bring back an offset that another commit has replaced
or a tombstone has removed. Kafka's source: OffsetMetadataManager, replay and
replayEndTransactionMarker.

Invariants:

1. `by_topic` has offsets of records that the log has, and no empty tables.
2. A partition is in `pending` as often as there are commits for it on their way to the log.
3. A tombstone ends the undecided offsets of its partition as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from itertools import takewhile

from odradek.broker.groups.modern.tables import NumberTimeline, Timeline
from odradek.broker.groups.records import CommittedOffset, OffsetRecord
from odradek.dataclass import dataclass

TopicPartition = tuple[str, int]
PartitionOffsets = NumberTimeline[CommittedOffset]


@dataclass(slots=True)
class GroupOffsets:
    """The offsets of a group, which owns them."""

    # Changed by `apply` and `decide`, and by replays through `room`: in the order of Kafka's maps.
    by_topic: Timeline[PartitionOffsets] = field(default_factory=Timeline)
    # By partition, the number of commits on their way to the log.
    pending: Counter[TopicPartition] = field(default_factory=Counter)
    # By partition, the offset of each producer with an open transaction, in the log's order;
    # None where a later commit has taken effect already.
    undecided: dict[TopicPartition, dict[int, CommittedOffset | None]] = field(
        default_factory=dict
    )

    def __bool__(self) -> bool:
        """Return whether the group has an offset, pending and undecided ones included."""
        return bool(self.by_topic or self.pending or self.undecided)

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        """Return the committed offset of a partition."""
        partitions = self.by_topic.get(topic)
        return None if partitions is None else partitions.get(partition)

    def snapshot(self, topics: Iterable[str]) -> GroupOffsets:
        """Return a read-only copy of the committed offsets of some topics."""
        copy = GroupOffsets()
        for topic in topics:
            partitions = self.by_topic.get(topic)
            if partitions is not None:
                room = copy.by_topic[topic] = PartitionOffsets()
                room.update(partitions)
        return copy

    def partitions(self) -> Iterator[TopicPartition]:
        """Iterate over the partitions with a committed, pending or undecided offset, each once."""
        for topic, partitions in self.by_topic.items():
            for partition in partitions:
                yield topic, partition
        for topic, partition in {**self.pending, **self.undecided}:
            if self.get(topic, partition) is None:
                yield topic, partition

    def room(self, topic: str) -> PartitionOffsets:
        """Return the table of a topic's offsets, adding an empty one if there is none."""
        partitions = self.by_topic.get(topic)
        if partitions is None:
            partitions = self.by_topic[topic] = PartitionOffsets()
        return partitions

    def in_order(self) -> Iterator[tuple[str, list[tuple[int, CommittedOffset]]]]:
        """Iterate over topics and their offsets in Kafka's order.

        Offsets of one transaction that share a place of a table may be in another order: Kafka
        adds them in the order of yet another table.
        """
        for topic in self.by_topic.in_order():
            partitions = self.by_topic[topic]
            yield topic, [(one, partitions[one]) for one in partitions.in_order()]

    def begin(self, records: Sequence[OffsetRecord]) -> None:
        """Note that records are on their way to the log."""
        self.pending.update((record.topic, record.partition) for record in records)

    def end(self, records: Sequence[OffsetRecord]) -> None:
        """Note that the log has records, or has failed to take them."""
        for record in records:
            key = record.topic, record.partition
            self.pending[key] -= 1
            if self.pending[key] <= 0:
                del self.pending[key]

    def apply(self, record: OffsetRecord) -> None:
        """Store or remove the offset of a record that the log has."""
        key = record.topic, record.partition
        if record.committed is not None:
            self.room(record.topic).put(record.partition, record.committed)
            for producer_id in self.undecided.get(key, ()):
                self.undecided[key][producer_id] = None
            return
        self.undecided.pop(key, None)
        partitions = self.by_topic.get(record.topic)
        if partitions is not None:
            partitions.pop(record.partition, None)
            if not partitions:
                del self.by_topic[record.topic]

    def apply_undecided(self, record: OffsetRecord, producer_id: int) -> None:
        """Keep the offset of a record until its transaction ends; a tombstone does not wait."""
        if record.committed is None:
            self.apply(record)
            return
        by_producer = self.undecided.setdefault((record.topic, record.partition), {})
        by_producer.pop(producer_id, None)
        by_producer[producer_id] = record.committed

    def decide(self, producer_id: int, *, is_commit: bool) -> None:
        """End a producer's transaction: its offsets take effect, or are dropped."""
        for key in [key for key, waiting in self.undecided.items() if producer_id in waiting]:
            waiting = self.undecided[key]
            committed = waiting[producer_id]
            if is_commit and committed is not None:
                topic, partition = key
                self.room(topic).put(partition, committed)
                for earlier in takewhile(lambda other: other != producer_id, list(waiting)):
                    waiting[earlier] = None
            del waiting[producer_id]
            if not waiting:
                del self.undecided[key]
