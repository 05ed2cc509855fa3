"""Finding batches by offset and by time, in what a cleaning left too."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol import records as records_by_kernel
from odradek.protocol.batches import HEADER_SIZE, iterate_batches
from odradek.protocol.compression import Codec
from odradek.protocol.records_plain import first_at_or_after_plain
from odradek.storage import reading
from odradek.storage.errors import CorruptFile, OffsetOutOfRange
from odradek.storage.index import OffsetIndex
from odradek.storage.reading import TimestampedOffset, first_at_or_after
from odradek.storage.real_files import RealFileSystem
from odradek.storage.segment import INDEX, Segment, Slice
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import SMALL, Partition, clean, read_all


def filled(batches: int = 60) -> Partition:
    partition = Partition(CrashFileSystem())
    for at in range(batches):
        partition.append([(b"key%d" % (at % 5), bytes(at % 50))] * (at % 3 + 1))
        partition.clock.advance(10)
    return partition


def test_a_read_begins_with_the_batch_that_holds_the_offset() -> None:
    partition = filled()
    for batch in partition.batches():
        for offset in range(batch.base_offset, batch.last_offset + 1):
            found = partition.log.read(offset, 1, at_least_one=True)
            assert found is not None
            assert found.read() == batch.data


def test_a_read_in_a_gap_begins_after_it() -> None:
    partition = filled()
    batches = partition.batches()
    first, second = (segment.base_offset for segment in partition.log.segments[1:3])
    dropped = [batch for batch in batches if first <= batch.base_offset < second]
    clean(partition, 1, 1, {batch.base_offset for batch in dropped})  # all of a segment
    following = next(batch for batch in batches if batch.base_offset == second)
    for batch in dropped:
        found = partition.log.read(batch.base_offset, 1, at_least_one=True)
        assert found is not None
        assert found.read() == following.data
    assert partition.log.segments[1].size_bytes == 0
    assert partition.reopen().batches() == [b for b in batches if b not in dropped]


@pytest.mark.parametrize("size_max", [1, 100, 500, 1 << 20])
def test_a_reader_in_small_steps_sees_everything_once(size_max: int) -> None:
    partition = filled()
    assert read_all(partition.log, size_max) == partition.batches()


def test_nothing_is_read_at_the_end_or_below_a_size_that_must_hold() -> None:
    partition = filled(3)
    log = partition.log
    assert log.read(log.log_end_offset, 1 << 20, at_least_one=True) is None
    first = partition.batches()[0]
    assert log.read(0, len(first.data) - 1, at_least_one=False) is None
    found = log.read(0, len(first.data), at_least_one=False)
    assert found is not None
    assert found.size == len(first.data)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("read"), st.integers(0, 11), st.sampled_from([1, 300, 1 << 20])),
        st.tuples(st.just("begin"), st.integers(0, 11), st.integers(0, 100)),
        st.tuples(st.just("roll")),
        st.tuples(st.just("delete")),
    ),
    max_size=60,
)


@given(steps=steps)
def test_readers_that_follow_a_log_find_the_same_as_others(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    partition = filled(3)
    log, places = partition.log, [0] * 12  # more readers than a segment remembers
    for kind, *values in steps:
        match kind:
            case "append":
                partition.append([(b"k", b"v")] * values[0])
            case "roll":
                log.roll(partition.clock.now_ms())
            case "delete":
                log.delete_segments(1, partition.clock.now_ms())
            case "begin":
                places[values[0]] = min(values[1], log.log_end_offset)
            case "read":
                reader, size_max = values
                offset = max(places[reader], log.log_start_offset)
                found = log.read(offset, size_max, at_least_one=True, may_wait=False)
                with mock.patch.object(Segment, "rest_from", return_value=None):
                    plain = log.read(offset, size_max, at_least_one=True)
                assert (found and range_of(found)) == (plain and range_of(plain))
                for _, batch in iterate_batches(found.read() if found else b""):
                    offset = batch.last_offset + 1
                places[reader] = offset


def range_of(found: Slice) -> tuple[int, int, int]:
    return found.base_offset, found.position, found.size


def test_a_reader_at_the_end_gets_the_next_batches_without_a_search() -> None:
    partition = filled()
    log = partition.log
    size_max = 1 << 20
    end = log.log_end_offset
    assert log.read(end, size_max, at_least_one=True, may_wait=False) is None
    for _ in range(3):
        partition.append([(b"k", b"v")])
        with mock.patch.object(Segment, "locate", side_effect=AssertionError):
            found = log.read(end, size_max, at_least_one=True, may_wait=False)
        assert found is not None
        assert found.read() == partition.batches()[-1].data
        end = log.log_end_offset


def test_reads_outside_are_refused() -> None:
    log = filled(3).log
    log.advance_start_offset(2)
    for offset in (-1, 1, log.log_end_offset + 1):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100, at_least_one=True)
    with pytest.raises(OffsetOutOfRange):
        log.advance_start_offset(log.log_end_offset + 1)
    log.advance_start_offset(1)  # the start never goes back
    assert log.log_start_offset == 2


@given(
    ages_ms=st.lists(
        st.lists(st.integers(0, 500), min_size=1, max_size=4), min_size=1, max_size=25
    ),
    codec=st.sampled_from([Codec.NONE, Codec.LZ4]),
    start=st.integers(0, 10),
    find=st.sampled_from([first_at_or_after_plain, records_by_kernel.first_at_or_after]),
    stamps=st.booleans(),
)
def test_the_first_record_at_or_after_a_timestamp(
    ages_ms: list[list[int]],
    codec: Codec,
    start: int,
    find: Callable[..., tuple[int, int]],
    stamps: bool,
) -> None:
    config = replace(SMALL, internal_segment_bytes=500, index_interval_bytes=100)
    if stamps:
        config = replace(config, message_timestamp_type="LogAppendTime")
    partition = Partition(CrashFileSystem(), config=config)
    now_ms = partition.clock.now_ms()
    for ages in ages_ms:
        partition.append([(b"k", b"v")] * len(ages), [now_ms - age for age in ages], codec=codec)
        if stamps:
            partition.clock.advance(10)
    largest = max(partition.records(), key=lambda record: record.timestamp)  # the first of them
    partition.log.advance_start_offset(min(start, partition.log.log_end_offset))
    records = partition.records()
    probes = {r.timestamp + more for r in records for more in (0, 1)}
    with mock.patch.object(reading, "_find", find):
        for log in (partition.log, partition.reopen().log):
            for timestamp in {now_ms - 501, now_ms + 1, *probes}:
                wanted = next((r for r in records if r.timestamp >= timestamp), None)
                found = log.offset_for_timestamp(timestamp)
                assert (found and (found.offset, found.timestamp)) == (
                    wanted and (wanted.offset, wanted.timestamp)
                )
            newest = log.offset_of_max_timestamp()  # also of what is deleted and still lies there
            assert newest == TimestampedOffset(largest.offset, largest.timestamp, 0)


@pytest.mark.parametrize("find", [first_at_or_after_plain, records_by_kernel.first_at_or_after])
@pytest.mark.parametrize("count", [0, 1])
def test_a_batch_that_is_none_within_is_damage_to_who_looks_for_a_time(
    find: Callable[..., tuple[int, int]], count: int
) -> None:
    partition = filled(1)
    (log,) = [segment.log for segment in partition.log.segments]
    data = bytearray(partition.batches()[0].data)
    data[HEADER_SIZE:] = b""
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 57, count)
    found = mock.Mock(read=lambda: bytes(data), position=0)
    segment = mock.Mock(max_timestamp=1, locate_timestamp=lambda *_: [found], path=lambda _: log)
    with mock.patch.object(reading, "_find", find):
        if count:
            with pytest.raises(CorruptFile):
                first_at_or_after([segment], 0, 0, 1000)
        else:
            assert first_at_or_after([segment], 0, 0, 1000) is None


def test_without_timestamps_only_the_first_record_is_found() -> None:
    partition = Partition(CrashFileSystem())
    assert partition.log.offset_of_max_timestamp() is None
    for _ in range(2):
        partition.append([(b"k", b"v")], -1)
    partition.log.advance_start_offset(1)
    assert partition.log.offset_of_max_timestamp() == TimestampedOffset(0, -1, 0)
    assert partition.log.offset_for_timestamp(0) is None


def test_a_reader_of_a_deleted_segment_finishes(tmp_path: Path) -> None:
    partition = Partition(RealFileSystem(), tmp_path)
    for _ in range(60):
        partition.append([(b"k", bytes(50))])
    batches = partition.batches()
    found = partition.log.read(0, 1 << 20, at_least_one=True)
    assert found is not None
    clock, directory = partition.clock, partition.directory
    partition.log.delete_segments(2, clock.now_ms())
    directory.remove(directory.take_due_removals(clock.advance(100_000)))
    assert found.read().startswith(batches[0].data)
    assert len(found.read()) == found.size


def test_other_threads_look_up_while_the_owner_appends() -> None:
    """An index is put in place whole, and an entry's value is there before its key."""
    fs = CrashFileSystem()
    index = OffsetIndex(fs, Path("/") / f"{0:020d}{INDEX}", 0)
    failures: list[BaseException] = []
    done = threading.Event()

    def look_up() -> None:
        try:
            while not done.is_set():
                other = OffsetIndex(fs, Path("/") / f"{0:020d}{INDEX}", 0)
                for reader in (index, other):
                    position = reader.lookup(2**31 - 1)
                    assert position % 7 == 0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=look_up) for _ in range(3)]
    for thread in threads:
        thread.start()
    for at in range(1, 3_000):
        index.append(at, at * 7)
    done.set()
    for thread in threads:
        thread.join()
    assert not failures
