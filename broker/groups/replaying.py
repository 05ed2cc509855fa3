"""Replays offsets: a log may have millions of them, and few other records.

The keys of a group and topic have the same beginning, and end with the partition. The beginning
alone finds the table of the offsets, so that the names in it are decoded once only. Measured in
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
    """Finds tables of offsets by the beginnings of keys; owned by the Shard that is replayed."""

    __slots__ = ("_offsets_of", "_tables")

    def __init__(self, offsets_of: Callable[[str], GroupOffsets]) -> None:
        """`offsets_of` finds a group's offsets by its id, or creates them."""
        self._offsets_of = offsets_of
        self._tables: dict[bytes, PartitionOffsets] = {}

    def take_in(self, records: Sequence[KeyValue], start: int) -> int:
        """Take in offsets from an index on, up to a tombstone or a record of another kind.

        Return the index of that record.
        """
        tables = self._tables
        for at in range(start, len(records)):
            key, value = records[at]
            committed = read_committed(value) if value is not None else None
            if committed is None:
                return at
            table = tables.get(key[_HEAD]) or self._table_of(key)
            if table is None:
                return at
            if len(table) >= table.full:
                table.grow()
            table[PARTITION.unpack_from(key, -PARTITION.size)[0]] = committed
        return len(records)

    def forget(self) -> None:
        """Forget all tables, because some may no longer be in use."""
        self._tables.clear()

    def _table_of(self, key: bytes) -> PartitionOffsets | None:
        name = read_offset_key(key)
        if name is None:
            return None
        table = self._offsets_of(name.group).room(name.topic)
        self._tables[key[_HEAD]] = table
        return table
