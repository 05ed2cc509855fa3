"""Index files to the byte, as Kafka writes and reads them."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.index import OffsetIndex, TimeIndex
from odradek.storage.segment import INDEX, LOG, TIME_INDEX
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import SMALL, Partition

OFFSETS = Path("/00000000000000000100.index")
TIMES = Path("/00000000000000000100.timeindex")
BASE = 100


def test_an_offset_index_to_the_byte() -> None:
    fs = CrashFileSystem()
    index = OffsetIndex(fs, OFFSETS, BASE)
    index.append(BASE + 7, 4200)
    index.append(BASE + 300, 9000)
    assert fs.read_bytes(OFFSETS) == bytes.fromhex("00000007 00001068 0000012c 00002328")


def test_a_time_index_to_the_byte() -> None:
    fs = CrashFileSystem()
    index = TimeIndex(fs, TIMES, BASE)
    index.append(1_700_000_000_000, BASE + 7)
    index.append(1_700_000_000_000, BASE + 300)  # no newer: left out
    index.append(-1, BASE + 301)  # no timestamp
    index.append(1_700_000_000_001, BASE + 302)
    assert fs.read_bytes(TIMES) == bytes.fromhex(
        "0000018bcfe56800 00000007 0000018bcfe56801 0000012e"
    )


NUMBERS = st.sets(st.integers(1, 2**31 - 1), max_size=20).map(sorted)
ENTRIES = st.tuples(NUMBERS, NUMBERS).map(lambda pair: list(zip(*pair, strict=False)))


@given(entries=ENTRIES, zeros=st.sampled_from([0, 8, 800]))
def test_an_offset_index_reads_what_was_written_with_and_without_preallocation(
    entries: list[tuple[int, int]], zeros: int
) -> None:
    fs = CrashFileSystem()
    packed = b"".join(struct.pack(">ii", *entry) for entry in entries)
    fs.write_bytes(OFFSETS, packed + bytes(zeros))
    index = OffsetIndex(fs, OFFSETS, BASE)
    assert index.entries.size_bytes == len(packed)
    assert index.last() == ((BASE + entries[-1][0], entries[-1][1]) if entries else None)
    for probe in [0, 1, 2**31, *(offset for offset, _ in entries)]:
        for offset in (probe - 1, probe, probe + 1):
            below = [entry for entry in entries if entry[0] <= offset]
            assert index.lookup(BASE + offset) == (below[-1][1] if below else 0)
    assert index.entries.damage is None


@given(
    entries=st.dictionaries(st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1), max_size=20),
    zeros=st.sampled_from([0, 12, 1200]),
)
def test_a_time_index_reads_what_was_written(entries: dict[int, int], zeros: int) -> None:
    fs = CrashFileSystem()
    times, offsets = sorted(entries), sorted(entries.values())
    packed = b"".join(
        struct.pack(">qi", *entry) for entry in zip(times, offsets, strict=True)
    )
    fs.write_bytes(TIMES, packed + bytes(zeros))
    index = TimeIndex(fs, TIMES, BASE)
    assert index.entries.damage is None
    for time in times:
        below = [offset for known, offset in zip(times, offsets, strict=True) if known < time]
        assert index.lookup(time) == BASE + (below[-1] if below else 0)
    # An entry of zeros alone cannot be distinguished from preallocated space, and says as much.
    if times and (times[-1], offsets[-1]) != (0, 0):
        assert index.last() == (times[-1], BASE + offsets[-1])


@pytest.mark.parametrize(
    ("damaged", "good", "position"),
    [
        ("00000007 00000010 00000007 00000020", 1, 8),  # an offset again
        ("00000007 00000010 00000009 00000010", 1, 8),  # a position again
        ("80000007 00000010", 0, 0),  # below the base offset
        ("00000007 80000010", 0, 0),  # before the file
        ("00000007 00000010 000000", 1, 8),  # cut off, all zeros so far: no matter
        ("00000007 00000010 000001", 1, 8),
        ("00000007 00000010 00000000 00000000 00000009 00000030", 1, 8),  # a hole
    ],
)
def test_a_damaged_index_serves_up_to_the_damage(
    damaged: str, good: int, position: int
) -> None:
    fs = CrashFileSystem()
    fs.write_bytes(OFFSETS, bytes.fromhex(damaged))
    index = OffsetIndex(fs, OFFSETS, BASE)
    assert index.entries.size_bytes == good * 8
    damage = index.entries.damage
    assert damage is None or (damage.path, damage.position) == (OFFSETS, position)
    assert (damage is None) == (damaged == "00000007 00000010 000000")


def test_truncation_drops_entries_in_the_file_too() -> None:
    fs = CrashFileSystem()
    index = OffsetIndex(fs, OFFSETS, BASE)
    for at in range(1, 6):
        index.append(BASE + 10 * at, at)
    index.truncate(BASE + 30)
    assert index.last() == (BASE + 20, 2)
    assert fs.size(OFFSETS) == 16
    index.append(BASE + 30, 7)
    assert OffsetIndex(fs, OFFSETS, BASE).last() == (BASE + 30, 7)


def test_entries_follow_the_bytes_since_the_last_one() -> None:
    """LogSegment.append: more than index.interval.bytes since the last entry, that one's batch
    included; an entry has the batch's last offset, where it starts, and the largest timestamp."""
    partition = Partition(CrashFileSystem())
    log, clock = partition.log, partition.clock
    interval = log.config.index_interval_bytes
    offset_entries, time_entries = [], []
    since, largest, largest_at = 0, -1, 0
    for at in range(16):
        position = log.active.size_bytes
        timestamp = clock.now_ms() - (at % 3) * 1000
        done = partition.append([(b"k", bytes(at))] * 2, timestamp)
        if timestamp > largest:
            largest, largest_at = timestamp, done.last_offset
        if since > interval:
            offset_entries.append((done.last_offset, position))
            time_entries.append((largest, largest_at))
            since = 0
        since += log.active.size_bytes - position
        clock.advance(100)
    assert len(log.segments) == 1
    assert len(offset_entries) > 2
    segment = log.active
    index = partition.fs.read_bytes(segment.path(INDEX))
    assert index == b"".join(struct.pack(">ii", *entry) for entry in offset_entries)
    grown = [e for at, e in enumerate(time_entries) if at == 0 or e[0] > time_entries[at - 1][0]]
    times = partition.fs.read_bytes(segment.path(TIME_INDEX))
    assert times == b"".join(struct.pack(">qi", *entry) for entry in grown)


