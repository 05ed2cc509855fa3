"""A segment: a `.log` file of record batches with its two indexes.

The file's name is the segment's base offset in 20 digits. Batches lie back to back; after
compaction there may be gaps between their offsets, never a change of order.

    00000000000000000042.log  .index  .timeindex  .snapshot  .txnindex
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from protocol.batches import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_header
from storage.errors import CorruptFile
from storage.files import Buffer, File, FileSystem
from storage.index import OffsetIndex, TimeIndex

LOG, INDEX, TIME_INDEX = ".log", ".index", ".timeindex"
SNAPSHOT, TXN_INDEX = ".snapshot", ".txnindex"
SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
CLEANED, SWAP, DELETED = ".cleaned", ".swap", ".deleted"

NO_TIMESTAMP = -1
# Enough headers for the batches between two index entries at Kafka's default interval.
_SCAN_WINDOW_BYTES = 8192
_READ_CHUNK_BYTES = 4 << 20


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
    return f"{base_offset:020d}"


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
        self.offset_index = OffsetIndex(fs, self.path(INDEX), base_offset)
        self.time_index = TimeIndex(fs, self.path(TIME_INDEX), base_offset)
        self._bytes_since_index = 0
        # Facts about the batches, found when first asked for a segment loaded from disk.
        self._next_offset: int | None = base_offset if self.size_bytes == 0 else None
        self._first_timestamp: int | None = None
        self._max: tuple[int, int] | None = (
            (NO_TIMESTAMP, base_offset) if self.size_bytes == 0 else None
        )

    def __repr__(self) -> str:
        return f"Segment({self.directory.name} base={self.base_offset} size={self.size_bytes})"

    def path(self, kind: str) -> Path:
        """Return the path of one of the segment's files, by its kind (".log", ".index", …)."""
        return self.directory / (file_name(self.base_offset) + kind + self.suffix)

    @property
    def next_offset(self) -> int:
        """The last offset + 1; the base offset when the segment is empty."""
        if self._next_offset is None:
            self._next_offset = self._find_next_offset()
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
        if self._first_timestamp is None and self.size_bytes >= HEADER_SIZE:
            self._first_timestamp = read_header(self.log.read(0, HEADER_SIZE)).max_timestamp
        return self._first_timestamp

    def append(
        self,
        buffers: Sequence[Buffer],
        size: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Write one batch at the end, and index it when enough was written since the last entry.

        A failed write leaves the segment as it was: what got into the file is cut off again.
        """
        position = self.size_bytes
        largest = self._largest()
        first = self.first_timestamp()
        try:
            self.log.append(position, buffers)
        except BaseException:
            self.log.truncate(position)
            raise
        if max_timestamp > largest[0]:
            self._max = largest = (max_timestamp, last_offset)
        self.size_bytes = position + size
        self._next_offset = last_offset + 1
        self._first_timestamp = max_timestamp if first is None else first
        self._index(position, size, last_offset, largest, index_interval_bytes)

    def locate(self, offset: int) -> tuple[int, int] | None:
        """Return (position, size) of the first batch that ends at or after an offset."""
        for position, header in self._headers(self.offset_index.lookup(offset)):
            if header.last_offset >= offset:
                return position, header.size_bytes
        return None

    def locate_timestamp(self, timestamp: int, start_offset: int) -> Iterator[Slice]:
        """Yield the batches that may hold a record at or after a timestamp and an offset."""
        offset = max(self.time_index.lookup(timestamp), start_offset)
        for position, header in self._headers(self.offset_index.lookup(offset)):
            if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                yield Slice(self.log, position, header.size_bytes)

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Read every batch from a position on: (position, header, bytes).

        Stops at the first one that is not whole. Raises nothing for damage: who wants to know
        compares where it stopped with the size.
        """
        size = self.size_bytes
        while position < size:
            chunk = memoryview(self.log.read(position, min(_READ_CHUNK_BYTES, size - position)))
            used = 0
            for at, header in whole_batches(chunk):
                yield position + at, header, chunk[at : at + header.size_bytes]
                used = at + header.size_bytes
            if used == 0:
                batch = self._oversize_batch(position, chunk)
                if batch is None:
                    return
                header = read_header(batch)
                yield position, header, batch
                used = header.size_bytes
            position += used

    def cut(self, position: int, end_offset: int) -> None:
        """Drop all batches from a position on; end_offset is the log's new end."""
        self.log.truncate(position)
        self.size_bytes = position
        self._next_offset, self._max, self._first_timestamp = end_offset, None, None
        self.offset_index.truncate(end_offset)
        self.time_index.truncate(end_offset)
        if position == 0:
            self._max = (NO_TIMESTAMP, self.base_offset)

    def reindex(
        self, position: int, header: BatchHeader, index_interval_bytes: int
    ) -> None:
        """Put a batch that is already in the file into the indexes, in order, after reset()."""
        largest = self._max or (NO_TIMESTAMP, self.base_offset)
        if header.max_timestamp > largest[0]:
            self._max = largest = (header.max_timestamp, header.last_offset)
        size = header.size_bytes
        self._index(position, size, header.last_offset, largest, index_interval_bytes)

    def reset_index(self) -> None:
        """Empty both indexes before all batches are put in again."""
        self.offset_index.entries.forget()
        self.time_index.entries.forget()
        self._bytes_since_index = 0
        self._max = (NO_TIMESTAMP, self.base_offset)

    def check(self) -> None:
        """Raise CorruptFile when an index cannot belong to the log file."""
        self.offset_index.check(self.size_bytes)
        self.time_index.check()
        if self.size_bytes and not self._fs.exists(self.path(INDEX)):
            raise CorruptFile(self.path(INDEX), 0, "missing")

    def seal(self) -> None:
        """Write the last time index entry: no batch will follow."""
        timestamp, offset = self._largest()
        self.time_index.append(timestamp, offset)

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

    def _index(
        self,
        position: int,
        size: int,
        last_offset: int,
        largest: tuple[int, int],
        index_interval_bytes: int,
    ) -> None:
        if self._bytes_since_index > index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(*largest)
            self._bytes_since_index = 0
        self._bytes_since_index += size

    def _largest(self) -> tuple[int, int]:
        if self._max is None:
            # A sealed segment's last time index entry is its largest timestamp; an active
            # one has grown since, by at most an index interval.
            found = self.time_index.last() or (NO_TIMESTAMP, self.base_offset)
            last = self.offset_index.last()
            for _, header in self._headers(last[1] if last else 0):
                if header.max_timestamp > found[0]:
                    found = (header.max_timestamp, header.last_offset)
            self._max = found
        return self._max

    def _find_next_offset(self) -> int:
        last = self.offset_index.last()
        next_offset = self.base_offset
        for _, header in self._headers(last[1] if last else 0):
            next_offset = header.next_offset
        return next_offset

    def _headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Walk the batch headers from a position on, reading little else."""
        size = self.size_bytes
        window, start = b"", position
        while position + HEADER_SIZE <= size:
            if position + HEADER_SIZE > start + len(window):
                window = self.log.read(position, min(_SCAN_WINDOW_BYTES, size - position))
                start = position
            header = read_header(window, position - start)
            if position + header.size_bytes > size:
                return
            yield position, header
            position += header.size_bytes

    def _oversize_batch(self, position: int, chunk: memoryview) -> memoryview | None:
        """Read a batch that is larger than a chunk, or None when it is not whole."""
        if len(chunk) < HEADER_SIZE:
            return None
        size = int.from_bytes(chunk[8:12], "big", signed=True) + LOG_OVERHEAD
        if size < HEADER_SIZE or position + size > self.size_bytes or chunk[16] != 2:
            return None
        return memoryview(self.log.read(position, size))


def whole_batches(chunk: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Walk the batches that lie whole in a buffer; stop at the first that does not parse."""
    position, size = 0, len(chunk)
    while position + HEADER_SIZE <= size:
        length = int.from_bytes(chunk[position + 8 : position + 12], "big", signed=True)
        end = position + LOG_OVERHEAD + length
        if length < HEADER_SIZE - LOG_OVERHEAD or end > size or chunk[position + 16] != 2:
            return
        yield position, read_header(chunk, position)
        position = end
