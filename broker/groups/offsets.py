"""The committed offsets of one group, by topic and partition.

An offset counts once the log has it: until then it is pending, is not fetched, and is left
alone by expiry. What the log gets, in its order, is exactly what is applied here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from broker.groups.records import CommittedOffset, OffsetRecord

TopicPartition = tuple[str, int]


@dataclass(slots=True)
class GroupOffsets:
    """Offsets of a group, owned by its ClassicGroup."""

    by_topic: dict[str, dict[int, CommittedOffset]] = field(default_factory=dict)
    # How many commits of a partition are on their way to the log.
    pending: Counter[TopicPartition] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        """Tell whether there is any offset, pending ones included."""
        return bool(self.by_topic or self.pending)

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        """Return the committed offset of a partition."""
        return self.by_topic.get(topic, {}).get(partition)

    def partitions(self) -> Iterator[TopicPartition]:
        """Return every partition that has an offset or a pending one, each once."""
        for topic, partitions in self.by_topic.items():
            for partition in partitions:
                yield topic, partition
        for topic, partition in self.pending:
            if self.get(topic, partition) is None:
                yield topic, partition

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
        if record.committed is not None:
            self.by_topic.setdefault(record.topic, {})[record.partition] = record.committed
            return
        partitions = self.by_topic.get(record.topic)
        if partitions is not None:
            partitions.pop(record.partition, None)
            if not partitions:
                del self.by_topic[record.topic]
