"""Chooses the records that can still be served when objects of the bucket are lost.

A log has no holes: readers would take them for records that compaction has removed. So of the
ranges between its losses it keeps the one with the most bytes, and begins or ends there:

    segments      [0    100) lost [200    300)    WAL  [300  310) lost [320  330)
    it keeps                      [200                       310)

A log that ends earlier than before must not find later batches in the WAL. Entries have batches of
many partitions, so such an entry is stored again without those that are given up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.restoring import Kept
from odradek.broker.catalog.segment_rows import offsets_of, segments_of
from odradek.broker.catalog.wal_rows import (
    EntryRow,
    NewRow,
    entry_bodies,
    entry_rows,
    object_key,
)
from odradek.broker.ids import Partition
from odradek.broker.metadata.statements import Connection
from odradek.broker.shared.proofs import runs_of
from odradek.broker.wal.entries import Entry, Run
from odradek.dataclass import dataclass
from odradek.storage.objects.store import ObjectStore

_ENTRIES_AT_ONCE = 64

Losses = Mapping[Partition, Sequence[tuple[int, int]]]
"""For each partition the offsets that are lost, each with the one after its last."""


class Piece(NamedTuple):
    """The offsets of a segment, or of batches that only the WAL has."""

    base_offset: int
    next_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A log from `start` to `end` that keeps a part of itself.

    A begin that it keeps may be below `start`: its first segment may have deleted records, too.
    """

    start: int
    end: int
    kept: Kept

    @property
    def given_up(self) -> list[tuple[int, int]]:
        """The ranges of offsets that it does not keep."""
        ranges = (self.start, self.kept.first), (self.kept.end, self.end)
        return [(first, end) for first, end in ranges if first < end]


@dataclass(frozen=True, slots=True)
class Salvage:
    """The logs that are cut, and the entries of the WAL that go, or come without some runs."""

    cuts: Mapping[Partition, Cut]
    dropped: Sequence[int]
    shortened: Sequence[tuple[EntryRow, Sequence[Run]]]


NO_SALVAGE = Salvage({}, (), ())


def cut_log(
    start: int, stored: int, pieces: Sequence[Piece], losses: Sequence[tuple[int, int]]
) -> Cut:
    """Return the part of a log that is kept; of two with as many bytes it is the later one.

    Pieces count that have records from log start offset `start` on. But a log is built from
    deleted records, too: those after the stored offset, and those of the last segment. A log that
    keeps nothing begins after all of its offsets.
    """
    end = max([start, *(one.next_offset for one in pieces), *(end for _, end in losses)])
    best, most_bytes = Kept(end, end), 0
    at = min([start, stored, *(one.base_offset for one in pieces)])
    for first, after in [*sorted(losses), (end, end)]:
        size = sum(
            one.size_bytes
            for one in pieces
            if max(at, start) < one.next_offset and one.base_offset < min(first, end)
        )
        if at < first and size and size >= most_bytes:
            best, most_bytes = Kept(at, first), size
        at = max(at, after)
    return Cut(start, end, best)


def plan_salvage(connection: Connection, losses: Losses) -> Salvage:
    """Return the cuts that let logs without these losses be served.

    Entries of the WAL that nobody needs go, too. Raises DamagedEntry.
    """
    stored = segments_of(connection, losses.keys())
    pieces = {
        key: [Piece(row.base_offset, row.next_offset, row.size_bytes) for row in one.segments]
        for key, one in stored.items()
    }
    for _, runs in _entries(connection):
        for run in runs:
            if run.partition in pieces:
                floor = stored[run.partition].stored_offset
                if run.next_offset > floor:
                    begin = max(run.base_offset, floor)
                    pieces[run.partition].append(Piece(begin, run.next_offset, run.size_bytes))
    cuts = {
        key: cut_log(one.log_start_offset, one.stored_offset, pieces[key], losses[key])
        for key, one in stored.items()
    }
    dropped, shortened = [], []
    for row, runs in _entries(connection):
        floors = _floors(connection, cuts, {run.partition for run in runs})
        hidden = {one for one in runs if _is_behind(cuts.get(one.partition), one)}
        left = [
            one
            for one in runs
            if one not in hidden and floors.get(one.partition, one.next_offset) < one.next_offset
        ]
        if not left:
            dropped.append(row.place)
        elif hidden:
            shortened.append((row, left))
    return Salvage(cuts, dropped, shortened)


def shorten_entries(
    engine: Engine, store: ObjectStore, session: int, salvage: Salvage
) -> list[tuple[int, NewRow]]:
    """Store entries without the runs that are given up; return their rows by place.

    Their objects are those of a session. Raises MetadataError, ObjectStoreError and DamagedEntry.
    """
    made = []
    for sequence, (row, runs) in enumerate(salvage.shortened):
        entry = _shortened(engine, store, row, runs)
        if row.is_inline:
            new = NewRow(entry.size_bytes, entry.index(), b"".join(entry.body))
        else:
            store.create(object_key(session, sequence), entry.object())
            new = NewRow(entry.size_bytes, entry.index(), None)
        made.append((row.place, new))
    return made


def _shortened(
    engine: Engine, store: ObjectStore, row: EntryRow, runs: Sequence[Run]
) -> Entry:
    if row.is_inline:
        body = engine.read(partial(entry_bodies, places=[row.place]))[row.place]
        batches = [run.take(body) for run in runs]
    else:
        key = object_key(row.session, row.sequence)
        batches = [
            run.check(store.read_range(key, run.position, run.size_bytes)) for run in runs
        ]
    moved, position = [], 0
    for run in runs:
        moved.append(replace(run, position=position))
        position += run.size_bytes
    return Entry(batches, moved, position)


def _entries(connection: Connection) -> Iterator[tuple[EntryRow, list[Run]]]:
    place = -1
    while rows := entry_rows(connection, place, _ENTRIES_AT_ONCE):
        for row in rows:
            yield row, runs_of(row)
        place = rows[-1].place


def _is_behind(cut: Cut | None, run: Run) -> bool:
    """Return whether a run is at the end of a log that is given up."""
    return cut is not None and run.next_offset > cut.kept.end


def _floors(
    connection: Connection, cuts: Mapping[Partition, Cut], keys: Collection[Partition]
) -> dict[Partition, int]:
    """Return the stored offsets after the cuts, below which nobody needs the WAL.

    Partitions whose topics were deleted are left out.
    """
    found = {}
    for key, one in offsets_of(connection, keys).items():
        found[key] = one.stored_offset
        cut = cuts.get(key)
        if cut is not None:
            found[key] = max(min(found[key], cut.kept.end), cut.kept.first)
    return found
