"""The committed batches of partitions, read back from the WAL."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial

from odradek.broker.catalog.lines import Line
from odradek.broker.catalog.wal_rows import EntryRow, entry_parts, entry_rows, object_key
from odradek.broker.ids import Partition
from odradek.broker.wal.entries import DamagedEntry, Run, extent_of, read_wanted
from odradek.storage.files import Buffer
from odradek.storage.objects.store import ObjectDamaged, ObjectMissing, ObjectStore

# The rows in memory at a time; an index of 2,000 partitions has 88 kB.
_ROWS_AT_ONCE = 512
# The bodies in memory at a time, and the entries that are read from the bucket at once.
_BYTES_AT_ONCE, _OBJECTS_AT_ONCE = 32 << 20, 8

Batches = memoryview | DamagedEntry
_Found = tuple[EntryRow, Sequence[Run]]


async def read_wal(
    line: Line, store: ObjectStore, threads: Executor, wanted: Mapping[Partition, int]
) -> AsyncGenerator[list[tuple[Run, Batches]], None]:
    """Yield the committed runs with records at or after an offset of each wanted partition.

    Those of a partition are in the order of their offsets; they come some entries at a time. A
    run whose batches are lost or damaged comes with the error. Raises MetadataError, and
    ObjectStoreError when the store does not serve. Nobody may commit batches of these partitions
    meanwhile.
    """
    if not wanted:
        return
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
    parts = [(row, read_wanted(row.runs, wanted)) for row in rows]
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


async def _read(
    line: Line, store: ObjectStore, threads: Executor, found: Sequence[_Found]
) -> list[tuple[Run, Batches]]:
    loop = asyncio.get_running_loop()
    from_bucket = [
        loop.run_in_executor(threads, _fetched, store, row, runs)
        for row, runs in found
        if not row.is_inline
    ]
    inline = [(row, runs) for row, runs in found if row.is_inline]
    ours, theirs = await asyncio.gather(
        _from_catalog(line, threads, inline), asyncio.gather(*from_bucket)
    )
    sources = {True: iter(ours), False: iter(theirs)}
    return list(itertools.chain.from_iterable(next(sources[row.is_inline]) for row, _ in found))


async def _from_catalog(
    line: Line, threads: Executor, inline: Sequence[_Found]
) -> list[list[tuple[Run, Batches]]]:
    if not inline:
        return []
    parts = [(row.place, *extent_of(runs)) for row, runs in inline]
    spans = await line.read(partial(entry_parts, parts=parts))
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(threads, _checked_all, inline, spans)


def _checked_all(
    inline: Sequence[_Found], spans: Mapping[int, bytes]
) -> list[list[tuple[Run, Batches]]]:
    """Return the runs of inline entries with their batches, in a thread."""
    return [_checked_runs(row, runs, spans.get(row.place)) for row, runs in inline]


def _fetched(
    store: ObjectStore, row: EntryRow, runs: Sequence[Run]
) -> list[tuple[Run, Batches]]:
    """Return the runs of an entry in the bucket with their batches, in a thread."""
    try:
        span = store.read_range(object_key(row.session, row.sequence), *extent_of(runs))
    except (ObjectMissing, ObjectDamaged) as error:
        return [(run, DamagedEntry(str(error))) for run in runs]
    return _checked_runs(row, runs, span)


def _checked_runs(
    row: EntryRow, runs: Sequence[Run], span: Buffer | None
) -> list[tuple[Run, Batches]]:
    if span is None:
        gone = f"the WAL has forgotten entry {row.sequence} of session {row.session}"
        return [(run, DamagedEntry(gone)) for run in runs]
    begin, view = runs[0].position, memoryview(span)
    return [(run, _checked(run, view[run.position - begin :])) for run in runs]


def _checked(run: Run, span: memoryview) -> Batches:
    try:
        return run.check(span[: run.size_bytes])
    except DamagedEntry as error:
        return error
