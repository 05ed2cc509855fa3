"""Reads a segment in chunks of whole batches, and splits them into pieces for kernels.

A chunk is as much of the file as the buffer size allows, and more when one batch alone is
larger. Without compressed batches it is used in place; otherwise they are decompressed into a
buffer, each after its header, and the others are copied there, in their order. Entries of older
formats are converted, and form chunks of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import numpy as np

from odradek.cleaner.passes.conversion import convert_entries, is_old_format
from odradek.dataclass import dataclass
from odradek.protocol import batch_scan
from odradek.protocol.batch_scan import ATTRIBUTES, BASE_OFFSET, COUNT, LAST_OFFSET, POSITION, SIZE
from odradek.protocol.batches import CODEC_MASK, HEADER_SIZE, LOG_OVERHEAD
from odradek.protocol.compression import Codec, decompress
from odradek.protocol.errors import ProtocolError
from odradek.protocol.kernel import Bytes, Table, as_bytes
from odradek.storage.errors import CorruptFile
from odradek.storage.files import Buffer
from odradek.storage.segment import Segment

# The batches that one table describes; a chunk with more batches is taken in several steps.
_ROWS = 8192
_RECORD_BYTES_MIN = 7
_CODECS = tuple(Codec)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches of a file. Valid until the next one is read."""

    path: Path
    position: int  # of `data` in the file
    data: bytes
    batches: Table
    is_converted: bool  # from an older format

    def damage(self, row: int, cause: str) -> CorruptFile:
        """Return the error for one of the batches."""
        batch = self.batches[row]
        return CorruptFile(
            self.path,
            self.position + int(batch[POSITION]),
            f"{cause} (in the batch that ends at offset {int(batch[LAST_OFFSET])})",
            offset=int(batch[BASE_OFFSET]),
        )


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive batches of a chunk, uncompressed in `data`. Valid until the next one.

    If it `is_inflated`, batches that are passed over have only their header there.
    """

    data: Bytes
    batches: Table
    verdicts: Bytes
    first_row: int  # the row of the first of them in the chunk
    is_inflated: bool

    @property
    def record_count_max(self) -> int:
        """The most records that the piece can hold, even if its headers claim more."""
        counts = np.minimum(self.batches[:, COUNT], self.batches[:, SIZE] // _RECORD_BYTES_MIN)
        return int(counts.sum())


class Room:
    """The memory of a piece's decompressed batches: the next piece gets it, too.

    Memory of a megabyte that is asked for and given back costs more than to fill it: the kernel
    clears each of its pages.
    """

    def __init__(self) -> None:
        self._data = np.empty(0, np.uint8)
        self.size_bytes = 0

    def add(self, *parts: Buffer) -> None:
        """Append bytes."""
        at = self.size_bytes
        self.size_bytes = end = at + sum(map(len, parts))
        if end > len(self._data):
            former, self._data = self._data, np.empty(2 * end, np.uint8)
            self._data[:at] = former[:at]
        view = self._data.data
        for part in parts:
            view[at : at + len(part)] = part
            at += len(part)

    def take(self) -> Bytes:
        """Return the bytes, which stay as they are until the next ones are added."""
        taken, self.size_bytes = self._data[: self.size_bytes], 0
        return taken


def read_chunks(
    segment: Segment,
    *,
    chunk_bytes: int,
    max_decompressed_bytes: int,
    before_read: Callable[[int], None],
    checks_crc: bool = True,
) -> Iterator[Chunk]:
    """Read the batches of a segment, checking each CRC with `checks_crc`.

    `before_read` gets the number of bytes that come next: it may wait, and may raise. Raises
    CorruptFile for a batch that is damaged, or that reaches past the end.
    """
    table = np.empty((_ROWS, batch_scan.BATCH_COLUMNS), np.int64)
    file, end, offset_min = segment.log, segment.size_bytes, segment.base_offset
    position, wanted = 0, chunk_bytes
    while position < end:
        size = min(wanted, end - position)
        before_read(size)
        data = file.read(position, size)
        stored = _Buffer(file.path, position, data)
        status, used, offset_min = yield from _scan(stored, 0, offset_min, table, checks_crc)
        while is_old_format(data, used):
            converted, after = convert_entries(
                data, used, file.path, position, max_decompressed_bytes
            )
            buffer = _Buffer(file.path, position + used, converted, is_converted=True)
            status, _, offset_min = yield from _scan(buffer, 0, offset_min, table, True)
            if status != batch_scan.WHOLE or after == used:
                break
            status, used, offset_min = yield from _scan(
                stored, after, offset_min, table, checks_crc
            )
        if status != batch_scan.WHOLE:
            cause = f"{batch_scan.PROBLEMS[status]} (after offset {offset_min - 1})"
            raise CorruptFile(file.path, position + used, cause, offset=offset_min)
        wanted = chunk_bytes
        if used == 0:
            wanted = _oversize(data, end - position)
            if not size < wanted <= end - position:
                cause = f"a batch reaches past the end (after offset {offset_min - 1})"
                raise CorruptFile(file.path, position, cause, offset=offset_min)
        position += used


def pieces(
    chunk: Chunk, verdicts: Bytes, room: Room, *, passed_over: int, max_decompressed_bytes: int
) -> Iterator[Piece]:
    """Split a chunk into pieces as large as it is, once its batches are decompressed.

    If none of them needs it, the piece is the chunk itself; otherwise a piece is in `room`.
    Batches with one of the `passed_over` verdicts are not decompressed: their records are not
    read. Raises CorruptFile for a batch that does not decompress within the limit.
    """
    batches = chunk.batches
    is_read = (verdicts & passed_over) == 0
    is_packed = is_read & ((batches[:, ATTRIBUTES] & CODEC_MASK) != Codec.NONE)
    is_packed &= batches[:, COUNT] > 0
    if not is_packed.any():
        yield Piece(as_bytes(chunk.data), batches, verdicts, 0, False)
        return
    view = memoryview(chunk.data)
    places: list[tuple[int, int]] = []
    first, room.size_bytes = 0, 0
    # Once for all rows: taking a number out of a table costs as much as unpacking some bytes.
    facts = batches[:, [POSITION, SIZE, ATTRIBUTES]].tolist()
    rows = zip(facts, is_read.tolist(), is_packed.tolist(), strict=True)
    for row, ((position, size, attributes), read, packed) in enumerate(rows):
        records = position + HEADER_SIZE
        section: Buffer = view[records : position + size] if read else b""
        if packed:
            codec = _CODECS[attributes & CODEC_MASK]
            try:
                section = decompress(codec, section, max_decompressed_bytes)
            except ProtocolError as error:
                raise chunk.damage(row, str(error)) from error
        places.append((room.size_bytes, HEADER_SIZE + len(section)))
        room.add(view[position:records], section)
        if row + 1 == len(batches) or room.size_bytes >= len(chunk.data):
            piece = batches[first : row + 1].copy()
            piece[:, [POSITION, SIZE]] = places
            yield Piece(room.take(), piece, verdicts[first : row + 1], first, True)
            places, first = [], row + 1


@dataclass(frozen=True, slots=True)
class _Buffer:
    """Bytes of a file, or the batches into which they were converted."""

    path: Path
    position: int  # of the bytes in the file
    data: bytes
    is_converted: bool = False


def _scan(
    buffer: _Buffer, start: int, offset_min: int, table: Table, checks_crc: bool
) -> Generator[Chunk, None, tuple[int, int, int]]:
    """Yield the batches in a buffer from a start on, as many at once as the table has rows.

    Returns the status, the position where they stop, and the lowest offset that may come next.
    """
    array = as_bytes(buffer.data)
    while True:
        status, count, start = batch_scan.scan_batches(
            array, start, len(buffer.data), offset_min, checks_crc, table
        )
        if count:
            offset_min = int(table[count - 1, LAST_OFFSET]) + 1
            yield Chunk(
                buffer.path, buffer.position, buffer.data, table[:count], buffer.is_converted
            )
        if status != batch_scan.WHOLE or count < _ROWS:
            return status, start, offset_min


def _oversize(data: bytes, bytes_left: int) -> int:
    """Return the size of the batch that a chunk was too small for."""
    if len(data) < LOG_OVERHEAD:
        return bytes_left + 1
    return int.from_bytes(data[8:LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
