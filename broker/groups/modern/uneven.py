"""The uniform assignor for members that read different topics.

Free partitions go, topic by topic, to the reader with the fewest partitions. Then partitions are
moved, again topic by topic, from the readers with the most to those with the fewest, until a round
over all topics has moved none, or 16 rounds are over.

Kafka's source: UniformHeterogeneousAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.broker.groups.modern.draft import Draft, finish
from odradek.broker.groups.modern.spec import Assignment, GroupSpec

# Kafka's MAX_ITERATION_COUNT: each round about halves the imbalance.
_ROUNDS_MAX = 16
_SIGN = 1 << 63
_NOBODY = -1


def assign(spec: GroupSpec) -> Mapping[str, Assignment]:
    """Compute a target assignment."""
    builder = _Builder(spec)
    if not builder.readers:
        return {}
    builder.keep_what_is_read()
    builder.give_what_is_free()
    builder.balance()
    return finish(builder.drafts)


class _Builder:
    """Owns the drafts; members are identified by their index."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._ids = list(spec.members)
        self.readers: dict[bytes, list[int]] = {}
        for number, member in enumerate(spec.members.values()):
            for topic_id in member.topics:
                self.readers.setdefault(topic_id, []).append(number)
        self.drafts = {
            member_id: Draft(member.assignment) for member_id, member in spec.members.items()
        }
        self.sizes = [0] * len(self._ids)
        self._owners = {
            topic_id: [_NOBODY] * spec.partition_count(topic_id) for topic_id in self.readers
        }

    def keep_what_is_read(self) -> None:
        """Remove the topics that members do not read any more."""
        for number, (member_id, member) in enumerate(self._spec.members.items()):
            for topic_id, partitions in member.assignment.items():
                if topic_id not in member.topics:
                    self.drafts[member_id].remove_topic(topic_id)
                    continue
                self.sizes[number] += len(partitions)
                for partition in partitions:
                    self._owners[topic_id][partition] = number

    def give_what_is_free(self) -> None:
        """Give free partitions to the readers with the fewest partitions."""
        free = {
            topic_id: [p for p, owner in enumerate(owners) if owner == _NOBODY]
            for topic_id, owners in self._owners.items()
        }
        for topic_id in self._sorted(topic_id for topic_id, some in free.items() if some):
            scale = _Scale(self.readers[topic_id], self.sizes)
            for partition in free[topic_id]:
                self._give(topic_id, partition, scale.next_least())

    def balance(self) -> None:
        """Move partitions until no move makes the assignment more even."""
        topics = self._sorted(
            topic_id for topic_id, readers in self.readers.items() if len(readers) > 1
        )
        last_moved = -1
        for _ in range(_ROUNDS_MAX):
            for index, topic_id in enumerate(topics):
                if index == last_moved:
                    return
                if self._balance_topic(topic_id) > 0 or last_moved == -1:
                    last_moved = index

    def _balance_topic(self, topic_id: bytes) -> int:
        scale = _Scale(self.readers[topic_id], self.sizes)
        if scale.imbalance <= 1:
            return 0
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            held.setdefault(owner, []).append(partition)
        moved = 0
        while not scale.is_balanced():
            source = scale.next_most()
            while source is not None and not held.get(source):
                scale.exclude_most()
                source = scale.next_most()
            if source is None:
                break
            partition = held[source].pop()
            target = scale.next_least()
            if scale.is_balanced():
                break
            self._take(topic_id, partition)
            self._give(topic_id, partition, target)
            moved += 1
        return moved

    def _give(self, topic_id: bytes, partition: int, number: int) -> None:
        readers = len(self.readers[topic_id])
        estimate = (self._spec.partition_count(topic_id) + readers - 1) // readers
        draft = self.drafts[self._ids[number]]
        draft.add(topic_id, partition, capacity=int(estimate / 0.75 + 1))
        self._owners[topic_id][partition] = number
        self.sizes[number] += 1

    def _take(self, topic_id: bytes, partition: int) -> None:
        number = self._owners[topic_id][partition]
        self.drafts[self._ids[number]].remove(topic_id, partition)
        self._owners[topic_id][partition] = _NOBODY
        self.sizes[number] -= 1

    def _sorted(self, topics: Iterable[bytes]) -> list[bytes]:
        """Sort topics: most partitions per reader first, then fewest readers, then by id."""

        def rank(topic_id: bytes) -> tuple[float, int, int, int]:
            readers = len(self.readers[topic_id])
            # Uuids compare as two signed numbers.
            high, low = (int.from_bytes(half, "big") for half in (topic_id[:8], topic_id[8:]))
            per_reader = self._spec.partition_count(topic_id) / readers
            return -per_reader, readers, high ^ _SIGN, low ^ _SIGN

        return sorted(topics, key=rank)


class _Scale:
    """The readers of a topic by their numbers of partitions: a range of fewest and one of most.

    The range of fewest grows to the right as its members get partitions, that of most to the left
    as its members lose some. All members of a range have the same level; the two levels show when
    the topic is balanced. Members without a partition of the topic leave the range of most.
    """

    def __init__(self, readers: list[int], sizes: list[int]) -> None:
        self._sizes = sizes
        self._sorted = sorted(readers, key=lambda number: (sizes[number], number))
        least, most = sizes[self._sorted[0]], sizes[self._sorted[-1]]
        self.imbalance = most - least
        self._least_end, self._least_level, self._next_least = 0, least - 1, 0
        self._most_start = self._most_end = len(self._sorted)
        self._most_level, self._next_most = most + 1, len(self._sorted) - 1

    def next_least(self) -> int:
        """Return the member that gets the next partition."""
        if self._next_least >= self._least_end:
            self._least_level += 1
            while self._least_end < len(self._sorted) and (
                self._sizes[self._sorted[self._least_end]] == self._least_level
            ):
                self._least_end += 1
            self._next_least = 0
        self._next_least += 1
        return self._sorted[self._next_least - 1]

    def next_most(self) -> int | None:
        """Return the member that loses the next partition; None when all are excluded."""
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                self._most_level = self._sizes[self._sorted[self._most_start - 1]]
            else:
                self._most_level -= 1
            while self._most_start > 0 and (
                self._sizes[self._sorted[self._most_start - 1]] == self._most_level
            ):
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return None
        self._next_most -= 1
        return self._sorted[self._next_most + 1]

    def exclude_most(self) -> None:
        """Exclude the member that `next_most` has just returned."""
        here, last = self._next_most + 1, self._most_end - 1
        self._sorted[here], self._sorted[last] = self._sorted[last], self._sorted[here]
        self._most_end -= 1

    def is_balanced(self) -> bool:
        """Return whether the levels of both ranges are at most one apart."""
        return self._most_level - self._least_level <= 1
