"""Proves that one object of the bucket has all that rows of the catalog say; runs in a thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from odradek.broker.catalog.segment_rows import SegmentRow
from odradek.broker.catalog.wal_rows import EntryRow, object_key
from odradek.broker.ids import Partition
from odradek.broker.shared.packing import packed_segment
from odradek.broker.wal.entries import DamagedEntry, Entry, Run, read_index
from odradek.dataclass import dataclass
from odradek.storage.files import Buffer
from odradek.storage.objects.packs import (
    EPOCHS,
    DamagedPack,
    PackedSegment,
    least_size,
    read_pack_index,
)
from odradek.storage.objects.store import ObjectMissing, ObjectStore
from odradek.storage.segment import INDEX, KEYS, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX

RECORDS = "these records"
ENTRY = "the records of the entry"
_OWN_INDEX = "the object's own index, but no record"
_LOST = {
    LOG: RECORDS,
    INDEX: "their positions, but no record",
    TIME_INDEX: "their places by timestamp, but no record",
    TXN_INDEX: "the list of aborted transactions, but no record",
    SNAPSHOT: "the producers' sequences, but no record",
    KEYS: "a summary for the cleaner, but no record",
    EPOCHS: "the leader epochs, but no record",
}
_CHUNK_BYTES = 4 << 20
_MISSING = "the object is missing"
_DAMAGED_RUN = "the CRC of the batches is wrong"


@dataclass(frozen=True, slots=True)
class SegmentFault:
    """Something is wrong with an object of a row, or, without offsets, with the object alone."""

    row: SegmentRow
    wrong: str
    lost: str
    has_offsets: bool = True


@dataclass(frozen=True, slots=True)
class EntryFault:
    """Something is wrong with a run of an entry, or, without a run, with the entry alone."""

    row: EntryRow
    run: Run | None
    wrong: str
    lost: str

    @property
    def partition(self) -> Partition | None:
        """The partition of the run."""
        return None if self.run is None else self.run.partition


class _Part(NamedTuple):
    """Bytes of an object, and their CRC."""

    position: int
    size_bytes: int
    crc: int

    @property
    def end(self) -> int:
        return self.position + self.size_bytes


def prove_pack(
    store: ObjectStore,
    key: str,
    rows: Sequence[SegmentRow],
    size_bytes: int | None,
    *,
    is_quick: bool,
) -> list[SegmentFault]:
    """Return the faults of an object with segments; raise the errors of a store that fails.

    `size_bytes` is that of a listing, None if the object was not listed. Only this size is
    compared if `is_quick`.
    """
    found, segments = _tables(rows)
    try:
        size = store.size(key) if size_bytes is None else size_bytes
        needed = least_size(one for _, one in segments)
        cut = [(row, one) for row, one in segments if one.end > size]
        for row, one in cut:
            kind = LOG if one.files[LOG].position + one.files[LOG].size_bytes > size else INDEX
            wrong = f"the object has {size} bytes instead of at least {needed}"
            found.append(SegmentFault(row, wrong, _LOST[kind]))
        if size < needed and not cut:
            found.append(_index_fault(rows[0], f"the object has {size} bytes, not {needed}"))
        if not is_quick:
            whole = [(row, one) for row, one in segments if one.end <= size]
            found += _damaged_files(store, key, whole)
            if size >= needed:
                found += _index_faults(store, key, segments)
    except ObjectMissing:
        return [SegmentFault(row, _MISSING, RECORDS) for row in rows]
    return found


def _tables(
    rows: Sequence[SegmentRow],
) -> tuple[list[SegmentFault], list[tuple[SegmentRow, PackedSegment]]]:
    found, segments = [], []
    for row in rows:
        try:
            segment = packed_segment(row)
        except DamagedPack:
            wrong = "the file table in the catalog is damaged"
            found.append(SegmentFault(row, wrong, RECORDS))
            continue
        log = segment.files.get(LOG)
        if log is None or log.size_bytes != row.size_bytes:
            wrong = f"the file table in the catalog lacks a .log of {row.size_bytes} bytes"
            found.append(SegmentFault(row, wrong, RECORDS))
        else:
            segments.append((row, segment))
    return found, segments


def _damaged_files(
    store: ObjectStore, key: str, segments: Sequence[tuple[SegmentRow, PackedSegment]]
) -> Iterator[SegmentFault]:
    files = [
        (row, kind, _Part(one.position, one.size_bytes, one.crc))
        for row, segment in segments
        for kind, one in segment.files.items()
    ]
    damaged = set(_damaged_parts(store, key, sorted({part for _, _, part in files})))
    for row, kind, part in files:
        if part in damaged:
            yield SegmentFault(row, f"the CRC of the {kind} file is wrong", _LOST[kind])


def _index_faults(
    store: ObjectStore, key: str, segments: Sequence[tuple[SegmentRow, PackedSegment]]
) -> Iterator[SegmentFault]:
    """Yield the faults of the index for readers that have only the bucket."""
    try:
        listed = read_pack_index(store, key)
    except DamagedPack:
        for row, _ in segments[:1]:
            yield _index_fault(row, "the index at the end of the object is damaged")
        return
    for row, one in segments:
        if one not in listed:
            yield _index_fault(row, f"the index at the end of the object lacks {one}")


def _index_fault(row: SegmentRow, wrong: str) -> SegmentFault:
    return SegmentFault(row, wrong, _OWN_INDEX, has_offsets=False)


def prove_entry(
    store: ObjectStore, row: EntryRow, size_bytes: int | None, *, is_quick: bool
) -> list[EntryFault]:
    """Return the faults of an entry's object; raise the errors of a store that fails.

    See `prove_pack`.
    """
    key = object_key(row.session, row.sequence)
    try:
        runs = runs_of(row)
    except DamagedEntry as error:
        return [_index_of_row_fault(row, error)]
    # The end of an object follows from the row: index and footer.
    end = b"".join(Entry((), runs, row.size_bytes).object())
    needed = row.size_bytes + len(end)
    try:
        size = store.size(key) if size_bytes is None else size_bytes
        if size != needed:
            wrong = f"the object has {size} bytes instead of {needed}"
            cut = [run for run in runs if run.position + run.size_bytes > size]
            return [_run_fault(row, run, wrong) for run in cut] or [_end_fault(row, wrong)]
        if is_quick:
            return []
        parts = {_Part(one.position, one.size_bytes, one.crc): one for one in runs}
        last = _Part(row.size_bytes, len(end), crc32c(end))
        return [
            _run_fault(row, parts[one], _DAMAGED_RUN)
            if one in parts
            else _end_fault(row, "the index at the end of the object is damaged")
            for one in _damaged_parts(store, key, [*parts, last])
        ]
    except ObjectMissing:
        return [_run_fault(row, run, _MISSING) for run in runs]


def prove_body(row: EntryRow, body: Buffer) -> list[EntryFault]:
    """Return the faults of an inline entry."""
    try:
        runs = runs_of(row)
    except DamagedEntry as error:
        return [_index_of_row_fault(row, error)]
    found = []
    for run in runs:
        try:
            run.take(body)
        except DamagedEntry:
            found.append(_run_fault(row, run, _DAMAGED_RUN))
    return found


def _run_fault(row: EntryRow, run: Run, wrong: str) -> EntryFault:
    return EntryFault(row, run, wrong, RECORDS)


def _end_fault(row: EntryRow, wrong: str) -> EntryFault:
    return EntryFault(row, None, wrong, _OWN_INDEX)


def _index_of_row_fault(row: EntryRow, error: DamagedEntry) -> EntryFault:
    return EntryFault(row, None, f"in the catalog, {error}", ENTRY)


def runs_of(row: EntryRow) -> list[Run]:
    """Return the runs of an entry. Raises DamagedEntry."""
    runs = read_index(row.runs)
    if sum(one.size_bytes for one in runs) != row.size_bytes:
        raise DamagedEntry("the index of a WAL entry is not that of its batches")
    return runs


def _damaged_parts(
    store: ObjectStore, key: str, parts: Sequence[_Part]
) -> Iterator[_Part]:
    """Yield the parts with another CRC; they are ordered by position.

    Parts that touch are read together, some MiB at a time.
    """
    ends = [one.end for one in parts]
    for place in range(len(parts) - 2, -1, -1):
        if parts[place].end == parts[place + 1].position:
            ends[place] = ends[place + 1]
    begin, chunk = 0, memoryview(b"")
    for part, end in zip(parts, ends, strict=True):
        crc, position = 0, part.position
        while position < part.end:
            if not begin <= position < begin + len(chunk):
                size = min(_CHUNK_BYTES, end - position)
                begin, chunk = position, memoryview(store.read_range(key, position, size))
            piece = chunk[position - begin : part.end - begin]
            crc = crc32c(piece, crc)
            position += len(piece)
        if crc != part.crc:
            yield part
