"""Entries of the WAL of shared topics: batches of many partitions, committed together.

An entry is an object of the bucket, or a row of the catalog if it is small:

    body      the batches of one partition as its log has them, then those of the next one
    index     a row for each partition, in the order of the body
    footer    body size, index size, CRC-32C of the index, magic

A row of the index:

    offset  size
         0    16  topic id
        16     4  partition
        20     8  base offset: the first of the batches
        28     8  next offset: one past the last
        36     4  size of the batches in bytes
        40     4  CRC-32C of the batches; their own CRCs leave out base offset and leader epoch

The catalog has the index of each entry, which saves a request to the bucket for it. The
footer serves readers that have only the bucket. All numbers are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crc32c import crc32c

from odradek.broker.ids import Partition
from odradek.dataclass import dataclass
from odradek.storage.files import Buffer

_ROW = struct.Struct(">16siqqII")
_FOOTER = struct.Struct(">QII8s")
_MAGIC = b"OdrWAL\0\1"
FOOTER_BYTES = _FOOTER.size
ROW_BYTES = _ROW.size


class DamagedEntry(Exception):
    """The bytes of an entry are not those that were committed."""


@dataclass(frozen=True, slots=True)
class Run:
    """The consecutive batches of one partition in an entry; `position` counts from its begin."""

    partition: Partition
    base_offset: int
    next_offset: int
    position: int
    size_bytes: int
    crc: int

    def take(self, body: Buffer) -> memoryview:
        """Return the batches. Raises DamagedEntry."""
        return self.check(memoryview(body)[self.position : self.position + self.size_bytes])

    def check(self, batches: Buffer) -> memoryview:
        """Return batches that were read from this run's position. Raises DamagedEntry."""
        found = memoryview(batches)
        if len(found) != self.size_bytes or crc32c(found) != self.crc:
            topic_id, number = self.partition
            raise DamagedEntry(
                f"offsets {self.base_offset} to {self.next_offset - 1} of partition {number} of "
                f"the topic with id {topic_id.hex()} are damaged in their WAL entry"
            )
        return found


@dataclass(frozen=True, slots=True)
class Entry:
    """A sealed entry: the buffers of its body, and the runs in them."""

    body: Sequence[Buffer]
    runs: Sequence[Run]
    size_bytes: int  # of the body

    def index(self) -> bytes:
        """Return the index, as the catalog keeps it."""
        return b"".join(
            _ROW.pack(
                *one.partition, one.base_offset, one.next_offset, one.size_bytes, one.crc
            )
            for one in self.runs
        )

    def object(self) -> list[Buffer]:
        """Return the buffers of the entry as an object."""
        index = self.index()
        footer = _FOOTER.pack(self.size_bytes, len(index), crc32c(index), _MAGIC)
        return [*self.body, index, footer]


def read_index(index: Buffer) -> list[Run]:
    """Return the runs of an entry by its index. Raises DamagedEntry."""
    runs, position = [], 0
    for topic_id, number, base_offset, next_offset, size, crc in _rows(index):
        runs.append(Run((topic_id, number), base_offset, next_offset, position, size, crc))
        position += size
    return runs


def read_wanted(index: Buffer, wanted: Mapping[Partition, int]) -> list[Run]:
    """Return the runs of wanted partitions with records at or after an offset of each.

    Raises DamagedEntry.
    """
    runs, position = [], 0
    for topic_id, number, base_offset, next_offset, size, crc in _rows(index):
        key = topic_id, number
        if (offset := wanted.get(key)) is not None and offset < next_offset:
            runs.append(Run(key, base_offset, next_offset, position, size, crc))
        position += size
    return runs


def extent_of(runs: Sequence[Run]) -> tuple[int, int]:
    """Return the position of the first run in its entry, and the size up to the last one's end."""
    begin = runs[0].position
    return begin, runs[-1].position + runs[-1].size_bytes - begin


def read_ends(index: Buffer) -> dict[Partition, int]:
    """Return the next offset of each partition by an entry's index. Raises DamagedEntry.

    It takes a fifth of the time of `read_index`.
    """
    return {(topic_id, number): end for topic_id, number, _, end, _, _ in _rows(index)}


def _rows(index: Buffer) -> Iterator[tuple[Any, ...]]:
    if len(index) % ROW_BYTES:
        raise DamagedEntry(f"the index of a WAL entry has {len(index)} bytes")
    return _ROW.iter_unpack(index)


def index_bytes(footer: Buffer) -> int:
    """Return the size of the index before a footer, the last FOOTER_BYTES of an object.

    Raises DamagedEntry.
    """
    return _read_footer(footer)[1]


def read_object_index(end: Buffer) -> list[Run]:
    """Return the runs of an object by its end: at least its index and footer.

    Raises DamagedEntry.
    """
    body_size, size, crc = _read_footer(memoryview(end)[-FOOTER_BYTES:])
    position = len(end) - FOOTER_BYTES - size
    index = memoryview(end)[max(position, 0) : -FOOTER_BYTES]
    if position < 0 or crc32c(index) != crc:
        raise DamagedEntry("the index of a WAL entry is damaged")
    runs = read_index(index)
    if sum(one.size_bytes for one in runs) != body_size:
        raise DamagedEntry("the index of a WAL entry is not that of its batches")
    return runs


def _read_footer(footer: Buffer) -> tuple[int, int, int]:
    if len(footer) != FOOTER_BYTES:
        raise DamagedEntry(f"a WAL entry ends after {len(footer)} bytes of its footer")
    body_size, size, crc, magic = _FOOTER.unpack(footer)
    if magic != _MAGIC:
        raise DamagedEntry("an object does not end as a WAL entry does")
    return body_size, size, crc


class _Gathered:
    """The batches of one partition in an open entry."""

    __slots__ = ("base_offset", "buffers", "crc", "next_offset", "size_bytes")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = self.next_offset = base_offset
        self.buffers: list[Buffer] = []
        self.crc = self.size_bytes = 0


class OpenEntry:
    """An entry that still takes batches. It refers to their memory, which must not change."""

    def __init__(self) -> None:
        self._gathered: dict[Partition, _Gathered] = {}
        self.size_bytes = 0

    def add(
        self, partition: Partition, batches: Buffer, base_offset: int, next_offset: int
    ) -> None:
        """Add batches that follow those of the partition that are in the entry."""
        found = self._gathered.get(partition)
        if found is None:
            found = self._gathered[partition] = _Gathered(base_offset)
        assert found.next_offset == base_offset, "the batches of a partition follow each other"
        found.buffers.append(batches)
        found.crc = crc32c(batches, found.crc)
        found.size_bytes += len(batches)
        found.next_offset = next_offset
        self.size_bytes += len(batches)

    def seal(self) -> Entry:
        """Return the entry, sorted by partition."""
        body: list[Buffer] = []
        runs, position = [], 0
        for key, one in sorted(self._gathered.items()):
            body += one.buffers
            run = Run(key, one.base_offset, one.next_offset, position, one.size_bytes, one.crc)
            runs.append(run)
            position += one.size_bytes
        return Entry(body, runs, position)
