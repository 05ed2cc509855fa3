"""The levels of a shared log, and the bounds of the requests that a cleaning needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from odradek.broker.catalog.segment_rows import SegmentRow
from odradek.broker.shared.levels import Level, Levels, NotedLevels
from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.rules.facts import LogFacts, SegmentFacts
from odradek.cleaner.rules.policy import DirtyRange, dirty_range
from odradek.cleaner.runtime.plan import SegmentReads, count_reads
from odradek.config.topic import TopicConfig
from odradek.storage.metering import StoreUse
from odradek.storage.objects.packs import PackedFile, PackedSegment
from odradek.storage.segment import INDEX, KEYS, LOG, TIME_INDEX, TXN_INDEX
from tests.bench.test_cleaner import _result

MIB = 1 << 20
PARTITION = (bytes(16), 0)


def row(
    base: int, end: int, size: int, key: str = "pack", *, is_open: bool = False, **files: int
) -> SegmentRow:
    kinds = {"index": INDEX, "time_index": TIME_INDEX, "txn_index": TXN_INDEX, "keys": KEYS}
    sizes = {LOG: size, **{kinds[name]: count for name, count in files.items()}}
    packed = PackedSegment(
        PARTITION, base, end, {kind: PackedFile(0, one, 0) for kind, one in sizes.items()}
    )
    return SegmentRow(
        PARTITION, base, end, key, 0, packed.table(), size, -1, -1, 0, is_open=is_open
    )


def facts(*sizes: int, records: int = 10) -> LogFacts:
    """A log whose segments have `records` offsets each; the last one is active."""
    segments = tuple(SegmentFacts(records * at, size) for at, size in enumerate(sizes))
    end = records * len(sizes)
    return LogFacts("t", 0, TopicConfig(), 0, end, end, end, segments)


def reads(log: LogFacts, first_dirty: int, *, may_spill: bool = False) -> list[SegmentReads]:
    return count_reads(log, range_of(log, first_dirty), may_spill=may_spill)


def range_of(log: LogFacts, first_dirty: int) -> DirtyRange:
    return dirty_range(log, first_dirty, 0)


def test_each_segment_is_in_one_level_and_an_object_may_be_in_both() -> None:
    rows = (
        row(0, 10, 5, "a"), row(10, 20, 6, "b"), row(20, 30, 7, "b"), row(30, 40, 8, "c"),
        row(40, 42, 9, "d", is_open=True),
    )  # fmt: skip
    noted = NotedLevels(rows, 77)
    assert noted.levels(0) == Levels(77, Level(5, 4, 35), Level(0, 0, 0))
    assert noted.levels(20) == Levels(77, Level(3, 3, 24), Level(2, 2, 11))
    assert noted.levels(21) == noted.levels(20)  # a segment with a dirty record is dirty
    assert noted.levels(42) == Levels(77, Level(0, 0, 0), Level(5, 4, 35))
    assert NotedLevels((), 3).levels(9) == Levels(3, Level(0, 0, 0), Level(0, 0, 0))


def test_the_dirty_section_is_read_twice_and_more_often_where_it_must_be_counted() -> None:
    log = facts(1000, 1000, 1000, 1000)
    assert [one.count for one in reads(log, 10)] == [1, 2, 2]
    assert [one.count for one in reads(log, 15)] == [1, 2, 2]
    assert [one.is_dirty for one in reads(log, 15)] == [False, True, True]
    # Spilled keys are looked up in the clean section, to the first dirty record.
    assert [one.count for one in reads(log, 10, may_spill=True)] == [3, 4, 2]
    # Offsets with gaps, or small records: they are counted first.
    assert [one.count for one in reads(facts(50, 50, 50, 50), 10)] == [1, 3, 3]


def test_the_bounds_count_blocks_and_the_files_beside_the_batches() -> None:
    log = facts(3 * MIB, MIB + 1, MIB, 0)
    noted = NotedLevels(
        (
            row(0, 10, 3 * MIB, index=500, keys=2 * MIB, txn_index=0),
            row(10, 20, MIB + 1, index=300, txn_index=34),
            row(20, 30, MIB, is_open=True, index=900),  # sealed since: it is uploaded again
        ),
        0,
    )
    found = noted.bounds(reads(log, 10), log.config, 30)
    size = 5 * MIB + 1
    assert found.batches == StoreUse(gets=3 + 2 * 2 + 2 * 1, received_bytes=7 * MIB + 2)
    assert found.beside == StoreUse(gets=5, received_bytes=500 + 2 * MIB + 300 + 34)
    assert found.use == replace(found.batches + found.beside, puts=found.puts, sent_bytes=size)
    # Segments in which nothing is obsolete are not read.
    result: Any = _result(
        spill_count=0, indexed_bytes=2 * MIB + 1, read_bytes=2 * MIB + 1, segments_read=2,
        segments_written=1, written_bytes=99,
    )  # fmt: skip
    assert isinstance(result, CleanResult)
    after = found.after(result)
    assert after == StoreUse(1, 4 + 2 + 2 + 5, 99, 4 * MIB + 2 + found.beside.received_bytes)
    assert found.after(replace(result, spill_count=1)) == StoreUse(
        1, found.use.gets, 99, found.use.received_bytes
    )


@pytest.mark.parametrize(
    ("sizes", "first_dirty", "puts"),
    [
        ((20, 20, 20, 0), 0, 1),  # one object has at most 64 MiB of batches
        ((40, 40, 40, 0), 0, 3),  # two do not fit
        ((900, 30, 30, 0), 0, 2),  # one that is far larger than the rest stays alone
        # (20, 40), (10, 20); from the dirty section on (40), (10), (20)
        ((20, 40, 10, 20, 0), 10, 3),
        ((10, 0), 10, 1),
    ],
)
def test_each_group_is_a_put_whether_all_or_the_dirty_section_is_grouped(
    sizes: tuple[int, ...], first_dirty: int, puts: int
) -> None:
    log = facts(*(MIB * size for size in sizes))
    rows = [row(10 * at, 10 * at + 10, MIB * size) for at, size in enumerate(sizes)]
    found = NotedLevels(tuple(rows), 0).bounds(
        reads(log, first_dirty), log.config, 10 * (len(sizes) - 1)
    )
    assert found.puts == puts


def test_nothing_to_clean_needs_no_request() -> None:
    assert NotedLevels((row(0, 10, MIB),), 5).bounds((), TopicConfig(), 0).use == StoreUse()
