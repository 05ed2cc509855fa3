"""Checks that the bucket has all that the catalog says, and nothing else, beside brokers at work.

1. The rows of a partition, and all entries of the WAL, are read in one transaction each: a gap
   in them is one.
2. A fault of an object counts if its row is still there afterwards: an object is deleted only
   after the last row that named it, and no row names it again.
3. The bucket is listed before all that; `orphans.py` says which nameless objects are orphans.

Memory: some hundred bytes for each object of the listing, and some MiB for each thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import TypeVar

from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.object_rows import (
    BEFORE_ALL,
    Range,
    segment_ranges,
    segments_by_key,
    shared_partitions,
    still_committed,
    still_current,
    topic_names,
)
from odradek.broker.catalog.segment_rows import Offsets, offsets_of
from odradek.broker.catalog.wal_rows import EntryRow, entry_bodies, entry_rows, object_key
from odradek.broker.ids import Partition
from odradek.broker.metadata.statements import Connection
from odradek.broker.shared.orphans import (
    Leftover,
    delete_orphans,
    find_leftovers,
    is_ours,
    session_of,
)
from odradek.broker.shared.proofs import (
    RECORDS,
    EntryFault,
    SegmentFault,
    prove_body,
    prove_entry,
    prove_pack,
    runs_of,
)
from odradek.broker.wal.entries import DamagedEntry
from odradek.dataclass import dataclass
from odradek.storage.objects.store import ObjectStore, StoredObject

T = TypeVar("T")
_Proof = tuple[Callable[[], list[T]], int]
"""The work that proves an object, and the bytes of the object."""

_PARTITIONS_AT_ONCE = 64
_KEYS_AT_ONCE = 64
_ENTRIES_AT_ONCE = 64
# Objects whose proofs are under way or wait for a thread.
_PROOFS_MAX = 16
_STORED = "no record: segments have these, or they were deleted"


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault; `offsets` are the first one that is concerned, and the one after the last."""

    wrong: str
    lost: str
    key: str = ""
    topic: str = ""
    partition: int = -1
    offsets: tuple[int, int] | None = None


