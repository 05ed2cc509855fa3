"""Replays offsets: a log may have millions of them, and few other records.

The keys of a group and topic have the same beginning, and end with the partition. A key with a
known beginning goes to the same table, so its names are not decoded again. Measured in
bench/offsets_replay.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.broker.groups.offsets import GroupOffsets, PartitionOffsets
from odradek.broker.groups.records import (
    PARTITION,
    KeyValue,
    read_committed,
    read_offset_key,
)

_HEAD = slice(None, -PARTITION.size)


class OffsetReplay:
    """The tables of offsets by the beginnings of their keys; owned by the replayed Shard."""

    __slots__ = ("_offsets_of", "_places")

    def __init__(self, offsets_of: Callable[[str], GroupOffsets]) -> None:
        """`offsets_of` finds a group's offsets by its id, or creates them."""
        self._offsets_of = offsets_of
        self._places: dict[bytes, PartitionOffsets] = {}

    def take_in(self, records: Sequence[KeyValue], start: int) -> int:
        """Take in offsets from an index on, up to a tombstone or a record of another kind.

        Return the index of that record.
        """
        places = self._places
        for at in range(start, len(records)):
            key, value = records[at]
            committed = read_committed(value) if value is not None else None
            if committed is None:
                return at
            place = places.get(key[_HEAD]) or self._place_of(key)
            if place is None:
                return at
            if len(place) >= place.full:
                place.grow()
            place[PARTITION.unpack_from(key, -PARTITION.size)[0]] = committed
        return len(records)

    def forget(self) -> None:
        """Forget all tables, because some may no longer be in use."""
        self._places.clear()

    def _place_of(self, key: bytes) -> PartitionOffsets | None:
        name = read_offset_key(key)
        if name is None:
            return None
        place = self._offsets_of(name.group).room(name.topic)
        self._places[key[_HEAD]] = place
        return place
