"""A segment: a `.log` file of record batches with its two indexes.

The file's name is the segment's base offset in 20 digits. Batches lie back to back; after
compaction there may be gaps between their offsets, never a change of order.

    00000000000000000042.log  .index  .timeindex  .snapshot  .txnindex

What an index says is checked against the batch that it points to. One that lies is rebuilt from
the log, with a warning that names the file, the position and the cause.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from protocol.batches import BatchHeader
from storage.errors import CorruptFile, DiskFailure
from storage.files import Buffer, File, FileSystem
from storage.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from storage.scan import Place, intact_batches, read_batches, walk

logger = logging.getLogger(__name__)

LOG, INDEX, TIME_INDEX = ".log", ".index", ".timeindex"
SNAPSHOT, TXN_INDEX = ".snapshot", ".txnindex"
SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
CLEANED, SWAP, DELETED = ".cleaned", ".swap", ".deleted"

NAME_DIGITS = 20
NO_TIMESTAMP = -1
_RELATIVE_OFFSET_MAX = 2**31 - 1
# Kafka's default for index.interval.bytes, for an index that is rebuilt while it is read.
_INTERVAL_BYTES = 4096
_BEYOND_ALL_OFFSETS = 1 << 63


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of a segment's file: what a read will return, before it is read."""

    file: File
    position: int
    size: int

    def read(self) -> bytes:
        """Read it, waiting for the disk if need be."""
        return self.file.read(self.position, self.size)

    def read_cached(self) -> bytes | bytearray | None:
        """Read it from the page cache, or return None when it is not there."""
        return self.file.read_cached(self.position, self.size)


def file_name(base_offset: int) -> str:
    """Return the 20-digit name that a segment's files begin with."""
    return f"{base_offset:0{NAME_DIGITS}d}"


def create_segment(fs: FileSystem, directory: Path, base_offset: int) -> Segment:
    """Begin an empty segment, in the place of files that a failed attempt may have left."""
    stem = file_name(base_offset)
    for kind in SUFFIXES:
        fs.remove(directory / (stem + kind))
    made = Segment(fs, directory, base_offset)
    made.seal()  # creates the indexes: Kafka's tools want them, however small the log
    return made


