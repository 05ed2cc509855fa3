"""The stored state of the records of a share-partition: ranges of offsets, each in one state.

Of two ranges that overlap, the one with more deliveries counts; with equal deliveries, the one
with the later state: within a delivery states only go forward. Adjacent ranges in one state are
joined.

Kafka's source: PersisterStateBatchCombiner.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from odradek.protocol.pacing import Pace, paced_sorted, unpaced

UNCHANGED_OFFSET = -1
# The most batches of one request that may overlap; Kafka has no limit.
_OVERLAPPING_MAX = 100


class RecordState(enum.IntEnum):
    """The state of a record for a group; the numbers are stored."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """Whether the record is not delivered any more."""
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class StateBatch(NamedTuple):
    """A range of offsets, both ends inclusive. Its order is that of Kafka's batches."""

    first_offset: int
    last_offset: int
    delivery_count: int
    state: int

    @property
    def rank(self) -> tuple[int, int]:
        """The precedence among batches that overlap: the higher rank counts."""
        return self.delivery_count, self.state

    def part(self, first_offset: int, last_offset: int) -> StateBatch:
        """Return a part of the range in the same state."""
        return StateBatch(first_offset, last_offset, self.delivery_count, self.state)


def combine(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Combine batches into a sequence without overlaps, from a start offset on (-1: all).

    Adjacent batches in one state are not joined where a third had partly hidden the second:
    stored records must equal Kafka's, byte by byte.
    """
    heap = list(_from(batches, start_offset))
    if len(heap) < 2:
        return tuple(heap)
    heapify(heap)
    combined: list[StateBatch] = []
    while heap:
        former = heappop(heap)
        if not heap or not _touch(former, heap[0]):
            combined.append(former)
            continue
        for batch in _resolve(former, heappop(heap)):
            heappush(heap, batch)
    return tuple(combined)


def cut(batches: Iterable[StateBatch], end_offset: int) -> tuple[StateBatch, ...]:
    """Return batches without the offsets at or past an end."""
    return tuple(
        batch.part(batch.first_offset, min(batch.last_offset, end_offset - 1))
        for batch in batches
        if batch.first_offset < end_offset
    )


def flaw_of(batches: Sequence[StateBatch], pace: Pace = unpaced) -> str | None:
    """Return the flaw of batches for which `combine` could take too long, None without one.

    No leader sends such batches: it lists each record once. Overlapping layers take time that is
    the square of their number, and a range that ends before it begins is never used up.
    """
    if any(batch.last_offset < batch.first_offset for batch in pace(batches)):
        return "A state batch ends before it begins."
    if len(batches) <= _OVERLAPPING_MAX:
        return None
    ordered = paced_sorted(batches, pace=pace)
    is_overlapping = any(a.last_offset >= b.first_offset for a, b in pace(pairwise(ordered)))
    return "The state batches overlap." if is_overlapping else None


def _from(batches: Iterable[StateBatch], start_offset: int) -> Iterable[StateBatch]:
    for batch in batches:
        if start_offset == UNCHANGED_OFFSET or batch.first_offset >= start_offset:
            yield batch
        elif batch.last_offset >= start_offset:
            yield batch.part(start_offset, batch.last_offset)


def _touch(former: StateBatch, latter: StateBatch) -> bool:
    if latter.first_offset <= former.last_offset:
        return True
    return latter.first_offset == former.last_offset + 1 and latter.rank == former.rank


def _resolve(former: StateBatch, latter: StateBatch) -> Iterable[StateBatch]:
    """Resolve the overlap of two batches, of which `former` is first in order."""
    if former.rank == latter.rank:
        yield former.part(former.first_offset, max(former.last_offset, latter.last_offset))
    elif latter.rank < former.rank:
        yield former
        if latter.last_offset > former.last_offset:
            yield latter.part(former.last_offset + 1, latter.last_offset)
    else:
        if latter.first_offset > former.first_offset:
            yield former.part(former.first_offset, latter.first_offset - 1)
        yield latter
        if latter.last_offset < former.last_offset:
            yield former.part(latter.last_offset + 1, former.last_offset)
