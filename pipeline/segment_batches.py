"""Reads the batches of a segment file in chunks, and reports damaged places.

A chunk is some megabytes of the file and a table of the whole batches in it, or a run of entries
of message format 0 or 1 (protocol/legacy.py), each of which counts as a batch. For each the CRC is
checked, and that its offsets follow the offsets before it and stay below the next segment's: the
CRC does not cover them.

At the end of a partition's last segment, a batch that is still being written is no damage, nor are
zeros where a broker has reserved room. Anywhere else, reading continues at the next intact batch:
at the end that the damaged batch states, else at the first one that is found by its bytes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Generator, Iterator
from io import RawIOBase

import numpy as np

from odradek.dataclass import dataclass
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segment_beside import INDEX, read_beside
from odradek.pipeline.segment_bytes import Opener, open_bytes
from odradek.pipeline.segment_files import Segment, changed, errors_in_one_line
from odradek.pipeline.segment_selection import INT64_END, INT64_MIN
from odradek.protocol import batch_scan
from odradek.protocol.batch_scan import (
    BAD_CRC,
    BAD_MAGIC,
    BAD_OFFSET,
    LAST_OFFSET,
    POSITION,
    WHOLE,
)
from odradek.protocol.batches import HEADER_SIZE, LOG_OVERHEAD, MAGIC
from odradek.protocol.errors import ProtocolError
from odradek.protocol.kernel import Table, as_bytes
from odradek.protocol.legacy import SIZES_MIN, read_entry, read_stored_header, stored_crc

# Each task holds one chunk. Batches of a producer's default size are some hundred in it.
CHUNK_BYTES = 8 << 20
_ROWS = 8192
# By chance hardly any bytes look like a batch's header: these limits are for hostile files.
_WASTED_FREE_BYTES = 256 << 20
_WASTED_RATIO_MAX = 16

_LENGTH_POSITION, _MAGIC_POSITION = 8, 16
_LENGTH = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_CUT_OFF = "a batch is cut off"
_INDEX_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a segment that are not a batch; `offset` is the first that may be missing."""

    segment: Segment
    position: int
    size_bytes: int
    offset: int
    cause: str

    def __str__(self) -> str:
        return (
            f"{self.segment.path} is damaged at position {self.position}, "
            f"offset {self.offset}: {self.cause}"
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches of a segment, all of one magic. Valid until the next one is read."""

    position: int  # of the data in the file
    data: memoryview
    batches: Table
    magic: int = MAGIC


def stop(damage: Damage) -> None:
    """Stop at damage: raise a PipelineError."""
    raise PipelineError(
        f"{damage} (option onDamage=skip leaves {damage.size_bytes} bytes out and continues)"
    )


def read_chunks(
    segment: Segment,
    on_damage: Callable[[Damage], None],
    *,
    open_segment: Opener = open_bytes,
    start_offset: int = INT64_MIN,
    checks_crc: bool = True,
) -> Iterator[Chunk]:
    """Read the batches of a segment, up to the size that it had when it was found.

    Batches whose offsets are all lower than the start offset may be skipped. `on_damage` is
    called with each damaged place, and may raise; reading continues behind it. Raises
    PipelineError for a file that is gone or has changed.
    """
    with errors_in_one_line(segment.path), open_segment(segment) as file:
        yield from _Walk(file, segment, on_damage, checks_crc).chunks(start_offset)


class _Walk:
    """A walk through one file."""

    def __init__(
        self,
        file: RawIOBase,
        segment: Segment,
        on_damage: Callable[[Damage], None],
        checks_crc: bool,
    ) -> None:
        self._file, self._segment = file, segment
        self._on_damage, self._checks_crc = on_damage, checks_crc
        self._end = segment.size_bytes
        self._offset_min = segment.base_offset
        self._buffer = bytearray(min(CHUNK_BYTES, self._end))
        # Bytes that a search for intact batches has skipped, and bytes it has checked in vain.
        self._passed_bytes = self._wasted_bytes = 0
        self._table = np.empty((_ROWS, batch_scan.BATCH_COLUMNS), np.int64)
        size = file.seek(0, os.SEEK_END)
        # A sealed segment does not grow: one of another size has taken its name.
        if size < self._end or (size > self._end and segment.next_base_offset is not None):
            raise PipelineError(changed(segment.path, "got another size"))

    def chunks(self, start_offset: int) -> Iterator[Chunk]:
        """Yield the chunks from a batch on; all batches before it have lower offsets."""
        position = self._indexed_position(start_offset)
        wanted = CHUNK_BYTES
        while position < self._end:
            data = self._read(position, min(wanted, self._end - position))
            used, cause = yield from self._scan(position, data)
            position, wanted = position + used, CHUNK_BYTES
            if cause is None and used == 0:
                wanted = _stated_size(data)
                if not len(data) < wanted <= self._end - position:
                    cause = _CUT_OFF
            if cause is not None:
                offset = self._offset_min
                after = self._next_intact(position)
                if after == self._end and self._is_tail(position, cause):
                    return
                self._on_damage(Damage(self._segment, position, after - position, offset, cause))
                position, wanted = after, CHUNK_BYTES

    def _scan(
        self, position: int, data: memoryview
    ) -> Generator[Chunk, None, tuple[int, str | None]]:
        """Yield the whole batches in the data; return their end, and the damage there or None."""
        array = as_bytes(data)
        at = 0
        while True:
            status, count, at = batch_scan.scan_batches(
                array, at, len(data), self._offset_min, self._checks_crc, self._table
            )
            batches = self._table[:count]
            # Offsets rise, so those that belong to the next segment are the last ones.
            within = int(np.searchsorted(batches[:, LAST_OFFSET], self._segment.offsets.end))
            if within:
                self._offset_min = int(batches[within - 1, LAST_OFFSET]) + 1
                yield Chunk(position, data, batches[:within])
            if within < count:
                return int(batches[within, POSITION]), batch_scan.PROBLEMS[BAD_OFFSET]
            if status == WHOLE and count == _ROWS:
                continue
            if status in (WHOLE, BAD_MAGIC) and _is_old(data, at):
                start = at
                entries, at, cause = self._scan_entries(data, start)
                if len(entries):
                    yield Chunk(position, data, entries, magic=data[start + _MAGIC_POSITION])
                if at > start and cause is None:
                    continue
                return at, cause
            return at, None if status == WHOLE else batch_scan.PROBLEMS[status]

    def _scan_entries(self, data: memoryview, start: int) -> tuple[Table, int, str | None]:
        """Walk the entries of one magic: return their table, their end, and the damage or None."""
        rows: list[list[int]] = []
        at, cause = start, None
        magic = data[start + _MAGIC_POSITION]
        while _is_old(data, at) and data[at + _MAGIC_POSITION] == magic:
            size = _stated_size(data[at:])
            if at + size > len(data):
                break
            cause = self._entry_damage(data[at : at + size])
            if cause is not None:
                break
            entry = read_entry(data, at)
            offset = entry.base_offset
            row = [at, size, offset, offset, entry.attributes, entry.count]
            row += [entry.base_timestamp, entry.max_timestamp, entry.producer_id]
            row += [entry.producer_epoch, entry.base_sequence, entry.leader_epoch]
            rows.append(row)
            self._offset_min = offset + 1
            at += size
        table = np.array(rows, np.int64).reshape(len(rows), batch_scan.BATCH_COLUMNS)
        return table, at, cause

    def _entry_damage(self, entry: memoryview) -> str | None:
        """Return the damage of an entry of an old format, or None."""
        try:
            header = read_entry(entry)
        except ProtocolError as error:
            return str(error)
        if self._checks_crc and stored_crc(header, entry) != header.crc:
            return batch_scan.PROBLEMS[BAD_CRC]
        if not self._offset_min <= header.base_offset < self._segment.offsets.end:
            return batch_scan.PROBLEMS[BAD_OFFSET]
        return None

    def _is_tail(self, position: int, cause: str) -> bool:
        """Return whether the bytes from a position on are the open end of a partition."""
        if self._segment.next_base_offset is not None:
            return False
        if cause is _CUT_OFF:
            return True
        while position < self._end:
            data = self._read(position, min(CHUNK_BYTES, self._end - position))
            if np.count_nonzero(as_bytes(data)):
                return False
            position += len(data)
        return True

    def _next_intact(self, position: int) -> int:
        """Return the position of the next intact batch after a damaged one, or the end.

        The end that the damaged batch states goes before bytes within the batch: a record may
        hold the bytes of a batch. The result may be the damaged batch itself, when only the
        offsets of the batch before it are wrong.
        """
        if self._is_led_by(position):
            return position
        head = self._read(position, min(HEADER_SIZE, self._end - position))
        stated = position + _stated_size(head)
        if position < stated < self._end and self._is_intact(stated):
            return stated
        if stated == self._end:
            return stated
        start = position + 1
        while start + HEADER_SIZE <= self._end:
            data = bytes(self._read(start, min(CHUNK_BYTES, self._end - start)))
            passed_bytes = self._passed_bytes
            at = data.find(MAGIC, _MAGIC_POSITION)
            while at >= 0:
                self._passed_bytes = passed_bytes + at
                found = start + at - _MAGIC_POSITION
                if not self._has_wasted_too_much and self._is_intact(found):
                    return found
                at = data.find(MAGIC, at + 1)
            start += max(1, len(data) - _MAGIC_POSITION)
            self._passed_bytes = passed_bytes + len(data)
        return self._end

    @property
    def _has_wasted_too_much(self) -> bool:
        """Return whether the search for batches must stop.

        Bytes may look like the beginning of a batch at every position, and each such batch may
        claim the rest of the file: to check all of them would take the square of its size.
        """
        return self._wasted_bytes > _WASTED_FREE_BYTES + _WASTED_RATIO_MAX * self._passed_bytes

    def _is_led_by(self, position: int) -> bool:
        """Return whether the batches that follow all have lower offsets than those before.

        Then the offsets before were wrong, and offsets count from these batches on: the CRC does
        not cover the base offset.
        """
        before = self._offset_min
        self._offset_min = self._segment.base_offset
        if self._is_intact(position):
            head = self._read(position, min(HEADER_SIZE, self._end - position))
            after, batch = position + _stated_size(head), read_stored_header(head)
            self._offset_min = batch.next_offset
            if batch.base_offset < before and after < self._end and self._is_intact(after):
                (next_offset,) = _OFFSET.unpack_from(self._read(after, _OFFSET.size))
                if next_offset < before:
                    self._offset_min = batch.base_offset
                    return True
        self._offset_min = before
        return False

    def _is_intact(self, position: int) -> bool:
        """Return whether an intact batch is at a position, at little cost if there is none."""
        head = self._read(position, min(HEADER_SIZE, self._end - position))
        size = _stated_size(head)
        if not SIZES_MIN[0] <= size <= self._end - position:
            return False
        offset = _OFFSET.unpack_from(head)[0]
        if offset < self._offset_min or offset not in self._segment.offsets:
            return False
        batch = self._read(position, size)
        if _is_old(batch, 0):
            is_entry = self._entry_damage(batch) is None
            self._wasted_bytes += 0 if is_entry else size
            return is_entry
        row = np.empty((1, batch_scan.BATCH_COLUMNS), np.int64)
        checked = batch_scan.scan_batches(as_bytes(batch), 0, size, self._offset_min, True, row)
        is_intact: bool = checked == (WHOLE, 1, size)
        self._wasted_bytes += 0 if is_intact else size
        return is_intact

    def _indexed_position(self, offset: int) -> int:
        """Return the position of a batch; no batch before it has this offset or a higher one.

        An entry of an .index is an offset less the base offset, and the position of its batch.
        An entry is used when an intact batch is there, and the batch's base offset is no higher:
        since offsets rise, this is right even if the index has other errors.
        """
        if offset <= self._segment.base_offset:
            return 0
        data = read_beside(self._segment, INDEX)
        if data is None:
            return 0
        count = len(data) // _INDEX_ENTRY.itemsize
        entries = np.frombuffer(data, _INDEX_ENTRY, count)
        # Zeros follow the last entry of a Kafka index that may still grow.
        entries = entries[entries["position"] > 0]
        at = int(np.searchsorted(entries["offset"], offset - self._segment.base_offset, "right"))
        if at == 0:
            return 0
        position = int(entries["position"][at - 1])
        if position >= self._end or not self._is_intact(position):
            return 0
        (base_offset,) = _OFFSET.unpack_from(self._read(position, _OFFSET.size))
        return position if base_offset <= offset else 0

    def _read(self, position: int, size: int) -> memoryview:
        """Read bytes into the buffer; they replace its last content."""
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        data = memoryview(self._buffer)[:size]
        self._file.seek(position)
        done = 0
        while done < size:
            count = self._file.readinto(data[done:])
            if not count:
                raise PipelineError(changed(self._segment.path, "became shorter"))
            done += count
        return data


def _is_old(data: memoryview, position: int) -> bool:
    """Return whether an entry of message format 0 or 1 begins here, by its magic alone."""
    at = position + _MAGIC_POSITION
    return at < len(data) and data[at] < MAGIC


def _stated_size(data: memoryview) -> int:
    """Return the size that a batch states in its first bytes."""
    if len(data) < LOG_OVERHEAD:
        return INT64_END
    length: int = _LENGTH.unpack_from(data, _LENGTH_POSITION)[0]
    return length + LOG_OVERHEAD