class Check:
    """One check, which `problems` does."""

    def __init__(
        self,
        engine: Engine,
        store: ObjectStore,
        threads: Executor,
        *,
        orphans_before_ms: int,
        is_quick: bool = False,
        with_kept: bool = False,
        on_progress: Callable[[int, int], None] = lambda done_bytes, total_bytes: None,
    ) -> None:
        """Younger orphans than those stored before a time are only counted.

        So are those that a restore keeps, unless `with_kept`.

        If `is_quick`, sizes of objects are compared and none is read. `on_progress` is called with
        the bytes that were checked, and about those of all objects.
        """
        self._engine, self._store, self._threads = engine, store, threads
        self._orphans_before_ms = orphans_before_ms
        self._is_quick, self._with_kept, self._on_progress = is_quick, with_kept, on_progress
        # The objects of the listing that nothing has named yet.
        self._listed: dict[str, StoredObject] = {}
        self._total_bytes = 0
        self.partitions = self.segments = self.objects = self.entries = self.inline = 0
        self.checked_bytes = 0
        # The last session of which there are objects.
        self.last_session = 0
        # Objects that may get a name, and those that no broker has made.
        self.uploads = self.upload_bytes = self.foreign = 0
        # Objects of the time before a restore.
        self.kept = self.kept_bytes = 0
        self.orphans: list[StoredObject] = []
        # Young orphans are no problem: a broker that stops may leave some.
        self.young = self.young_bytes = 0
        self.faults = 0

    def problems(self) -> Iterator[Problem]:
        """Check everything; yield the problems, but not orphans.

        Raises MetadataError and ObjectStoreError.
        """
        yield from self.damage()
        for one in self._unknown():
            self.faults += 1
            yield one

    def damage(self) -> Iterator[Problem]:
        """Check all that the catalog names; see `problems`."""
        self._list()
        for part in (self._gaps(), self._wal(), self._packs(), self._entry_objects()):
            for one in part:
                self.faults += 1
                yield one

    def orphan_problems(self) -> Iterator[Problem]:
        """Yield the orphans that `problems` has found."""
        for one in self.orphans:
            wrong = f"nothing names these {one.size_bytes} bytes, and their session is closed"
            yield Problem(wrong, "no record", one.key)

    def delete_orphans(self) -> None:
        """Delete the orphans.

        Call it only if there is no other problem: a catalog that is an older copy lacks names.
        Raises MetadataError and ObjectStoreError.
        """
        assert not self.faults, "orphans may have the records that are lost"
        delete_orphans(self._engine, self._store, self.orphans)

    def _list(self) -> None:
        for one in self._store.list_objects(""):
            if is_ours(one.key):
                self._listed[one.key] = one
                self._total_bytes += one.size_bytes
                self.last_session = max(self.last_session, session_of(one.key))
            else:
                self.foreign += 1
        self._on_progress(0, self._total_bytes)

    # --- gaps ------------------------------------------------------------------------------

    def _gaps(self) -> Iterator[Problem]:
        """Yield the offsets of partitions that should be in segments, and are not."""
        place = BEFORE_ALL
        while True:
            found = self._engine.read(partial(_partitions_after, place=place))
            if not found:
                return
            topic_ids = [topic_id for (topic_id, _), *_ in found]
            names = self._engine.read(partial(topic_names, topic_ids=topic_ids))
            for key, offsets, ranges in found:
                self.partitions += 1
                for problem in _gaps_between(offsets, ranges):
                    yield _located(problem, key, names)
            place = found[-1][0]

    def _wal(self) -> Iterator[Problem]:
        """Yield the gaps between entries of the WAL, and the faults of inline ones."""
        yield from self._engine.read(self._read_wal)

    def _read_wal(self, connection: Connection) -> list[Problem]:
        found: list[tuple[Partition | None, Problem]] = []
        # For each partition the offset up to which segments or entries have all records, and the
        # one up to which segments have them.
        ends: dict[Partition, int] = {}
        stored: dict[Partition, int] = {}
        self.entries = self.inline = 0
        place = -1
        while rows := entry_rows(connection, place, _ENTRIES_AT_ONCE):
            place = rows[-1].place
            for row in rows:
                try:
                    runs = runs_of(row)
                except DamagedEntry:
                    continue  # reported with the object, or the body
                new = offsets_of(connection, {run.partition for run in runs} - stored.keys())
                stored.update((key, one.stored_offset) for key, one in new.items())
                for run in runs:
                    if run.partition not in stored:  # its topic was deleted
                        continue
                    end = ends.get(run.partition, stored[run.partition])
                    if run.base_offset > end:
                        gap = "no entry of the WAL has these offsets"
                        problem = Problem(gap, RECORDS, offsets=(end, run.base_offset))
                        found.append((run.partition, problem))
                    ends[run.partition] = max(end, run.next_offset)
            self.entries += len(rows)
            inline = [row for row in rows if row.is_inline]
            found += self._inline_faults(connection, inline, stored)
        names = topic_names(connection, [key[0] for key, _ in found if key])
        return [_located(problem, key, names) for key, problem in found]

    def _inline_faults(
        self, connection: Connection, rows: Sequence[EntryRow], stored: dict[Partition, int]
    ) -> Iterator[tuple[Partition | None, Problem]]:
        self.inline += len(rows)
        bodies = entry_bodies(connection, [row.place for row in rows])
        for row in rows:
            for fault in prove_body(row, bodies[row.place]):
                yield fault.partition, _entry_problem(fault, stored)

    # --- objects ---------------------------------------------------------------------------

    def _packs(self) -> Iterator[Problem]:
        for faults in self._results(self._pack_proofs()):
            yield from self._confirmed(faults)

    def _pack_proofs(self) -> Iterator[_Proof[SegmentFault]]:
        after = ""
        while found := self._engine.read(
            partial(segments_by_key, after=after, count_max=_KEYS_AT_ONCE)
        ):
            for key, rows in found.items():
                self.objects += 1
                self.segments += len(rows)
                yield self._proof(prove_pack, key, key, rows)
                after = key

    def _confirmed(self, faults: Sequence[SegmentFault]) -> Iterator[Problem]:
        if not faults:
            return
        rows = [one.row for one in faults]
        current, names = self._engine.read(
            lambda connection: (
                still_current(connection, rows),
                topic_names(connection, [row.partition[0] for row in rows]),
            )
        )
        for fault in faults:
            row = fault.row
            if (row.partition, row.base_offset) not in current:
                continue
            problem = Problem(fault.wrong, fault.lost, row.key)
            if fault.has_offsets:
                offsets = (row.base_offset, row.next_offset)
                problem = Problem(fault.wrong, fault.lost, row.key, offsets=offsets)
                problem = _located(problem, row.partition, names)
            yield problem

    def _entry_objects(self) -> Iterator[Problem]:
        for faults in self._results(self._entry_proofs()):
            yield from self._confirmed_entries(faults)

    def _entry_proofs(self) -> Iterator[_Proof[EntryFault]]:
        place = -1
        while rows := self._engine.read(
            partial(entry_rows, after=place, count_max=_ENTRIES_AT_ONCE)
        ):
            place = rows[-1].place
            for row in rows:
                if not row.is_inline:
                    self.objects += 1
                    yield self._proof(prove_entry, object_key(row.session, row.sequence), row)

    def _confirmed_entries(self, faults: Sequence[EntryFault]) -> Iterator[Problem]:
        if not faults:
            return
        keys = {one.run.partition for one in faults if one.run is not None}
        current, offsets, names = self._engine.read(
            lambda connection: (
                still_committed(connection, [one.row.place for one in faults]),
                offsets_of(connection, keys),
                topic_names(connection, [topic_id for topic_id, _ in keys]),
            )
        )
        stored = {key: one.stored_offset for key, one in offsets.items()}
        for fault in faults:
            if fault.row.place in current:
                problem = _entry_problem(fault, stored)
                yield _located(problem, fault.partition, names)

    def _proof(self, prove: Callable[..., list[T]], key: str, *rows: object) -> _Proof[T]:
        """Return the proof of an object, which has a name."""
        found = self._listed.pop(key, None)
        size = None if found is None else found.size_bytes
        return partial(prove, self._store, *rows, size, is_quick=self._is_quick), size or 0

    def _results(self, proofs: Iterable[_Proof[T]]) -> Iterator[list[T]]:
        """Yield the results of proofs; the threads do some at once."""
        waiting: deque[tuple[Future[list[T]], int]] = deque()

        def take() -> list[T]:
            future, size = waiting.popleft()
            result = future.result()
            self.checked_bytes += size
            self._on_progress(self.checked_bytes, self._total_bytes)
            return result

        for work, size in proofs:
            waiting.append((self._threads.submit(work), size))
            if len(waiting) >= _PROOFS_MAX:
                yield take()
        while waiting:
            yield take()

    # --- the rest --------------------------------------------------------------------------

    def leftovers(self) -> Iterator[Leftover]:
        """Yield the objects that `damage` has found without a name; those of uploads count."""
        listed, self._listed = self._listed, {}
        return find_leftovers(
            self._engine, self._store, self._threads, listed.values(), self._upload
        )

    def _unknown(self) -> Iterator[Problem]:
        """Find the orphans; yield the nameless objects of sessions that there were not."""
        for one in self.leftovers():
            if one.is_kept and not self._with_kept:
                self.kept += 1
                self.kept_bytes += one.object.size_bytes
            elif one.is_unknown:
                wrong = (
                    "nothing names the object, and the catalog has had no such session: it is an "
                    "older copy (see odradek cluster restore), or another cluster uses the bucket"
                )
                yield Problem(wrong, "perhaps records", one.object.key)
            elif one.object.modified_ms < self._orphans_before_ms:
                self.orphans.append(one.object)
            else:
                self.young += 1
                self.young_bytes += one.object.size_bytes

    def _upload(self, found: StoredObject) -> None:
        self.uploads += 1
        self.upload_bytes += found.size_bytes


