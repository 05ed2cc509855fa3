"""The two sparse indexes of a segment, in Kafka's formats.

    .index      | relative offset i32 | position i32 |        8 bytes an entry
    .timeindex  | timestamp i64 | relative offset i32 |      12 bytes an entry

An offset entry names a batch by its last offset and gives the position where the batch starts;
a time entry gives the largest timestamp so far and the last offset of the batch that has it.
Both grow; timestamps and offsets never decrease. Zeros may follow the last entry: until a segment
is sealed, Kafka gives its indexes the size that they may grow to. An index is loaded when it is
first used, and its entries are kept in arrays as large as the file: 20 bytes for each 4 KiB of
log.

An index only saves reading, so a damaged one is not an error: the entries before the damage are
used, `damage` describes it, and the segment checks each entry it uses against the log itself.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import compress, count, islice
from operator import ge, gt
from pathlib import Path

from odradek.storage.errors import CorruptFile
from odradek.storage.files import File, FileSystem

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")


class OffsetIndex:
    """Offset to position, for one segment."""

    def __init__(self, fs: FileSystem, path: Path, base_offset: int) -> None:
        self._base_offset = base_offset
        self.entries = _Entries(fs, path, OFFSET_ENTRY, key_bytes=4, shrinks=ge)

    def append(self, offset: int, position: int) -> None:
        """Add the batch that ends with an offset and starts at a position."""
        self.entries.append(offset - self._base_offset, position)

    def note(self, offset: int, position: int) -> None:
        """Add a batch in memory only; entries.write() follows."""
        self.entries.note(offset - self._base_offset, position)

    def at_or_before(self, offset: int) -> tuple[int, int] | None:
        """Return the last entry at or before an offset, as (offset, position)."""
        offsets, positions = self.entries.load()
        at = bisect_right(offsets, offset - self._base_offset) - 1
        return (offsets[at] + self._base_offset, positions[at]) if at >= 0 else None

    def lookup(self, offset: int) -> int:
        """Return the position of the last indexed batch that ends at or before an offset."""
        found = self.at_or_before(offset)
        return found[1] if found else 0

    def offset_at_or_after(self, position: int) -> int | None:
        """Return the offset of the first entry at or after a position."""
        offsets, positions = self.entries.load()
        at = bisect_left(positions, position)
        return offsets[at] + self._base_offset if at < len(offsets) else None

    def position_before(self, position: int) -> int:
        """Return the last indexed position before the given one, 0 when there is none."""
        _, positions = self.entries.load()
        at = bisect_left(positions, position) - 1
        return positions[at] if at >= 0 else 0

    def position_past(self, offset: int) -> int | None:
        """Return an indexed position from which all batches begin past an offset."""
        offsets, positions = self.entries.load()
        # The first batch that ends at or after the offset may begin before it.
        at = bisect_left(offsets, offset - self._base_offset) + 1
        return positions[at] if at < len(positions) else None

    def last(self) -> tuple[int, int] | None:
        """Return the last entry as (offset, position), None when there is none."""
        offsets, positions = self.entries.load()
        return (offsets[-1] + self._base_offset, positions[-1]) if offsets else None

    def truncate(self, end_offset: int) -> None:
        """Drop the entries of batches that end at or after an offset."""
        offsets, _ = self.entries.load()
        self.entries.cut(bisect_left(offsets, end_offset - self._base_offset))


class TimeIndex:
    """Timestamp to offset, for one segment."""

    def __init__(self, fs: FileSystem, path: Path, base_offset: int) -> None:
        self._base_offset = base_offset
        self.entries = _Entries(fs, path, TIME_ENTRY, key_bytes=8, shrinks=gt)

    def append(self, timestamp: int, offset: int) -> None:
        """Add the largest timestamp so far and its offset, unless it has not grown."""
        if timestamp >= 0:
            self.entries.append(timestamp, offset - self._base_offset)

    def note(self, timestamp: int, offset: int) -> None:
        """Add as append() does, but in memory only; entries.write() follows."""
        if timestamp >= 0:
            self.entries.note(timestamp, offset - self._base_offset)

    def before(self, timestamp: int) -> tuple[int, int] | None:
        """Return the last entry that is older than a timestamp, as (timestamp, offset)."""
        timestamps, offsets = self.entries.load()
        at = bisect_left(timestamps, timestamp) - 1
        return (timestamps[at], offsets[at] + self._base_offset) if at >= 0 else None

    def lookup(self, timestamp: int) -> int:
        """Return an offset before which every record is older than the timestamp."""
        found = self.before(timestamp)
        return found[1] if found else self._base_offset

    def last(self) -> tuple[int, int] | None:
        """Return the last entry as (timestamp, offset), None when there is none."""
        timestamps, offsets = self.entries.load()
        return (timestamps[-1], offsets[-1] + self._base_offset) if timestamps else None

    def truncate(self, end_offset: int) -> None:
        """Drop the entries of records at or after an offset."""
        _, offsets = self.entries.load()
        self.entries.cut(bisect_left(offsets, end_offset - self._base_offset))


class _Entries:
    """A file of fixed-size (key, value) entries with growing keys, and the arrays they fill.

    The log's owner writes; others may look up meanwhile: the arrays are replaced whole, and an
    entry's value is added before its key.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        layout: struct.Struct,
        *,
        key_bytes: int,
        shrinks: Callable[[int, int], bool],
    ) -> None:
        self._fs, self.path, self._layout, self._key_bytes = fs, path, layout, key_bytes
        # Returns whether a value and the one after it are out of order.
        self._shrinks = shrinks
        self._file: File | None = None
        self._must_sync = False
        self._loaded: tuple[array[int], array[int]] | None = None
        # The damage found when the file was loaded; the entries end before it.
        self.damage: CorruptFile | None = None

    def load(self) -> tuple[array[int], array[int]]:
        """Return the keys and the values."""
        loaded = self._loaded
        if loaded is None:
            loaded = self._loaded = self._read()
        return loaded

    @property
    def is_loaded(self) -> bool:
        """Whether a lookup needs no read of the file."""
        return self._loaded is not None

    @property
    def size_bytes(self) -> int:
        """The size of the entries in the file."""
        return len(self.load()[0]) * self._layout.size

    def append(self, key: int, value: int) -> None:
        """Add an entry, unless its key is not larger than the last."""
        keys, values = self.load()
        if keys and key <= keys[-1]:
            return
        size = self._layout.size
        self._writable().append(len(keys) * size, (self._layout.pack(key, value),))
        values.append(value)
        keys.append(key)

    def note(self, key: int, value: int) -> None:
        """Add an entry as append() does, but for now in memory only: write() follows."""
        keys, values = self.load()
        if not keys or key > keys[-1]:
            values.append(value)
            keys.append(key)

    def write(self) -> None:
        """Replace the entries in the file by those in memory."""
        file = self._writable()
        file.truncate(0)
        packed = self._packed()
        if packed:
            file.append(0, (packed,))

    def replace(self) -> None:
        """Replace the file by a new one with all entries, durably."""
        self._fs.write_atomically(self.path, self._packed())
        self._file, self._must_sync = None, False

    def _packed(self) -> bytes:
        return b"".join(map(self._layout.pack, *self.load()))

    def cut(self, count: int) -> None:
        """Keep the first `count` entries, in the file too."""
        keys, values = self.load()
        if count < len(keys):
            self._loaded = keys[:count], values[:count]
        self.trim()

    def trim(self) -> None:
        """Set the file to the size of its entries; create it when it does not exist."""
        self._writable().truncate(self.size_bytes)

    def begin(self) -> None:
        """Begin again with no entries, in memory only."""
        self._loaded, self.damage = (self._array(), array("i")), None

    def sync(self) -> None:
        """Make the entries durable, if any were written."""
        if self._must_sync:
            self._writable().sync()
            self._must_sync = False

    def move(self, path: Path) -> None:
        """Close the file and follow its new name; it opens again when needed."""
        self._file, self.path = None, path

    def _writable(self) -> File:
        self._must_sync = True
        if self._file is None:
            self._file = self._fs.open(self.path, write=True)
        return self._file

    def _array(self) -> array[int]:
        return array("q" if self._key_bytes == 8 else "i")

    def _read(self) -> tuple[array[int], array[int]]:
        if not self._fs.exists(self.path):
            return self._array(), array("i")
        try:
            data = self._fs.read_bytes(self.path)
        except CorruptFile as damage:  # larger than any index
            self.damage = damage
            return self._array(), array("i")
        size = self._layout.size
        # Kafka preallocates an active segment's indexes: zeros follow the last entry.
        used = len(data.rstrip(b"\0"))
        whole = min(used + size - 1, len(data)) // size
        keys, values = self._array(), array("i")
        _fill(keys, data, size, 0, self._key_bytes, whole)
        _fill(values, data, size, self._key_bytes, 4, whole)
        good = min(_growing(keys, ge), _growing(values, self._shrinks))
        if good < whole:
            self.damage = CorruptFile(self.path, good * size, "the entries do not grow")
        elif used > whole * size:
            self.damage = CorruptFile(self.path, whole * size, "part of an entry")
        return keys[:good], values[:good]


def _fill(
    target: array[int], data: bytes, stride: int, start: int, width: int, entries: int
) -> None:
    """Copy one field of every entry: a strided copy for each of its bytes, all in C."""
    column = bytearray(entries * width)
    end = entries * stride
    for at in range(width):
        column[at::width] = data[start + at : end : stride]
    target.frombytes(column)
    if sys.byteorder == "little":
        target.byteswap()


def _growing(numbers: array[int], shrinks: Callable[[int, int], bool]) -> int:
    """Return the number of values before the first that is negative or out of order."""
    if numbers and numbers[0] < 0:
        return 0
    out_of_order: Iterable[bool] = map(shrinks, numbers, islice(numbers, 1, None))
    return next(compress(count(1), out_of_order), len(numbers))
