"""The committed batches of partitions, read back from the WAL."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial

from odradek.broker.catalog.lines import Line
from odradek.broker.catalog.wal_rows import EntryRow, entry_bodies, entry_rows, object_key
from odradek.broker.ids import Partition
from odradek.broker.wal.entries import DamagedEntry, Run, read_index
from odradek.storage.objects.store import ObjectDamaged, ObjectMissing, ObjectStore

# The rows in memory at a time; an index of 2,000 partitions has 88 kB.
_ROWS_AT_ONCE = 512
# The bodies in memory at a time, and the entries that are read from the bucket at once.
_BYTES_AT_ONCE, _OBJECTS_AT_ONCE = 32 << 20, 8

Batches = memoryview | DamagedEntry
_Found = tuple[EntryRow, Sequence[Run]]


async def read_wal(
    line: Line, store: ObjectStore, threads: Executor, wanted: Mapping[Partition, int]
) -> AsyncIterator[list[tuple[Run, Batches]]]:
    """Yield the committed runs with records at or after an offset of each wanted partition.

    Those of a partition are in the order of their offsets; they come some entries at a time. A
    run whose batches are lost or damaged comes with the error. Raises MetadataError, and
    ObjectStoreError when the store does not serve. Nobody may commit batches of these partitions
    meanwhile.
    """
    place = -1
    while rows := await line.read(partial(entry_rows, after=place, count_max=_ROWS_AT_ONCE)):
        async for some in read_entries(line, store, threads, rows, wanted):
            yield some
        place = rows[-1].place


async def read_entries(
    line: Line,
    store: ObjectStore,
    threads: Executor,
    rows: Sequence[EntryRow],
    wanted: Mapping[Partition, int],
) -> AsyncIterator[list[tuple[Run, Batches]]]:
    """Yield the runs of some entries as read_wal() does."""
    parts = [(row, _wanted_of(row, wanted)) for row in rows]
    found = [(row, runs) for row, runs in parts if runs]
    for some in _together(found):
        yield await _read(line, store, threads, some)


def _together(found: Sequence[_Found]) -> Iterator[list[_Found]]:
    """Yield entries that are read together."""
    some: list[_Found] = []
    size = objects = 0
    for row, runs in found:
        some.append((row, runs))
        size += row.size_bytes
        objects += not row.is_inline
        if size >= _BYTES_AT_ONCE or objects >= _OBJECTS_AT_ONCE:
            yield some
            some, size, objects = [], 0, 0
    if some:
        yield some


def _wanted_of(row: EntryRow, wanted: Mapping[Partition, int]) -> list[Run]:
    return [
        run
        for run in read_index(row.runs)
        if (offset := wanted.get(run.partition)) is not None and offset < run.next_offset
    ]


async def _read(
    line: Line, store: ObjectStore, threads: Executor, found: Sequence[_Found]
) -> list[tuple[Run, Batches]]:
    loop = asyncio.get_running_loop()
    inline = [row.place for row, _ in found if row.is_inline]
    bodies: dict[int, bytes] = {}
    if inline:
        bodies = await line.read(partial(entry_bodies, places=inline))
    parts = await asyncio.gather(
        *(
            loop.run_in_executor(threads, _parts, store, row, runs, bodies.get(row.place))
            for row, runs in found
        )
    )
    return list(itertools.chain.from_iterable(parts))


def _parts(
    store: ObjectStore, row: EntryRow, runs: Sequence[Run], body: bytes | None
) -> list[tuple[Run, Batches]]:
    """Return the runs with their batches, in a thread."""
    begin, end = runs[0].position, runs[-1].position + runs[-1].size_bytes
    try:
        if body is not None:
            span = memoryview(body)[begin:end]
        elif row.is_inline:
            gone = f"the WAL has forgotten entry {row.sequence} of session {row.session}"
            return [(run, DamagedEntry(gone)) for run in runs]
        else:
            key = object_key(row.session, row.sequence)
            span = memoryview(store.read_range(key, begin, end - begin))
    except (ObjectMissing, ObjectDamaged) as error:
        return [(run, DamagedEntry(str(error))) for run in runs]
    return [(run, _checked(run, span[run.position - begin :])) for run in runs]


def _checked(run: Run, span: memoryview) -> Batches:
    try:
        return run.check(span[: run.size_bytes])
    except DamagedEntry as error:
        return error
