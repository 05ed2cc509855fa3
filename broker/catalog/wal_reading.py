"""The committed batches of partitions, read back from the WAL by a new leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Executor
from functools import partial

from odradek.broker.catalog.lines import Line
from odradek.broker.catalog.wal_rows import EntryRow, entry_rows, object_key
from odradek.broker.ids import Partition
from odradek.broker.wal.entries import Run, read_index
from odradek.storage.objects.store import ObjectStore

# Entries in memory at a time, and read from the bucket at once.
_ENTRIES_AT_ONCE = 8


async def read_wal(
    line: Line, store: ObjectStore, threads: Executor, wanted: Mapping[Partition, int]
) -> AsyncIterator[tuple[Run, memoryview]]:
    """Yield the committed runs with records at or after an offset of each wanted partition.

    Those of a partition are in the order of their offsets. Raises MetadataError, ObjectStoreError
    and DamagedEntry. Nobody may commit batches of these partitions meanwhile.
    """
    loop, place = asyncio.get_running_loop(), -1
    while rows := await line.read(partial(entry_rows, after=place, count_max=_ENTRIES_AT_ONCE)):
        parts = [(row, _wanted_of(row, wanted)) for row in rows]
        found = [(row, runs) for row, runs in parts if runs]
        reads = [
            loop.run_in_executor(threads, _read_span, store, row, runs) for row, runs in found
        ]
        for (_, runs), span in zip(found, await asyncio.gather(*reads), strict=True):
            begin = runs[0].position
            for run in runs:
                at = run.position - begin
                yield run, run.check(span[at : at + run.size_bytes])
        place = rows[-1].place


def _wanted_of(row: EntryRow, wanted: Mapping[Partition, int]) -> list[Run]:
    return [
        run
        for run in read_index(row.runs)
        if (offset := wanted.get(run.partition)) is not None and offset < run.next_offset
    ]


def _read_span(store: ObjectStore, row: EntryRow, runs: list[Run]) -> memoryview:
    """Return the bytes from the first of some runs to the end of the last; runs in a thread."""
    begin, end = runs[0].position, runs[-1].position + runs[-1].size_bytes
    if row.body is not None:
        return memoryview(row.body)[begin:end]
    key = object_key(row.session, row.sequence)
    return memoryview(store.read_range(key, begin, end - begin))
