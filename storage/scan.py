"""The batches that lie back to back in a log file, and how they are walked, read and checked.

A walk needs the first bytes of each batch only:

     0 baseOffset i64 | 8 batchLength i32 | 12 leaderEpoch i32 | 16 magic i8 | 17 crc u32 |
    21 attributes i16 | 23 lastOffsetDelta i32 | 27 baseTimestamp i64 | 35 maxTimestamp i64 | …

Entries of magic 0 and 1 that an old Kafka wrote (drawn in protocol/legacy.py) may lie among them.
Each counts as a batch here, and may be smaller than a batch's header.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

from odradek.dataclass import dataclass
from odradek.protocol import legacy
from odradek.protocol.batches import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader
from odradek.protocol.errors import ProtocolError
from odradek.storage.errors import CorruptFile, NotCached
from odradek.storage.files import File

logger = logging.getLogger(__name__)

# The position of a batch, its size, its last offset, its largest timestamp (ms).
Place: TypeAlias = tuple[int, int, int, int]

_WALKED = struct.Struct(">qi4xb6xi8xq")
_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD
_MAGIC_POSITION = 16
# Enough headers for the batches between two index entries at Kafka's default interval.
_WINDOW_BYTES = 8192
_CHUNK_BYTES = 4 << 20
# Bytes rarely look like a batch's header by chance: these limits are against crafted files.
_WASTED_FREE_BYTES = 256 << 20
_WASTED_RATIO_MAX = 16


@dataclass(slots=True)
class Wasted:
    """The bytes that a search for intact batches has read in vain.

    Bytes may look like the start of a batch at every position, and each may claim the rest of the
    file: to check all of them would take the square of its size. While a search has wasted far
    more bytes than it has passed, it checks no candidate and moves on.
    """

    passed_bytes: int = 0
    wasted_bytes: int = 0

    @property
    def is_too_much(self) -> bool:
        """Whether the search must not check more candidates here."""
        return self.wasted_bytes > _WASTED_FREE_BYTES + _WASTED_RATIO_MAX * self.passed_bytes


@dataclass(slots=True)
class Batches:
    """The batches in a log file. Its segment owns it, and raises the size as it appends."""

    file: File
    path: Path  # the present name of the file
    size_bytes: int

    def walk(self, position: int, *, may_wait: bool = True) -> Iterator[Place]:
        """Yield the place of each batch from a position on, as the function walk() does."""
        return walk(self.file, self.path, position, self.size_bytes, may_wait=may_wait)

    def walk_intact(self, position: int) -> Iterator[Place]:
        """Walk the batches up to the first damage, which is logged."""
        try:
            yield from self.walk(position)
        except CorruptFile as damage:
            logger.error("found damage: %s", damage)

    def read(self, position: int = 0) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Read every batch from a position on: (position, header, bytes).

        Stops without an error at the first batch that is not whole: a caller may compare the end
        of the last batch with the size.
        """
        end = self.size_bytes
        while position < end:
            chunk = memoryview(self.file.read(position, min(_CHUNK_BYTES, end - position)))
            used = 0
            for at, header in whole_batches(chunk):
                used = at + header.size_bytes
                yield position + at, header, chunk[at:used]
            if used == 0:
                large = self._read_large(position, chunk)
                if large is None:
                    return
                used = large[0].size_bytes
                yield position, *large
            position += used

    def check(self, position: int, offset_min: int, offset_max: int) -> Iterator[Place]:
        """Read from a position on, and yield the place of each intact batch.

        An intact batch has a correct CRC, and offsets in the range, after those of the batch
        before: the CRC covers neither the base offset nor the length. Stops at the first batch
        that is not intact.
        """
        for at, header, data in self.read(position):
            last_offset = header.last_offset
            if not offset_min <= header.base_offset <= last_offset <= offset_max:
                return
            if legacy.stored_crc(header, data) != header.crc:
                return
            yield at, len(data), last_offset, header.max_timestamp
            offset_min = last_offset + 1

    def base_offset(self, position: int) -> int:
        """Return the base offset of the batch at a position."""
        return int.from_bytes(self.file.read(position, 8), "big", signed=True)

    def next_intact(
        self, position: int, offset_min: int, offset_max: int, wasted: Wasted | None = None
    ) -> int:
        """Return the position of the next intact batch after a damaged one at a position.

        Returns the size of all when there is none. The end that the damaged batch states is tried
        before positions within it: a record may hold the bytes of a batch. `wasted` is kept from
        one search in a file to the next.
        """
        wasted = wasted or Wasted()
        with contextlib.suppress(CorruptFile):
            for _, size, _, _ in self.walk(position):
                end = position + size
                if end == self.size_bytes or self.is_intact(end, offset_min, offset_max):
                    return end
                break
        while position + HEADER_SIZE < self.size_bytes:
            chunk = self.file.read(position, min(_CHUNK_BYTES, self.size_bytes - position))
            if len(chunk) < HEADER_SIZE:  # the file was cut from outside
                break
            before = wasted.passed_bytes
            at = chunk.find(MAGIC, _MAGIC_POSITION + 1)
            while at >= 0:
                start = at - _MAGIC_POSITION
                wasted.passed_bytes = before + start
                claimed = self._claimed(chunk, position, start, offset_min, offset_max)
                if claimed and not wasted.is_too_much:
                    if self.is_intact(position + start, offset_min, offset_max):
                        return position + start
                    wasted.wasted_bytes += max(claimed, _CHUNK_BYTES)
                at = chunk.find(MAGIC, at + 1)
            position += len(chunk) - _MAGIC_POSITION - 1
            wasted.passed_bytes = before + len(chunk)
        return self.size_bytes

    def _claimed(
        self, chunk: bytes, position: int, start: int, offset_min: int, offset_max: int
    ) -> int:
        """Return the size of the batch that begins in a chunk, 0 where none can begin."""
        if start + HEADER_SIZE <= len(chunk):
            head = chunk[start : start + HEADER_SIZE]
        else:
            head = self.file.read(position + start, HEADER_SIZE)
        return self._stated(head, position + start, offset_min, offset_max)

    def _stated(self, head: bytes, position: int, offset_min: int, offset_max: int) -> int:
        if len(head) < HEADER_SIZE:
            return 0
        base_offset, length, magic, delta, _ = _WALKED.unpack_from(head)
        room = self.size_bytes - position - LOG_OVERHEAD
        if magic != MAGIC or not _LENGTH_MIN <= length <= room or delta < 0:
            return 0
        is_there = offset_min <= base_offset <= base_offset + delta <= offset_max
        return int(length) + LOG_OVERHEAD if is_there else 0

    def is_intact(self, position: int, offset_min: int, offset_max: int) -> bool:
        """Return whether an intact batch is at a position; cheap when there is none."""
        head = self.file.read(position, HEADER_SIZE)
        if not self._stated(head, position, offset_min, offset_max):
            return False
        return next(self.check(position, offset_min, offset_max), None) is not None

    def _read_large(
        self, position: int, chunk: memoryview
    ) -> tuple[BatchHeader, memoryview] | None:
        """Read a batch that is larger than a chunk, or None when it is not whole."""
        try:
            header = legacy.read_stored_header(chunk)
        except ProtocolError:
            return None
        if header.size_bytes <= len(chunk) or position + header.size_bytes > self.size_bytes:
            return None
        data = memoryview(self.file.read(position, header.size_bytes))
        return (header, data) if len(data) == header.size_bytes else None


