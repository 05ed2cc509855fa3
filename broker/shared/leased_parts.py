"""The parts of a leased cleaning, each carried out on some machine with a disk and the bucket."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from odradek.broker.shared.leased import LeasedLog
from odradek.broker.shared.leased_terms import Proposal, Replacement
from odradek.broker.shared.packing import add_remotes, pack_cleaned
from odradek.cleaner.passes.cleaning import Cleaning
from odradek.cleaner.passes.hashing import PRIME, HashKey
from odradek.cleaner.passes.key_filter import write_summary
from odradek.cleaner.passes.parts import (
    Latest,
    LatestInPart,
    PartFacts,
    met_before,
    rewrite_part,
)
from odradek.cleaner.passes.stats import Counters
from odradek.cleaner.passes.summary import read_summary
from odradek.cleaner.rules.job import CleanerSettings, CleaningJob
from odradek.cleaner.rules.policy import Bound, DirtyRange, Reason
from odradek.cleaner.rules.transactions import Met
from odradek.dataclass import dataclass
from odradek.protocol.kernel import Table
from odradek.storage.objects.cached_files import CachedFiles
from odradek.storage.objects.store import ObjectStore
from odradek.storage.reading import aborted_between
from odradek.storage.real_files import RealFileSystem
from odradek.storage.segment import Segment, file_name
from odradek.storage.transactions import AbortedTransaction

# The limits of a task: blocks of segments on the disk and in memory, and the map of keys.
_CACHE_BYTES, _CACHE_MEMORY_BYTES, _MAP_BYTES = 64 << 20, 64 << 20, 64 << 20
_CHUNK_BYTES, _MAP_LOAD_FACTOR = 4 << 20, 0.9
# A few segments are asked for the secret of their filters, so that new ones have the same.
_ASKED_SEGMENTS = 3


@dataclass(frozen=True, slots=True)
class Rewrite:
    """How a part is rewritten, beside its latest records: with the transactions before it."""

    facts: PartFacts
    before: Met
    filter_point: int


@contextmanager
def latest_in_part(
    store: ObjectStore, log: LeasedLog, part: int, hash_key: HashKey
) -> Iterator[tuple[PartFacts, Iterator[Latest]]]:
    """Find the latest records of the keys of a part.

    Raises StorageError and ObjectStoreError.
    """
    with (
        _cleaning(store, log) as cleaning,
        LatestInPart(cleaning, log.parts[part], log.terms.log_start_offset) as found,
    ):
        facts = found.find(hash_key)
        yield facts, found.latest()


def rewrite(
    store: ObjectStore, log: LeasedLog, part: int, how: Rewrite, latest: Table, number: int
) -> Proposal:
    """Rewrite a part, and store it as the object of a number, unless nothing changes.

    `latest` has the ordinals of the records that are the latest of their keys in the log. Returns
    the proposal for the part alone. Raises StorageError and ObjectStoreError.
    """
    begun_s = time.monotonic()
    places = log.parts[part]
    rows = log.rows[places.start : places.stop]
    with _cleaning(store, log) as cleaning:
        rewritten = rewrite_part(
            cleaning,
            places,
            how.facts,
            latest,
            how.before,
            log_start_offset=log.terms.log_start_offset,
            filter_point=how.filter_point,
        )
        replacements = []
        if rewritten.segment is not None:
            write_summary(rewritten.segment, rewritten.summary, rewritten.keys)
            key = f"{log.terms.prefix}{number:012d}"
            row = pack_cleaned(store, cleaning.fs, key, rewritten.segment, rows)
            old = tuple((one.base_offset, one.key) for one in rows)
            replacements.append(Replacement(old, row))
        cleaning.counters.indexed_bytes = sum(row.size_bytes for row in rows)
        cleaning.counters.indexed_records = how.facts.record_count
        cleaning.counters.invalid_records = how.facts.keyless
        return Proposal(
            tuple(replacements),
            cleaning.counters,
            rewritten.summary.next_horizon_ms,
            0,
            _ms_since(begun_s),
        )


def put_together(parts: Sequence[Proposal], index_ms: int = 0) -> Proposal:
    """Return the proposal for a log by those for its parts.

    The time is that of all tasks, and `index_ms` that of the first step.
    """
    sums = {
        name: sum(getattr(one.counters, name) for one in parts)
        for name in (field.name for field in fields(Counters))
    }
    horizons = [one.next_horizon_ms for one in parts if one.next_horizon_ms is not None]
    return Proposal(
        tuple(replacement for one in parts for replacement in one.replacements),
        Counters(**sums),
        min(horizons, default=None),
        index_ms,
        index_ms + sum(one.total_ms for one in parts),
    )


def draw_key() -> HashKey:
    """Draw the secret of a job's hashes."""
    return HashKey.draw(secrets.randbelow)


def plan_rewrites(
    store: ObjectStore, log: LeasedLog, facts: Sequence[PartFacts]
) -> list[Rewrite]:
    """Return how each part of a log is rewritten, by the facts of all, in their order.

    Raises StorageError and ObjectStoreError.
    """
    point = filter_point(store, log)
    before = met_before([one.met for one in facts])
    return [Rewrite(one, met, point) for one, met in zip(facts, before, strict=True)]


def filter_point(store: ObjectStore, log: LeasedLog) -> int:
    """Return the secret of the filters of a log's keys, or draw one."""
    with _cleaning(store, log) as cleaning:
        for segment in reversed(cleaning.job.segments[:_ASKED_SEGMENTS]):
            summary = read_summary(segment)
            if summary is not None:
                return summary.point
    return secrets.randbelow(PRIME)


@contextmanager
def _cleaning(store: ObjectStore, log: LeasedLog) -> Iterator[Cleaning]:
    """Make the job of a leader's cleaner, with files of the bucket in a folder of its own."""
    terms = log.terms
    with TemporaryDirectory(prefix="odradek-clean-") as folder:
        files = CachedFiles(
            RealFileSystem(), _CACHE_BYTES, memory_bytes_max=_CACHE_MEMORY_BYTES
        )
        try:
            directory = Path(folder)
            for row in log.rows:
                add_remotes(files, store, row, directory / file_name(row.base_offset))
            job = CleaningJob(
                terms.name,
                terms.topic,
                terms.number,
                directory,
                terms.config,
                terms.segment_bytes,
                _range(log),
                tuple(Segment(files, directory, row.base_offset) for row in log.rows),
                (),
                terms.producers,
                CleanerSettings(_MAP_BYTES, _MAP_LOAD_FACTOR, _CHUNK_BYTES, 0, False),
                terms.now_ms,
                Reason.ASKED,
            )
            yield Cleaning(job, files, partial(_aborted, job, terms.aborted), Counters(), _go_on)
        finally:
            files.close()


def _range(log: LeasedLog) -> DirtyRange:
    terms = log.terms
    return DirtyRange(
        terms.first_dirty_offset,
        terms.first_uncleanable_offset,
        0,
        log.size_bytes,
        Bound.ACTIVE_SEGMENT,
        0,
        None,
        None,
    )


def _aborted(
    job: CleaningJob, behind: tuple[AbortedTransaction, ...], start_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions that overlap offsets, some with markers behind the log."""
    found = aborted_between(job.segments, start_offset, end_offset)
    return found + [
        one for one in behind if one.first_offset < end_offset and one.last_offset >= start_offset
    ]


def _ms_since(begun_s: float) -> int:
    return round(1000 * (time.monotonic() - begun_s))


def _go_on(size_bytes: int) -> None:
    """Wait for nothing: a job's reads are limited by its number of tasks."""
