"""The committed batches of partitions, read back from the WAL by a new leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial

from odradek.broker.catalog.lines import Line
from odradek.broker.catalog.wal_rows import EntryRow, entry_bodies, entry_rows, object_key
from odradek.broker.ids import Partition
from odradek.broker.wal.entries import Run, read_index
from odradek.storage.objects.store import ObjectStore

# The rows in memory at a time; an index of 2,000 partitions has 88 kB.
_ROWS_AT_ONCE = 512
# The bodies in memory at a time, and the entries that are read from the bucket at once.
_BYTES_AT_ONCE, _OBJECTS_AT_ONCE = 32 << 20, 8

_Found = tuple[EntryRow, Sequence[Run]]


async def read_wal(
    line: Line, store: ObjectStore, threads: Executor, wanted: Mapping[Partition, int]
) -> AsyncIterator[list[tuple[Run, memoryview]]]:
    """Yield the committed runs with records at or after an offset of each wanted partition.

    Those of a partition are in the order of their offsets; they come some entries at a time.
    Raises MetadataError, ObjectStoreError and DamagedEntry. Nobody may commit batches of these
    partitions meanwhile.
    """
    place = -1
    while rows := await line.read(partial(entry_rows, after=place, count_max=_ROWS_AT_ONCE)):
        parts = [(row, _wanted_of(row, wanted)) for row in rows]
        found = [(row, runs) for row, runs in parts if runs]
        for some in _together(found):
            yield await _read(line, store, threads, some)
        place = rows[-1].place


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
) -> list[tuple[Run, memoryview]]:
    loop = asyncio.get_running_loop()
    inline = [row.place for row, _ in found if row.is_inline]
    bodies: dict[int, bytes] = {}
    if inline:
        bodies = await line.read(partial(entry_bodies, places=inline))
    spans = await asyncio.gather(
        *(
            loop.run_in_executor(threads, _span, store, row, runs, bodies.get(row.place))
            for row, runs in found
        )
    )
    return [
        (run, run.check(span[run.position - runs[0].position :][: run.size_bytes]))
        for (_, runs), span in zip(found, spans, strict=True)
        for run in runs
    ]


def _span(
    store: ObjectStore, row: EntryRow, runs: Sequence[Run], body: bytes | None
) -> memoryview:
    """Return the bytes from the first of some runs to the end of the last; runs in a thread."""
    begin, end = runs[0].position, runs[-1].position + runs[-1].size_bytes
    if body is not None:
        return memoryview(body)[begin:end]
    key = object_key(row.session, row.sequence)
    return memoryview(store.read_range(key, begin, end - begin))
