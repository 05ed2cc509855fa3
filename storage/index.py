"""The two sparse indexes of a segment, in Kafka's formats.

    .index      | relative offset i32 | position i32 |        8 bytes an entry
    .timeindex  | timestamp i64 | relative offset i32 |      12 bytes an entry

An offset entry names a batch by its last offset and gives the position where the batch starts;
a time entry gives the largest timestamp so far and the offset of the record that has it. Both
grow; timestamps and offsets never decrease. An index is loaded when it is first asked, and its
entries live in arrays: 16 bytes for each 4 KiB of log.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path

from storage.errors import CorruptFile
from storage.files import File, FileSystem

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class OffsetIndex:
    """Offset to position, for one segment."""

    def __init__(self, fs: FileSystem, path: Path, base_offset: int) -> None:
        self._base_offset = base_offset
        self.entries = _Entries(fs, path, _OFFSET_ENTRY)

    def append(self, offset: int, position: int) -> None:
        """Add the batch that ends with an offset and starts at a position."""
        self.entries.append(offset - self._base_offset, position)

    def lookup(self, offset: int) -> int:
        """Return the position of the last indexed batch that ends at or before an offset."""
        offsets, positions = self.entries.load()
        at = bisect_right(offsets, offset - self._base_offset) - 1
        return positions[at] if at >= 0 else 0

    def last(self) -> tuple[int, int] | None:
        """Return the last entry as (offset, position), None when there is none."""
        offsets, positions = self.entries.load()
        return (offsets[-1] + self._base_offset, positions[-1]) if offsets else None

    def check(self, log_size: int) -> None:
        """Raise CorruptFile unless the positions grow and point into the log."""
        previous = -1
        for at, position in enumerate(self.entries.load()[1]):
            if not previous < position < log_size:
                raise CorruptFile(
                    self.entries.path, at * _OFFSET_ENTRY.size, "positions out of order"
                )
            previous = position

    def truncate(self, end_offset: int) -> None:
        """Drop the entries of batches that end at or after an offset."""
        offsets, _ = self.entries.load()
        self.entries.cut(bisect_left(offsets, end_offset - self._base_offset))


class TimeIndex:
    """Timestamp to offset, for one segment."""

    def __init__(self, fs: FileSystem, path: Path, base_offset: int) -> None:
        self._base_offset = base_offset
        self.entries = _Entries(fs, path, _TIME_ENTRY)

    def append(self, timestamp: int, offset: int) -> None:
        """Add the largest timestamp so far and its offset; what does not grow is left out."""
        if timestamp >= 0:
            self.entries.append(timestamp, offset - self._base_offset)

    def lookup(self, timestamp: int) -> int:
        """Return an offset before which every record is older than the timestamp."""
        timestamps, offsets = self.entries.load()
        at = bisect_left(timestamps, timestamp) - 1
        return self._base_offset + (offsets[at] if at >= 0 else 0)

    def last(self) -> tuple[int, int] | None:
        """Return the last entry as (timestamp, offset), None when there is none."""
        timestamps, offsets = self.entries.load()
        return (timestamps[-1], offsets[-1] + self._base_offset) if timestamps else None

    def check(self) -> None:
        """Raise CorruptFile unless the offsets do not shrink."""
        previous = -1
        for at, offset in enumerate(self.entries.load()[1]):
            if offset < previous:
                raise CorruptFile(self.entries.path, at * _TIME_ENTRY.size, "offsets shrink")
            previous = offset

    def truncate(self, end_offset: int) -> None:
        """Drop the entries of records at or after an offset."""
        _, offsets = self.entries.load()
        self.entries.cut(bisect_left(offsets, end_offset - self._base_offset))


class _Entries:
    """A file of fixed-size (key, value) entries with growing keys, and the arrays they fill."""

    def __init__(self, fs: FileSystem, path: Path, layout: struct.Struct) -> None:
        self._fs, self.path, self._layout = fs, path, layout
        self._file: File | None = None
        self._keys: array[int] | None = None
        self._values: array[int] = array("q")

    def load(self) -> tuple[array[int], array[int]]:
        """Return the keys and the values."""
        if self._keys is None:
            data = self._fs.read_bytes(self.path) if self._fs.exists(self.path) else b""
            whole = len(data) - len(data) % self._layout.size
            self._keys, self._values = array("q"), array("q")
            last = -1
            for key, value in self._layout.iter_unpack(data[:whole]):
                # Kafka preallocates an active segment's indexes: zeros follow the last entry.
                if key <= last or (key == 0 and value == 0):
                    break
                self._keys.append(key)
                self._values.append(value)
                last = key
        return self._keys, self._values

    @property
    def size_bytes(self) -> int:
        """The size of the entries in the file."""
        return len(self.load()[0]) * self._layout.size

    def append(self, key: int, value: int) -> None:
        """Add an entry; one whose key does not grow is left out."""
        keys, values = self.load()
        if keys and key <= keys[-1]:
            return
        size = self._layout.size
        self._writable().append(len(keys) * size, [self._layout.pack(key, value)])
        keys.append(key)
        values.append(value)

    def cut(self, count: int) -> None:
        """Keep the first `count` entries, in the file too."""
        keys, values = self.load()
        del keys[count:]
        del values[count:]
        self._writable().truncate(count * self._layout.size)

    def forget(self) -> None:
        """Empty the file without reading it."""
        self._keys, self._values = array("q"), array("q")
        self._writable().truncate(0)

    def sync(self) -> None:
        """Make the entries durable, if any were written."""
        if self._file is not None:
            self._file.sync()

    def move(self, path: Path) -> None:
        """Close the file and follow its new name; it opens again when needed."""
        self._file, self.path = None, path

    def _writable(self) -> File:
        if self._file is None:
            self._file = self._fs.open(self.path, write=True)
        return self._file
