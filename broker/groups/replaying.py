"""Offsets in a replay: there may be millions of them, and little else.

Of a group and topic the keys begin alike, and end with the partition: what begins as one before
goes to the same place, without the names being decoded again. Measured in bench/offsets_replay.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.groups.offsets import GroupOffsets, PartitionOffsets
from broker.groups.records import (
    PARTITION,
    KeyValue,
    read_committed,
    read_offset_key,
)

_HEAD = slice(None, -PARTITION.size)


class OffsetReplay:
    """Where the offsets go of keys that begin so; owned by the Shard that is replayed."""

    __slots__ = ("_offsets_of", "_places")

    def __init__(self, offsets_of: Callable[[str], GroupOffsets]) -> None:
        """`offsets_of` finds a group's offsets by its id, or makes them."""
        self._offsets_of = offsets_of
        self._places: dict[bytes, PartitionOffsets] = {}

    def take_in(self, records: Sequence[KeyValue], start: int) -> int:
        """Take in records from one on, up to one that is no offset or is none any more.

        Returns where that is.
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
        """Forget all places: some may be gone."""
        self._places.clear()

    def _place_of(self, key: bytes) -> PartitionOffsets | None:
        name = read_offset_key(key)
        if name is None:
            return None
        place = self._offsets_of(name.group).room(name.topic)
        self._places[key[_HEAD]] = place
        return place
