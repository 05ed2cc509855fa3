"""Reading a log backwards, against the plain reading of the whole log."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleaner import browse as browsing
from cleaner.browse import Found, LatestOnly, Matching, Newest, browse
from cleaner.lookup import find_latest
from cleaner.snapshot import take_snapshot
from protocol.batches import Record, encode_batch
from protocol.compression import Codec
from storage.errors import CorruptFile
from storage.segment import INDEX, LOG
from tests.cleaner.histories import HISTORIES, write_all
from tests.cleaner.worlds import EAGER, World, pairs

SMALL = replace(EAGER, internal_segment_bytes=600, index_interval_bytes=64)


ALL = Matching(lambda record: True)


def look(
    world: World,
    newest: Newest = ALL,
    before_offset: int | None = None,
    records_max: int = 1_000_000,
    bytes_max: int = 1 << 40,
    decoded_max: int = 1_000_000,
) -> Found:
    return browse(
        take_snapshot(world.log),
        before_offset=before_offset,
        newest=newest,
        records_max=records_max,
        bytes_max=bytes_max,
        decoded_max=decoded_max,
        before_io=lambda size: None,
    )


def visible(world: World) -> list[Record]:
    """Return what a reader of committed records sees, oldest first."""
    snapshot = take_snapshot(world.log)
    return [
        seen.record
        for seen in snapshot.seen(lambda size: None)
        if seen.is_committed and snapshot.start_offset <= seen.record.offset
        and seen.record.offset < snapshot.stable_offset
    ]  # fmt: skip


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    HISTORIES,
    st.integers(1, 400),
    st.integers(1, 7),
    st.integers(1, 500),
    st.integers(0, 60) | st.none(),
    st.integers(1, 30),
)
def test_pages_put_together_are_the_log_backwards(
    steps: list,  # type: ignore[type-arg]
    chunk_bytes: int,
    records_max: int,
    bytes_max: int,
    before_offset: int | None,
    decoded_max: int,
) -> None:
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path,
        mock.patch.object(browsing, "_CHUNK_BYTES", chunk_bytes),
    ):
        world = World(Path(path), SMALL)
        write_all(world, steps)
        records = visible(world)
        found, at = list[Record](), before_offset
        while True:
            page = look(
                world,
                before_offset=at,
                records_max=records_max,
                bytes_max=bytes_max,
                decoded_max=decoded_max,
            )
            found += page.records
            assert len(page.records) <= records_max
            if page.before_offset is None:
                break
            assert at is None or page.before_offset < at
            at = page.before_offset
        below = [r for r in records if before_offset is None or r.offset < before_offset]
        assert found == below[::-1]

        last = {record.key: record for record in records if record.key is not None}
        latest = look(world, LatestOnly(lambda key: True)).records
        expected = sorted(last.values(), key=lambda record: -record.offset)
        assert latest == expected
        some = look(world, LatestOnly(lambda key: True), records_max=records_max).records
        assert some == expected[:records_max]


def test_no_more_is_read_than_asked_for(tmp_path: Path) -> None:
    world = World(tmp_path, SMALL)
    for at in range(200):
        world.append(pairs(f"k{at}:{'v' * 20}"))
    with mock.patch.object(browsing, "_CHUNK_BYTES", 256):
        some = look(world, records_max=3)
        assert [record.key for record in some.records] == [b"k199", b"k198", b"k197"]
        assert some.read_bytes < 1024 < world.log.size_bytes
        bounded = look(world, Matching(lambda record: False), bytes_max=2048)
    assert bounded.records == [] and bounded.before_offset is not None
    assert 2048 <= bounded.read_bytes < world.log.size_bytes


LOOKS: dict[str, Callable[[World], object]] = {
    "the newest": lambda world: look(world, records_max=50),
    "the latest of each key": lambda world: look(world, LatestOnly(bool), records_max=50),
    "none": lambda world: look(world, LatestOnly(lambda key: False)),
    "one key": lambda world: find_latest(
        take_snapshot(world.log), 0, b"9", is_committed=True, before_io=lambda size: None
    ),
    "a time": lambda world: world.log.offset_for_timestamp(9_000),
    "all seen": lambda world: all(take_snapshot(world.log).seen(lambda size: None)),
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_small_batch_of_many_records_takes_little_memory(tmp_path: Path, name: str) -> None:
    world = World(tmp_path, SMALL)
    records = [Record(at, at, b"%d" % at, b"") for at in range(10_000)]
    world.log.config = replace(world.log.config, internal_segment_bytes=1 << 20)
    world.append_batch(encode_batch(records, codec=Codec.ZSTD))
    del records
    LOOKS[name](world)  # what is imported late
    tracemalloc.start()
    LOOKS[name](world)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # All records take 3 MB; unpacked they take 150 kB, twice while they are unpacked.
    assert peak < 1_000_000


def test_so_many_records_are_decoded_and_the_next_page_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path, SMALL)
    for at in range(3):
        world.append(pairs(f"a{at}:1 b{at}:1"))
    page = look(world, decoded_max=3)
    assert [record.key for record in page.records] == [b"b2", b"a2", b"b1", b"a1"]
    assert page.before_offset == 2
    page = look(world, before_offset=2, decoded_max=1)
    assert [record.key for record in page.records] == [b"b0", b"a0"]
    assert page.before_offset is None


def test_without_an_index_a_segment_is_read_whole(tmp_path: Path) -> None:
    world = World(tmp_path, SMALL)
    for at in range(60):
        world.append(pairs(f"k{at}:v"))
    expected = visible(world)[::-1]
    snapshot = take_snapshot(world.log)
    for held in snapshot.segments:
        held.segment.path(INDEX).unlink(missing_ok=True)
    with mock.patch.object(browsing, "_CHUNK_BYTES", 64):
        assert look(world).records == expected


def test_damage_is_told_by_those_who_come_to_it(tmp_path: Path) -> None:
    world = World(tmp_path, SMALL)
    world.append(pairs("a:1 b:1"))
    world.roll()
    world.append(pairs("c:1 d:1"))
    path = world.log.segments[0].path(LOG)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert [record.key for record in look(world, records_max=2).records] == [b"d", b"c"]
    with pytest.raises(CorruptFile):
        look(world)