def test_a_sealed_segment_ends_with_its_largest_timestamp() -> None:
    """LogSegment.onBecomeInactiveSegment; Kafka's tools expect both files, however small."""
    partition = Partition(CrashFileSystem())
    sealed = partition.log.active
    partition.append([(b"k", b"v")], partition.clock.now_ms() + 500)
    done = partition.append([(b"k", b"v")] * 3, partition.clock.now_ms())
    partition.log.roll(partition.clock.now_ms())
    assert partition.fs.read_bytes(sealed.path(INDEX)) == b""
    newest = struct.pack(">qi", partition.clock.now_ms() + 500, 0)
    assert partition.fs.read_bytes(sealed.path(TIME_INDEX)) == newest
    active = partition.log.active
    assert active.base_offset == done.last_offset + 1
    sizes = [partition.fs.size(active.path(kind)) for kind in (LOG, INDEX, TIME_INDEX)]
    assert sizes == [0, 0, 0]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_preallocated_segment_is_as_large_as_it_may_grow_until_it_is_sealed(
    is_clean: bool,
) -> None:
    config = replace(SMALL, preallocate=True)
    partition = Partition(CrashFileSystem(), config=config)
    for at in range(30):
        partition.append([(b"k%d" % at, bytes(50))])
    expected = partition.batches()
    fs = partition.fs
    *sealed, active = partition.log.segments
    assert sealed
    assert [fs.size(one.path(LOG)) for one in sealed] == [one.size_bytes for one in sealed]
    assert fs.size(active.path(LOG)) == 2000 > active.size_bytes
    partition = partition.reopen() if is_clean else partition.next_life(fs.clone_after_kill())
    assert partition.batches() == expected
    assert partition.fs.size(active.path(LOG)) == partition.log.active.size_bytes
    partition.append([(b"k", b"v")])
    assert len(partition.batches()) == len(expected) + 1
