"""The latest record of a key, against the plain reading of the whole log."""

from __future__ import annotations

import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.cleaner.errors import CleaningAborted
from odradek.cleaner.passes.throttle import Pace
from odradek.cleaner.proof.snapshot import take_snapshot
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.compression import Codec
from odradek.storage.errors import CorruptFile
from odradek.storage.segment import LOG
from tests.cleaner.excerpts import latest_of, record_of, with_headers
from tests.cleaner.histories import HISTORIES, write_all
from tests.cleaner.test_old_formats import fill
from tests.cleaner.worlds import EAGER, World, pairs
from tests.storage.old_logs import write


def latest(world: World, key: bytes, *, is_committed: bool = True) -> Record | None:
    found = latest_of(world, key, is_committed=is_committed)
    return None if found is None else record_of(found.record)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(HISTORIES, st.booleans())
def test_it_is_what_a_reader_of_the_whole_log_ends_with(steps: list, is_committed: bool) -> None:  # type: ignore[type-arg]
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        world = World(Path(path), replace(EAGER, internal_segment_bytes=600))
        write_all(world, steps)
        snapshot = take_snapshot(world.log)
        expected: dict[bytes, Record] = {}
        for seen in snapshot.seen(lambda size: None):
            key, offset = seen.record.key, seen.record.offset
            if is_committed and not (seen.is_committed and offset < snapshot.stable_offset):
                continue
            if key is not None:
                expected[key] = with_headers(seen.record)
        for key in (b"", b"a", b"seven-7", b"eight-88", b"x" * 70, b"\0\0\0\0", b"never"):
            assert latest(world, key, is_committed=is_committed) == expected.get(key)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)
def test_it_is_found_in_any_codec(world: World, codec: Codec) -> None:
    world.append(pairs("a:1 b:1 a:2 ab:3"), codec=codec)
    found = latest(world, b"a")
    assert found is not None
    assert (found.offset, found.value, found.headers) == (2, b"2", (("h", b"a"),))
    assert latest(world, b"h") is None  # in the batch's bytes, but no key


def test_aborted_and_undecided_records_are_left_out_unless_asked_for(world: World) -> None:
    world.append(pairs("a:1"))
    world.append(pairs("a:2"), producer=(7, 0, 0), transactional=True)
    found = latest(world, b"a")
    assert found is not None and found.value == b"1"
    found = latest(world, b"a", is_committed=False)
    assert found is not None and found.value == b"2"


def test_records_before_the_log_start_are_not_found(world: World) -> None:
    world.append(pairs("a:1 b:1"))
    world.log.advance_start_offset(1)
    assert latest(world, b"a") is None
    assert latest(world, b"b") is not None


def test_old_segments_are_not_read_when_a_newer_one_has_the_key(world: World) -> None:
    world.append(pairs("a:1 b:1"))
    world.roll()
    world.append(pairs("a:2"))
    path = world.log.segments[0].path(LOG)
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    found = latest(world, b"a")
    assert found is not None and found.value == b"2"
    with pytest.raises(CorruptFile):
        latest(world, b"b")


@pytest.mark.parametrize("bit", range(0, 63, 5))
def test_an_offset_that_has_flipped_hides_no_later_record(world: World, bit: int) -> None:
    world.append(pairs("a:1"))
    world.append(pairs("a:2"))
    last = world.append(pairs("a:3"))
    world.roll()
    path = world.log.segments[0].path(LOG)
    data = bytearray(path.read_bytes())
    start = len(data) - last.header.size_bytes  # its base offset, which no CRC covers
    data[start + 7 - bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    with pytest.raises(CorruptFile):
        latest(world, b"a")


def test_it_is_found_among_messages_of_old_formats(world: World) -> None:
    fill(
        world,
        [
            write(0, Codec.NONE, [Record(0, 5, b"k", b"v")]),
            write(1, Codec.GZIP, [Record(1, 6, b"k", b"w"), Record(2, 6, b"l", b"w")]),
        ],
    )
    found = latest(world, b"k")
    assert found is not None and (found.offset, found.value) == (1, b"w")


def test_a_lookup_can_be_stopped(world: World) -> None:
    world.append(pairs("a:1"))
    pace = Pace(lambda size: 0.0, threading.Event(), lambda: False)
    pace.stop()
    with pytest.raises(CleaningAborted):
        latest_of(world, b"a", before_io=pace.before_io)


@pytest.mark.parametrize("count", [100, 60_000])
def test_it_is_found_in_a_batch_of_many_records(world: World, count: int) -> None:
    records = [Record(at, at, b"%d" % (at % 50), b"%d" % at) for at in range(count)]
    world.append_batch(encode_batch(records, codec=Codec.ZSTD))
    found = latest(world, b"7")
    assert found is not None and found.offset == count - 43
    assert latest(world, b"%d" % (count - 1)) is None  # in the batch's bytes, but no key
