"""A cleaning in parts, which may be carried out apart from each other, on several machines.

    each part -> the latest record of each of its keys                  find_latest()
    all parts -> the latest record of each key of the log, by hash: the maximum
    each part -> its segments without the records that are not among these     rewrite_part()

A part has consecutive segments, which become one. A record is named by its ordinal in its part.
All records count as dirty, so that those of clean segments are hidden by later ones as well.
Records are judged, and written, by the same code as in a cleaning as a whole: only the marks of
obsolete records come from elsewhere.

Keys are equal if 96 bits of their hashes are (cleaner/passes/hashing.py). That any two of N keys
are confused has a probability below N^2 (w + 1)^2 / 2^96: 10^-10 for 10^9 keys of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from tempfile import TemporaryFile
from typing import IO, NamedTuple

import numpy as np

from odradek.cleaner.passes.cleaning import Cleaning
from odradek.cleaner.passes.hashing import HashKey
from odradek.cleaner.passes.indexing import DirtyIndex, Indexer
from odradek.cleaner.passes.mapping import SPILL_COLUMNS, SpillRows
from odradek.cleaner.passes.offset_map import LOAD_FACTOR, OffsetMap
from odradek.cleaner.passes.ordinals import Numbering
from odradek.cleaner.passes.rewrite import Rewriter, Rewritten
from odradek.cleaner.passes.spill import ROW_BYTES
from odradek.cleaner.rules.job import CleaningJob
from odradek.cleaner.rules.transactions import CleanedTransactions, Met, MetInPart
from odradek.dataclass import dataclass
from odradek.protocol.intrinsics import Words
from odradek.protocol.kernel import Bytes, Table
from odradek.storage.errors import StorageError

_READ_ROWS = 1 << 16
_SPILL_BYTES_MAX = 1 << 62
_LOW, _HIGH = np.uint64(0xFFFFFFFF), np.uint64(32)


class Latest(NamedTuple):
    """The latest records of some keys: two parts of the hashes, 64 and 32 bits, and ordinals.

    A key may come several times.
    """

    hashes: Words
    more_hashes: Words
    ordinals: Table


@dataclass(frozen=True, slots=True)
class PartFacts:
    """The facts of a part that its rewriting needs, and that of later parts."""

    numberings: Mapping[int, Numbering]  # of its segments, by their places in the job
    met: MetInPart
    record_count: int  # that were indexed
    keyless: int

    @property
    def ordinals_end(self) -> int:
        """The first number that no record has."""
        return max((one.after for one in self.numberings.values()), default=0)


def start_of(job: CleaningJob, places: range, log_start_offset: int) -> int:
    """Return the first offset of a part that counts."""
    return max(job.segments[places.start].base_offset, log_start_offset)


def end_of(job: CleaningJob, places: range) -> int:
    """Return the first offset after a part."""
    if places.stop < len(job.segments):
        return job.segments[places.stop].base_offset
    return job.dirty.first_uncleanable_offset


class LatestInPart:
    """The first step of a part; a context that removes the temporary file it may need."""

    def __init__(self, cleaning: Cleaning, places: range, log_start_offset: int) -> None:
        self._cleaning, self._places = cleaning, places
        self._start = start_of(cleaning.job, places, log_start_offset)
        self._spooled = _Spooled()
        self._index: DirtyIndex | None = None

    def __enter__(self) -> LatestInPart:
        return self

    def __exit__(self, *_: object) -> None:
        self._spooled.close()

    def find(self, hash_key: HashKey) -> PartFacts:
        """Read the part. Raises CorruptFile."""
        job, places = self._cleaning.job, self._places
        dirty = replace(
            job.dirty,
            first_dirty_offset=self._start,
            first_uncleanable_offset=end_of(job, places),
        )
        settings = replace(job.settings, spill_bytes_max=_SPILL_BYTES_MAX)
        part = replace(
            job,
            segments=job.segments[places.start : places.stop],
            dirty=dirty,
            settings=settings,
        )
        indexer = Indexer(
            replace(self._cleaning, job=part),
            hash_key=hash_key,
            make_spill=lambda _: self._spooled,
            filter_point=None,
        )
        self._index = index = indexer.index_dirty()
        if index.latest_offset + 1 < dirty.first_uncleanable_offset:
            raise StorageError(f"{job.name}: too many records from offset {self._start} on")
        counters = self._cleaning.counters
        return PartFacts(
            {places.start + at: one for at, one in index.dirty.items()},
            indexer.transactions.met(),
            counters.indexed_records,
            counters.invalid_records,
        )

    def latest(self) -> Iterator[Latest]:
        """Yield the latest records of the part's keys, some at a time."""
        assert self._index is not None, "find() comes first"
        hashes, more_hashes, ordinals = self._index.map.entries()
        for at in range(0, len(ordinals), _READ_ROWS):
            some = slice(at, at + _READ_ROWS)
            yield Latest(hashes[some], more_hashes[some], ordinals[some])
        yield from self._spooled.read()


def rewrite_part(
    cleaning: Cleaning,
    places: range,
    facts: PartFacts,
    latest: Table,
    before: Met,
    *,
    log_start_offset: int,
    filter_point: int,
) -> Rewritten:
    """Write the remaining records of a part as one `.cleaned` segment, unless nothing changes.

    `latest` has the ordinals of the part's records that are the latest of their keys in the log,
    `before` the transactions before the part. Raises CorruptFile.
    """
    job = cleaning.job
    nothing = OffsetMap(0, bytes_max=0, load_factor_max=LOAD_FACTOR, hash_key=HashKey(0, 0))
    nothing.give_back()
    index = DirtyIndex(nothing, start_of(job, places, log_start_offset))
    index.latest_offset = end_of(job, places) - 1
    index.dirty.update(facts.numberings)
    nothing.obsolete.bits = _all_but(latest, facts.ordinals_end)
    rewriter = Rewriter(
        cleaning,
        index,
        filter_point=filter_point,
        is_dry=False,
        transactions=CleanedTransactions(before),
    )
    return rewriter.rewrite(places, index.latest_offset + 1)


def met_before(parts: Sequence[MetInPart]) -> list[Met]:
    """Return the transactions before each of a log's parts, which are given in their order."""
    found = [Met()]
    for one in parts:
        found.append(one.after(found[-1]))
    return found[: len(parts)]


def _all_but(kept: Table, count: int) -> Bytes:
    marks = np.ones(count + 8, np.bool_)
    marks[kept] = False
    return np.packbits(marks, bitorder="little")


class _Spooled:
    """Rows for which the map had no room; all of them may be the latest of their keys."""

    def __init__(self) -> None:
        self.part_count, self.written_bytes = 1, 0
        self._file: IO[bytes] | None = None

    def write(self, kind: str, rows: SpillRows) -> None:
        if self._file is None:
            self._file = TemporaryFile()  # noqa: SIM115 - close() follows
        self.written_bytes += self._file.write(rows.tobytes())

    def resolve(self, obsolete: Bytes) -> int:
        raise AssertionError("no clean segment is indexed")

    def read(self) -> Iterator[Latest]:
        """Yield the rows."""
        if self._file is None:
            return
        self._file.seek(0)
        while data := self._file.read(_READ_ROWS * ROW_BYTES):
            rows = np.frombuffer(data, np.uint32).reshape(-1, SPILL_COLUMNS).astype(np.uint64)
            hashes = rows[:, 0] | rows[:, 1] << _HIGH
            yield Latest(hashes, rows[:, 2], rows[:, 3].astype(np.int64))

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()