class Segment:
    """One segment of a log. Only its log appends; anyone may read below `size_bytes`."""

    def __init__(
        self, fs: FileSystem, directory: Path, base_offset: int, *, suffix: str = ""
    ) -> None:
        self._fs = fs
        self.directory, self.base_offset, self.suffix = directory, base_offset, suffix
        self.log = fs.open(self.path(LOG), write=True)
        self.size_bytes = self.log.size()
        self.created_ms = 0
        self.roll_jitter_ms = 0
        # Whether log and indexes are known to be on the disk, with no batch to follow.
        self.is_durable = False
        self.offset_index = OffsetIndex(fs, self.path(INDEX), base_offset)
        self.time_index = TimeIndex(fs, self.path(TIME_INDEX), base_offset)
        self._bytes_since_index = 0
        # Facts about the batches, found when first asked for a segment loaded from disk.
        is_empty = self.size_bytes == 0
        self._next_offset: int | None = base_offset if is_empty else None
        self._first_timestamp: int | None = None
        self._max: tuple[int, int] | None = (NO_TIMESTAMP, base_offset) if is_empty else None

    def __repr__(self) -> str:
        return f"Segment({self.directory.name} base={self.base_offset} size={self.size_bytes})"

    def path(self, kind: str) -> Path:
        """Return the path of one of the segment's files, by its kind (".log", ".index", …)."""
        return self.directory / (file_name(self.base_offset) + kind + self.suffix)

    @property
    def offset_max(self) -> int:
        """The largest offset that may lie here: indexes have 32 bits for the distance."""
        return self.base_offset + _RELATIVE_OFFSET_MAX

    @property
    def next_offset(self) -> int:
        """The last offset + 1; the base offset when the segment is empty."""
        if self._next_offset is None:
            self._next_offset = self.base_offset
            for _, _, last_offset, _ in self._intact(self._from(_BEYOND_ALL_OFFSETS)):
                self._next_offset = last_offset + 1
        return self._next_offset

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of its records in ms, -1 when there is none."""
        return self._largest()[0]

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the batch with the largest timestamp."""
        return self._largest()[1]

    @property
    def modified_ms(self) -> int:
        """When the file was last written."""
        return self._fs.modified_ms(self.path(LOG))

    def first_timestamp(self) -> int | None:
        """Return the largest timestamp of the first batch, which ages the segment."""
        if self._first_timestamp is None and self.size_bytes:
            first = next(self._intact(self._walk(0)), None)
            self._first_timestamp = first[3] if first else NO_TIMESTAMP
        return self._first_timestamp

    # --- writing --------------------------------------------------------------------------

    def append(
        self,
        buffers: Sequence[Buffer],
        size: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Write one batch at the end, and index it when enough was written since the last entry.

        A failed write leaves the segment as it was: what got into the files is cut off again.
        """
        position = self.size_bytes
        largest = self._max or self._largest()
        if max_timestamp > largest[0]:
            largest = (max_timestamp, last_offset)
        unindexed = self._bytes_since_index
        try:
            self.log.append(position, buffers)
            if unindexed > index_interval_bytes:
                self.offset_index.append(last_offset, position)
                self.time_index.append(*largest)
                unindexed = 0
        except BaseException:
            self._undo_append(position, last_offset)
            raise
        if position == 0:
            self._first_timestamp = max_timestamp
        self.size_bytes = position + size
        self._next_offset = last_offset + 1
        self._max = largest
        self._bytes_since_index = unindexed + size

    def seal(self) -> None:
        """Write the last time index entry and trim the files: no batch will follow."""
        if self.log.size() > self.size_bytes:  # an append failed, and so did its undoing
            self.log.truncate(self.size_bytes)
        self.time_index.append(*self._largest())
        self.offset_index.entries.trim()
        self.time_index.entries.trim()

    def flush(self) -> None:
        """Make the log and its indexes durable."""
        self.log.sync()
        self.offset_index.entries.sync()
        self.time_index.entries.sync()

    def rename(self, suffix: str) -> None:
        """Give all files of the segment another suffix; .log goes last, for it decides."""
        kinds = (INDEX, TIME_INDEX, TXN_INDEX, LOG)
        moves = [(self.path(kind), kind) for kind in kinds if self._fs.exists(self.path(kind))]
        self.suffix = suffix
        for source, kind in moves:
            self._fs.rename(source, self.path(kind))
        self.offset_index.entries.move(self.path(INDEX))
        self.time_index.entries.move(self.path(TIME_INDEX))

    def remove(self) -> None:
        """Remove the files; .log goes first, so that a crash leaves no log without an index."""
        for kind in SUFFIXES:
            self._fs.remove(self.path(kind))

    # --- reading --------------------------------------------------------------------------

    def locate(self, offset: int) -> tuple[int, int] | None:
        """Return (position, size) of the first batch that ends at or after an offset.

        Raises CorruptFile when damage lies before it.
        """
        for position, size, last_offset, _ in self._from(offset):
            if last_offset >= offset:
                return position, size
        return None

    def locate_timestamp(self, timestamp: int, start_offset: int) -> Iterator[Slice]:
        """Yield the batches that may hold a record at or after a timestamp and an offset.

        Raises CorruptFile when damage lies on the way.
        """
        self._load_time_index()
        older = self.time_index.before(timestamp)
        if older is not None and older[1] >= start_offset and not self._has(*older):
            self.rebuild_indexes(self._lie(TIME_INDEX, TIME_ENTRY.size, older[0]))
            older = self.time_index.before(timestamp)
        offset = max(older[1] if older else self.base_offset, start_offset)
        for position, size, last_offset, largest in self._from(offset):
            if largest >= timestamp and last_offset >= start_offset:
                yield Slice(self.log, position, size)

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Read every batch from a position on: (position, header, bytes).

        Stops at the first one that is not whole. Raises nothing for damage: who wants to know
        compares where it stopped with the size.
        """
        return read_batches(self.log, position, self.size_bytes)

    # --- checking and rebuilding ----------------------------------------------------------

    def check_tail(self) -> None:
        """Raise CorruptFile unless the indexes are whole and the last batch ends the file."""
        for entries in (self.offset_index.entries, self.time_index.entries):
            entries.load()
            if entries.damage is not None:
                raise entries.damage
        last = self.offset_index.last()
        next_offset = self.base_offset
        for position, _, last_offset, _ in self._walk(last[1] if last else 0):
            if last and position == last[1] and last_offset != last[0]:
                raise self._lie(INDEX, OFFSET_ENTRY.size, last[0])
            next_offset = last_offset + 1
        if last and next_offset <= last[0]:
            raise self._lie(INDEX, OFFSET_ENTRY.size, last[0])
        self._next_offset = next_offset

    def begin_index(self) -> None:
        """Forget both indexes, before every batch is indexed anew."""
        self.offset_index.entries.begin()
        self.time_index.entries.begin()
        self._bytes_since_index = 0
        self._max = (NO_TIMESTAMP, self.base_offset)
        self._first_timestamp = None

    def index_batch(self, place: Place, index_interval_bytes: int = _INTERVAL_BYTES) -> None:
        """Put a batch that is in the file into the indexes; they come in order."""
        position, size, last_offset, max_timestamp = place
        largest = self._max or (NO_TIMESTAMP, self.base_offset)
        if max_timestamp > largest[0]:
            self._max = largest = (max_timestamp, last_offset)
        if self._bytes_since_index > index_interval_bytes:
            self.offset_index.note(last_offset, position)
            self.time_index.note(*largest)
            self._bytes_since_index = 0
        self._bytes_since_index += size

    def end_index(self, end_position: int, end_offset: int) -> None:
        """Write both indexes, and cut off what lies behind the last batch that was indexed."""
        if end_position < self.size_bytes:
            self.log.truncate(end_position)
            self.size_bytes = end_position
        self._next_offset = end_offset
        self._write_indexes()

    def rebuild_indexes(self, cause: CorruptFile) -> None:
        """Index the batches anew, for a cause that is logged.

        Damaged batches are passed over as far as the old index helps.
        """
        logger.warning("rebuilt the indexes of a segment: %s", cause)
        offsets, positions = self.offset_index.entries.load()
        self.begin_index()
        position, next_offset, end = 0, self.base_offset, self.size_bytes
        while position < end:
            for place in intact_batches(self.log, position, end, next_offset, self.offset_max):
                self.index_batch(place)
                position, next_offset = place[0] + place[1], place[2] + 1
            if position < end:
                damage = CorruptFile(self.path(LOG), position, "no intact batch")
                logger.error("found damage: %s", damage)
                position = self._next_intact(position, offsets, positions)
                self._bytes_since_index = _INTERVAL_BYTES + 1  # nothing else leads past it
        self._write_indexes()

    def _write_indexes(self) -> None:
        """Write both indexes, with the last entry that a sealed segment has."""
        self.time_index.note(*self._largest())
        self.offset_index.entries.write()
        self.time_index.entries.write()

    def _next_intact(
        self, position: int, offsets: Sequence[int], positions: Sequence[int]
    ) -> int:
        """Return the first position past damage where an index entry and a batch agree."""
        for offset, start in zip(offsets, positions, strict=True):
            if start > position:
                with contextlib.suppress(CorruptFile):
                    place = next(self._walk(start), None)
                    if place and place[2] == self.base_offset + offset:
                        return start
        return self.size_bytes

    def _undo_append(self, position: int, last_offset: int) -> None:
        # What cannot be undone is written over by the next append, or cut off by seal().
        with contextlib.suppress(DiskFailure):
            self.offset_index.truncate(last_offset)
        with contextlib.suppress(DiskFailure):
            self.time_index.truncate(last_offset)
        with contextlib.suppress(DiskFailure):
            self.log.truncate(position)

    def _largest(self) -> tuple[int, int]:
        """Return the largest timestamp and the last offset of the batch that has it."""
        if self._max is None:
            self._max = self._find_largest()
        return self._max

    def _find_largest(self) -> tuple[int, int]:
        # A sealed segment's last time index entry is its largest timestamp; an active one has
        # grown since, by at most an index interval.
        self._load_time_index()
        found = self.time_index.last()
        if found is not None and not self._has(*found):
            self.rebuild_indexes(self._lie(TIME_INDEX, TIME_ENTRY.size, found[0]))
            found = self.time_index.last()
        places = self._walk(0) if found is None else self._from(_BEYOND_ALL_OFFSETS)
        largest = found or (NO_TIMESTAMP, self.base_offset)
        for _, _, last_offset, max_timestamp in self._intact(places):
            if max_timestamp > largest[0]:
                largest = (max_timestamp, last_offset)
        return largest

    def _load_time_index(self) -> None:
        self.time_index.entries.load()
        if self.time_index.entries.damage is not None:
            self.rebuild_indexes(self.time_index.entries.damage)

    def _has(self, timestamp: int, offset: int) -> bool:
        """Tell whether the batch that holds an offset has a timestamp as its largest."""
        for _, _, last_offset, max_timestamp in self._intact(self._from(offset)):
            if last_offset >= offset:
                return max_timestamp == timestamp
        return False

    def _from(self, offset: int) -> Iterator[Place]:
        """Walk the batches from the last indexed one that ends at or before an offset."""
        entry = self.offset_index.at_or_before(offset)
        damage = self.offset_index.entries.damage
        if damage is None:
            if entry is None:
                return self._walk(0)
            places = self._walk(entry[1])
            with contextlib.suppress(CorruptFile):
                first = next(places, None)
                if first is not None and first[2] == entry[0]:
                    return chain((first,), places)
            damage = self._lie(INDEX, OFFSET_ENTRY.size, entry[0])
        self.rebuild_indexes(damage)
        return self._walk(self.offset_index.lookup(offset))

    def _walk(self, position: int) -> Iterator[Place]:
        return walk(self.log, self.path(LOG), position, self.size_bytes)

    def _intact(self, places: Iterator[Place]) -> Iterator[Place]:
        """Walk as far as the batches are intact, and log what is not."""
        try:
            yield from places
        except CorruptFile as damage:
            logger.error("found damage: %s", damage)

    def _lie(self, kind: str, entry_size: int, key: int) -> CorruptFile:
        """Return the error for an index entry that the log does not bear out."""
        index = self.offset_index if kind == INDEX else self.time_index
        keys, _ = index.entries.load()
        wanted = key - self.base_offset if kind == INDEX else key
        position = keys.index(wanted) * entry_size
        return CorruptFile(self.path(kind), position, f"no batch is where entry {key} says")
