"""When a new segment begins, as Kafka's LogSegment.shouldRoll has it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from odradek.config.topic import TopicConfig
from odradek.protocol.batches import BatchHeader, read_header
from odradek.storage.rolling import draw_roll_jitter_ms, must_roll
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import COMPACT, Partition, make_batch

LARGE = TopicConfig()
RECORD = [(b"key", b"value")]
SIZE = len(make_batch(RECORD, 0))


def partition_of(config: TopicConfig) -> Partition:
    return Partition(CrashFileSystem(), config=config)


def segment_sizes(partition: Partition) -> list[int]:
    return [segment.size_bytes for segment in partition.log.segments]


def test_by_size_at_the_last_batch_that_fits() -> None:
    partition = partition_of(replace(LARGE, internal_segment_bytes=3 * SIZE))
    for _ in range(7):
        partition.append(RECORD)
    assert segment_sizes(partition) == [3 * SIZE, 3 * SIZE, SIZE]
    assert [s.base_offset for s in partition.log.segments] == [0, 3, 6]


@pytest.mark.parametrize("log_append_time", [False, True])
def test_by_time_between_batches(log_append_time: bool) -> None:
    """Time is what the batches say: the first one's largest timestamp against the new one's."""
    kind = "LogAppendTime" if log_append_time else "CreateTime"
    partition = partition_of(replace(LARGE, segment_ms=100, message_timestamp_type=kind))
    start = partition.clock.now_ms()
    partition.append(RECORD * 2, [start - 50, start])
    partition.clock.advance(100)
    partition.append(RECORD)
    assert len(segment_sizes(partition)) == 1
    partition.clock.advance(1)
    partition.append(RECORD)
    assert len(segment_sizes(partition)) == 2


def test_the_clock_does_not_matter_where_batches_have_timestamps() -> None:
    partition = partition_of(replace(LARGE, segment_ms=100))
    start = partition.clock.now_ms()
    partition.append(RECORD, start)
    partition.clock.advance(10_000)
    partition.append(RECORD, start + 100)
    partition.append(RECORD, start - 5_000)
    partition.append(RECORD, -1)
    assert len(segment_sizes(partition)) == 1


def test_by_the_clock_where_the_first_batch_has_no_timestamp() -> None:
    partition = partition_of(replace(LARGE, segment_ms=100))
    partition.append(RECORD, -1)
    partition.clock.advance(100)
    partition.append(RECORD)
    assert len(segment_sizes(partition)) == 1
    partition.clock.advance(1)
    partition.append(RECORD)
    assert len(segment_sizes(partition)) == 2


def test_by_time_after_a_restart_as_before() -> None:
    partition = partition_of(replace(LARGE, segment_ms=100))
    partition.append(RECORD)
    partition = partition.reopen()
    partition.clock.advance(101)
    partition.append(RECORD)
    assert len(segment_sizes(partition)) == 2


@pytest.mark.parametrize(("policy", "segments"), [(COMPACT, 2), (frozenset({"delete"}), 1)])
def test_a_compacted_log_rolls_before_its_compaction_is_overdue(
    policy: frozenset[str], segments: int
) -> None:
    partition = partition_of(replace(LARGE, cleanup_policy=policy, max_compaction_lag_ms=100))
    partition.append(RECORD)
    partition.clock.advance(101)
    partition.append(RECORD)
    assert len(segment_sizes(partition)) == segments


def test_jitter_makes_it_earlier_by_no_more_than_allowed() -> None:
    config = replace(LARGE, segment_ms=1_000, segment_jitter_ms=300)
    source = random.Random(1)
    drawn = [draw_roll_jitter_ms(config, source) for _ in range(300)]
    assert min(drawn) >= 0
    assert max(drawn) < 300
    assert len(set(drawn)) > 100
    assert draw_roll_jitter_ms(replace(config, segment_jitter_ms=0), source) == 0
    assert draw_roll_jitter_ms(replace(config, segment_jitter_ms=5_000), source) < 1_000

    partition = partition_of(config)
    jitter_ms = partition.log.active.roll_jitter_ms
    assert jitter_ms > 0
    partition.append(RECORD)
    partition.clock.advance(1_000 - jitter_ms)
    partition.append(RECORD)
    assert len(segment_sizes(partition)) == 1
    partition.clock.advance(1)
    partition.append(RECORD)
    assert len(segment_sizes(partition)) == 2
    assert partition.reopen().log.active.roll_jitter_ms > 0


@pytest.mark.parametrize(
    ("index_bytes", "entries"),
    # Kafka's time index keeps one entry free for the last one: 12 * 3 > 35.
    [(8 * 9, 5), (35, 1), (36, 2), (48, 3)],
)
def test_when_an_index_is_full(index_bytes: int, entries: int) -> None:
    partition = partition_of(
        replace(LARGE, segment_index_bytes=index_bytes, index_interval_bytes=0)
    )
    while len(partition.log.segments) == 1:
        partition.append(RECORD)
        partition.clock.advance(1)
    sealed = partition.log.segments[0]
    assert sealed.offset_index.entries.size_bytes == 8 * entries
    assert sealed.time_index.entries.size_bytes <= index_bytes


def test_by_the_span_of_offsets() -> None:
    partition = partition_of(LARGE)
    log = partition.log
    partition.append(RECORD)
    last = log.active.base_offset + 2**31 - 1
    now_ms = partition.clock.now_ms()
    assert must_roll(LARGE, log.active, SIZE, last, now_ms, now_ms) is None
    assert must_roll(LARGE, log.active, SIZE, last + 1, now_ms, now_ms) == "offset span"


def test_an_empty_segment_does_not_roll() -> None:
    partition = partition_of(replace(LARGE, segment_ms=100, internal_segment_bytes=SIZE))
    partition.clock.advance(1_000)
    partition.log.roll(partition.clock.now_ms())
    partition.append(RECORD)
    assert segment_sizes(partition) == [SIZE]


def test_a_roll_leaves_a_snapshot_and_announces_itself() -> None:
    partition = partition_of(LARGE)
    log = partition.log
    rolled: list[int] = []
    log.on_roll = lambda one: rolled.append(one.active.base_offset)
    partition.append(RECORD, producer=(1, 0, 0))
    log.roll(partition.clock.now_ms())
    assert rolled == [1]
    assert log.producers.snapshot_offsets() == [1]


def test_a_batch_never_lies_in_two_segments() -> None:
    partition = partition_of(replace(LARGE, internal_segment_bytes=1_000))
    headers: list[BatchHeader] = []
    for at in range(40):
        partition.append([(b"k", bytes(at * 13 % 400))])
    for segment in partition.log.segments:
        data = partition.fs.read_bytes(segment.path(".log"))
        position = 0
        while position < len(data):
            headers.append(read_header(data, position))
            position += headers[-1].size_bytes
        assert position == len(data) <= 1_000
    assert [header.base_offset for header in headers] == list(range(40))
