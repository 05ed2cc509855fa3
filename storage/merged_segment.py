"""Writes neighbouring segments as one: their batches byte for byte, and their indexes together.

    00000000000000000042.log.cleaned  .index.cleaned  .timeindex.cleaned  .txnindex.cleaned

The index entries are those of the segments, and one for the first batch of a segment where the
last entry is an interval back: segments smaller than an interval have none. The cleaner's summary
of a segment (.keys) is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crc32c import crc32c

from odradek.dataclass import dataclass
from odradek.storage.errors import CorruptFile
from odradek.storage.files import FileSystem
from odradek.storage.index import OffsetIndex, TimeIndex
from odradek.storage.scan import walk
from odradek.storage.segment import (
    CLEANED,
    INDEX,
    LOG,
    SUFFIXES,
    TIME_INDEX,
    TXN_INDEX,
    Segment,
    file_name,
)
from odradek.storage.transactions import parse_aborted


@dataclass(frozen=True, slots=True)
class Source:
    """A sealed segment, and the CRC-32C of its batches as they were stored."""

    segment: Segment
    crc: int


def write_merged(
    fs: FileSystem, sources: Sequence[Source], index_interval_bytes: int
) -> Segment:
    """Write a segment with the suffix .cleaned, and return it; it waits: call it in a thread.

    One source at a time is in memory. Raises CorruptFile for damage, and the errors of the disk
    and the store; then no file stays.
    """
    first = sources[0].segment
    made = _Merged(fs, first.directory, first.base_offset, index_interval_bytes)
    try:
        for one in sources:
            made.add(one)
        return made.finish()
    except BaseException:
        discard_merged(fs, first.directory, first.base_offset)
        raise


def discard_merged(fs: FileSystem, directory: Path, base_offset: int) -> None:
    """Remove the files of a segment with the suffix .cleaned."""
    for kind in SUFFIXES:
        fs.remove(_path(directory, base_offset, kind))


class _Merged:
    def __init__(
        self, fs: FileSystem, directory: Path, base_offset: int, interval_bytes: int
    ) -> None:
        discard_merged(fs, directory, base_offset)
        self._fs, self._directory, self._base_offset = fs, directory, base_offset
        self._interval_bytes = interval_bytes
        self._log = fs.open(_path(directory, base_offset, LOG), write=True)
        self._offsets = OffsetIndex(fs, _path(directory, base_offset, INDEX), base_offset)
        self._times = TimeIndex(fs, _path(directory, base_offset, TIME_INDEX), base_offset)
        self._offsets.entries.begin()
        self._times.entries.begin()
        self._transactions = bytearray()
        self._size_bytes = self._indexed = 0

    def add(self, source: Source) -> None:
        segment = source.segment
        path, size = segment.path(LOG), segment.size_bytes
        data = segment.log.read(0, size)
        if len(data) != size or crc32c(data) != source.crc:
            raise CorruptFile(path, 0, "its bytes are not those that were stored")
        self._log.append(self._size_bytes, [data])
        if self._size_bytes - self._indexed > self._interval_bytes:
            _, _, last_offset, _ = next(walk(segment.log, path, 0, size))
            self._note(last_offset, self._size_bytes)
        base = segment.base_offset
        offsets = OffsetIndex(self._fs, segment.path(INDEX), base)
        times = TimeIndex(self._fs, segment.path(TIME_INDEX), base)
        for distance, position in zip(*offsets.entries.load(), strict=True):
            self._note(base + distance, self._size_bytes + position)
        for timestamp, distance in zip(*times.entries.load(), strict=True):
            self._times.note(timestamp, base + distance)
        for damage in (offsets.entries.damage, times.entries.damage):
            if damage is not None:
                raise damage
        aborted = segment.path(TXN_INDEX)
        if self._fs.exists(aborted):
            self._transactions += self._fs.read_bytes(aborted)
        self._size_bytes += size

    def _note(self, last_offset: int, position: int) -> None:
        self._offsets.note(last_offset, position)
        self._indexed = position

    def finish(self) -> Segment:
        if self._transactions:
            path = _path(self._directory, self._base_offset, TXN_INDEX)
            parse_aborted(self._transactions, path)
            transactions = self._fs.open(path, write=True)
            transactions.append(0, [self._transactions])
            transactions.sync()
        for entries in (self._offsets.entries, self._times.entries):
            entries.write()
            entries.sync()
        self._log.sync()
        return Segment(self._fs, self._directory, self._base_offset, suffix=CLEANED)


def _path(directory: Path, base_offset: int, kind: str) -> Path:
    return directory / (file_name(base_offset) + kind + CLEANED)
