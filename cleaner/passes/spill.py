"""Temporary files for keys that the offset map has no room for, split by hash.

A run whose map is full continues: keys in the map stay there, all others are written as rows of
20 bytes (cleaner/passes/mapping.py), into enough parts that the keys of each part fit into the
memory that the map had. All records of one key are in one part, in the order of the log:

    spill-<run>-<part>.dirty.tmp    records of the dirty section: each hides those before it
    spill-<run>-<part>.clean.tmp    records of clean segments, which only dirty ones can hide

When all records are read the parts are taken one by one: the dirty rows go into a map of their
own, which marks the rows they make obsolete, then the clean rows are looked up in it. Only the
marks remain, so that the log is rewritten once, however many keys there are.

The files lie beside the segments. Their names end in `.tmp`, which the broker removes at its
start; a run removes its own files, however it ends. They need not reach the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np
from numba import types

from odradek.cleaner.passes.mapping import (
    SPILL_COLUMNS,
    SPILL_ROWS,
    SPILLED,
    UINT64S,
    SpillRows,
    find_ordinal,
    insert_rows,
    place_row,
    set_bit,
)
from odradek.cleaner.passes.offset_map import LOAD_FACTOR, SLOT_BYTES
from odradek.protocol.intrinsics import Words
from odradek.protocol.kernel import INT64, INT64S, UINT8S, Bytes, Table, int64, kernel, uint64
from odradek.storage.files import File, FileSystem

ROW_BYTES = 4 * SPILL_COLUMNS
# More parts would mean open files and small writes; a part too large is taken in several steps.
_PARTS_MAX = 256
_STEPS_MAX = 64
_BUFFER_BYTES = 1 << 18
_READ_ROWS = 1 << 16
_SLOTS_MIN = 64
DIRTY, CLEAN = "dirty", "clean"


@kernel(types.void, SPILLED, INT64, INT64, SPILL_ROWS, INT64S)
def sort_by_part(
    rows: SpillRows, count: int, parts: int, out: SpillRows, ends: Table
) -> None:
    """Sort rows by part, stably; store the end of each part in `ends`."""
    for part in range(parts):
        ends[part] = 0
    for at in range(count):
        ends[int64(rows[at, 4]) * parts >> 32] += 1
    start = 0
    for part in range(parts):
        start, ends[part] = start + ends[part], start
    for at in range(count):
        part = int64(rows[at, 4]) * parts >> 32
        for column in range(SPILL_COLUMNS):
            out[ends[part], column] = rows[at, column]
        ends[part] += 1


@kernel(types.void, SPILLED, INT64, INT64, INT64, INT64, UINT64S, UINT8S)
def look_up_rows(
    rows: SpillRows,
    count: int,
    parts: int,
    steps: int,
    step: int,
    table: Words,
    obsolete: Bytes,
) -> None:
    """Mark the rows of a step whose key is in the map."""
    slots = uint64(table.size >> 1)
    for at in range(count):
        of_step, place = place_row(uint64(rows[at, 4]), slots, parts, steps)
        if of_step == step:
            word_0 = uint64(rows[at, 0]) | uint64(rows[at, 1]) << uint64(32)
            word_1 = uint64(rows[at, 2]) << uint64(32)
            if find_ordinal(table, word_0, word_1, uint64(place)) >= 0:
                set_bit(obsolete, int64(rows[at, 3]))


class SpillTarget(Protocol):
    """A place for the rows of keys that do not fit into the map."""

    part_count: int
    written_bytes: int

    def write(self, kind: str, rows: SpillRows) -> None:
        """Take rows of a kind, in the order of the log; the caller uses their memory again."""

    def resolve(self, obsolete: Bytes) -> int:
        """Mark all records that later ones of the same key hide; return the number of keys."""


class Spill:
    """The temporary files of one run; a context that removes them."""

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        run: int,
        *,
        record_count: int,
        map_bytes_max: int,
        load_factor_max: float,
        before_io: Callable[[int], None],
    ) -> None:
        """`run` names the files of this run; at most `record_count` records may be spilled."""
        self._fs, self._before_io = fs, before_io
        self._stem = directory / f"spill-{run:08x}"
        self._slots_max = max(map_bytes_max // SLOT_BYTES, _SLOTS_MIN)
        self._load_factor_max = load_factor_max
        keys_max = max(int(self._slots_max * LOAD_FACTOR), 1)
        self.part_count = min(max(-(-record_count // keys_max), 1), _PARTS_MAX)
        self._files: dict[tuple[str, int], File] = {}
        self._buffers: dict[tuple[str, int], list[bytes]] = {}
        self._buffered: dict[tuple[str, int], int] = {}
        self._sizes: dict[tuple[str, int], int] = {}
        self.written_bytes = 0

    def __enter__(self) -> Spill:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def write(self, kind: str, rows: SpillRows) -> None:
        """Write rows, each into its part."""
        out = np.empty_like(rows)
        ends = np.empty(self.part_count, np.int64)
        sort_by_part(rows, len(rows), self.part_count, out, ends)
        start = 0
        for part, end in enumerate(ends.tolist()):
            if end > start:
                self._add((kind, part), out[start:end].tobytes())
            start = end
        self.written_bytes += rows.nbytes

    def resolve(self, obsolete: Bytes) -> int:
        """Mark all records that later ones of the same key hide; return the number of keys.

        May read a part several times; marks stay.
        """
        for key in list(self._buffers):
            self._flush(key)
        return sum(self._resolve_part(part, obsolete) for part in range(self.part_count))

    def remove(self) -> None:
        """Remove the files."""
        for file in self._files.values():
            self._fs.remove(file.path)
        self._files.clear()

    def _resolve_part(self, part: int, obsolete: Bytes) -> int:
        row_count = self._sizes.get((DIRTY, part), 0) // ROW_BYTES
        slots = min(max(int(row_count / LOAD_FACTOR) + 1, _SLOTS_MIN), self._slots_max)
        steps = 1
        while True:
            size_max = max(min(int(slots * self._load_factor_max), slots - 1), 1)
            key_count = self._resolve_steps(part, steps, slots, size_max, obsolete)
            if key_count >= 0:
                return key_count
            # More keys than a part should have: use more steps, and in the end more memory.
            if steps < _STEPS_MAX:
                steps *= 2
            else:
                slots *= 2

    def _resolve_steps(
        self, part: int, steps: int, slots: int, size_max: int, obsolete: Bytes
    ) -> int:
        """Return the number of keys of a part, -1 when a step's keys do not fit into a map."""
        key_count = 0
        for step in range(steps):
            table = np.zeros(2 * slots, np.uint64)
            size = 0
            for rows in self._read((DIRTY, part)):
                size = insert_rows(
                    rows, len(rows), self.part_count, steps, step, table, size, size_max, obsolete
                )
                if size < 0:
                    return -1
            for rows in self._read((CLEAN, part)):
                look_up_rows(rows, len(rows), self.part_count, steps, step, table, obsolete)
            key_count += size
        return key_count

    def _add(self, key: tuple[str, int], data: bytes) -> None:
        self._buffers.setdefault(key, []).append(data)
        self._buffered[key] = self._buffered.get(key, 0) + len(data)
        if self._buffered[key] >= _BUFFER_BYTES:
            self._flush(key)

    def _flush(self, key: tuple[str, int]) -> None:
        buffers = self._buffers.pop(key)
        self._before_io(self._buffered.pop(key))
        if key not in self._files:
            kind, part = key
            path = self._stem.with_name(f"{self._stem.name}-{part:03d}.{kind}.tmp")
            self._files[key] = self._fs.open(path, write=True)
        position = self._sizes.get(key, 0)
        self._sizes[key] = position + self._files[key].append(position, buffers)

    def _read(self, key: tuple[str, int]) -> Iterator[SpillRows]:
        file, size = self._files.get(key), self._sizes.get(key, 0)
        position = 0
        while file is not None and position < size:
            data = file.read(position, min(_READ_ROWS * ROW_BYTES, size - position))
            self._before_io(len(data))
            position += len(data)
            yield np.frombuffer(data, np.uint32).reshape(-1, SPILL_COLUMNS)