def _partitions_after(
    connection: Connection, place: Partition
) -> list[tuple[Partition, Offsets, list[Range]]]:
    keys = shared_partitions(connection, place, _PARTITIONS_AT_ONCE)
    offsets, ranges = offsets_of(connection, keys), segment_ranges(connection, keys)
    return [(key, offsets[key], ranges[key]) for key in keys]


def _gaps_between(offsets: Offsets, ranges: Sequence[Range]) -> Iterator[Problem]:
    """Yield the offsets between log start offset and stored offset that no row has."""
    end, before = offsets.log_start_offset, -1
    for one in ranges:
        if one.base_offset > end:
            yield _gap(end, one.base_offset)
        elif one.base_offset < before:
            wrong = "another segment has the first of these offsets, too"
            yield Problem(wrong, "no record", one.key, offsets=(one.base_offset, one.next_offset))
        end, before = max(end, one.next_offset), one.next_offset
    if end < offsets.stored_offset:
        yield _gap(end, offsets.stored_offset)


def _gap(first: int, end: int) -> Problem:
    return Problem("no segment has these offsets", RECORDS, offsets=(first, end))


def _entry_problem(fault: EntryFault, stored: dict[Partition, int]) -> Problem:
    row, run = fault.row, fault.run
    key = object_key(row.session, row.sequence)
    if row.is_inline:
        key = f"entry {row.place} of the WAL"
    if run is None:
        return Problem(fault.wrong, fault.lost, key)
    begin = stored.get(run.partition, run.next_offset)
    if begin >= run.next_offset:
        offsets = (run.base_offset, run.next_offset)
        return Problem(fault.wrong, _STORED, key, offsets=offsets)
    offsets = (max(run.base_offset, begin), run.next_offset)
    return Problem(fault.wrong, fault.lost, key, offsets=offsets)


def _located(problem: Problem, key: Partition | None, names: dict[bytes, str]) -> Problem:
    """Return a problem of a partition, which has a name unless its topic was just deleted."""
    if key is None:
        return problem
    topic_id, number = key
    topic = names.get(topic_id, f"the topic with id {topic_id.hex()}")
    return Problem(problem.wrong, problem.lost, problem.key, topic, number, problem.offsets)