def walk(
    file: File, path: Path, position: int, end: int, *, may_wait: bool = True
) -> Iterator[Place]:
    """Yield the place of each batch from a position on, reading little but their headers.

    A hot path: a fetch walks from an index entry to its offset. Raises CorruptFile, with the
    given path, where the bytes are no batch or the batch reaches past the end; NotCached when it
    would have to wait for the disk and may not.
    """
    unpack = _WALKED.unpack_from
    read = file.read if may_wait else file.read_cached
    window: bytes | bytearray = b""
    start, window_end = position, position
    while position < end:
        if position + HEADER_SIZE > window_end:
            wanted = min(_WINDOW_BYTES, end - position)
            found = read(position, wanted)
            if found is None:
                raise NotCached(partial(file.read, position, wanted))
            window = found
            start, window_end = position, position + len(window)
            if len(window) < HEADER_SIZE:
                if len(window) < end - position:
                    raise CorruptFile(path, position, f"{len(window)} bytes are no batch")
                window += bytes(HEADER_SIZE)  # an entry of an older format may be this small
        base_offset, length, magic, delta, max_timestamp = unpack(window, position - start)
        if magic != MAGIC or length < _LENGTH_MIN or delta < 0:
            try:
                entry = legacy.read_entry(window, position - start)
            except ProtocolError as error:
                cause = f"no batch has magic {magic}, length {length}, last offset delta {delta}"
                raise CorruptFile(path, position, cause) from error
            delta, max_timestamp = 0, entry.max_timestamp
        size = length + LOG_OVERHEAD
        if position + size > end:
            raise CorruptFile(path, position, f"a batch of {size} bytes ends after {end}")
        yield position, size, base_offset + delta, max_timestamp
        position += size


def whole_batches(chunk: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Walk the batches that lie whole in a buffer; stop at the first that does not parse."""
    position, size = 0, len(chunk)
    while position < size:
        try:
            header = legacy.read_stored_header(chunk, position)
        except ProtocolError:
            return
        end = position + header.size_bytes
        if end > size:
            return
        yield position, header
        position = end
