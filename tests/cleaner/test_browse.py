"""Reading a log backwards, against the plain reading of the whole log."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.cleaner.errors import CleaningAborted
from odradek.cleaner.proof.snapshot import take_snapshot
from odradek.cleaner.reading import browse as browsing
from odradek.cleaner.reading import excerpts, unpacked
from odradek.cleaner.reading.browse import (
    Found,
    LatestOnly,
    Limits,
    Matching,
    Newest,
    OfKey,
    browse,
)
from odradek.cleaner.reading.excerpts import Bounds, Cut
from odradek.cleaner.rules.key_tokens import token_of
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.compression import Codec
from odradek.storage.errors import CorruptFile
from odradek.storage.segment import INDEX, LOG
from tests.cleaner.excerpts import WHOLE, latest_of, record_of, with_headers
from tests.cleaner.histories import HISTORIES, write_all
from tests.cleaner.worlds import EAGER, World, pairs

SMALL = replace(EAGER, internal_segment_bytes=600, index_interval_bytes=64)


NEVER = b"never in any key or value"
MANY = 1 << 40


def look(
    world: World,
    newest: Newest | None = None,
    before_offset: int | None = None,
    records_max: int = 1_000_000,
    found_bytes_max: int = MANY,
    read_bytes_max: int = MANY,
    unpacked_bytes_max: int = MANY,
    decoded_max: int = 1_000_000,
    bounds: Bounds = WHOLE,
) -> Found:
    return browse(
        take_snapshot(world.log),
        before_offset=before_offset,
        newest=newest or Matching(),
        limits=Limits(
            records_max, found_bytes_max, read_bytes_max, unpacked_bytes_max, decoded_max
        ),
        bounds=bounds,
        before_io=lambda size: None,
        load_kernels=lambda: None,
    )


def look_whole(world: World, newest: Newest, **limits: int) -> list[Record]:
    return [record_of(one) for one in look(world, newest, **limits).records]


def visible(world: World) -> list[Record]:
    """Return what a reader of committed records sees, oldest first."""
    snapshot = take_snapshot(world.log)
    return [
        with_headers(seen.record)
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
    st.integers(1, 3),
)
def test_pages_put_together_are_the_log_backwards(
    steps: list,  # type: ignore[type-arg]
    chunk_bytes: int,
    records_max: int,
    bytes_max: int,
    before_offset: int | None,
    decoded_max: int,
    block_records: int,
) -> None:
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path,
        mock.patch.object(browsing, "_CHUNK_BYTES", chunk_bytes),
        mock.patch.object(unpacked, "BLOCK_RECORDS", block_records),
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
                read_bytes_max=bytes_max,
                unpacked_bytes_max=3 * bytes_max,
                found_bytes_max=2 * bytes_max,
                decoded_max=decoded_max,
            )
            found += map(record_of, page.records)
            assert len(page.records) <= records_max
            if page.before_offset is None:
                break
            assert at is None or page.before_offset < at
            at = page.before_offset
        below = [r for r in records if before_offset is None or r.offset < before_offset]
        assert found == below[::-1]

        last = {record.key: record for record in records if record.key is not None}
        latest = look_whole(world, LatestOnly())
        expected = sorted(last.values(), key=lambda record: -record.offset)
        assert latest == expected
        some = look_whole(world, LatestOnly(), records_max=records_max)
        assert some == expected[:records_max]
        for search in (b"7", b"seven", NEVER):
            matching = [
                r for r in records if search in (r.key or b"") or search in (r.value or b"")
            ]
            assert look_whole(world, Matching(search)) == matching[::-1]
            by_key = [one for one in expected if search in (one.key or b"")]
            assert look_whole(world, LatestOnly(search)) == by_key
        for key in (b"", b"7", NEVER, *last):
            assert look_whole(world, OfKey(key)) == [r for r in records if r.key == key][::-1]


def test_no_more_is_read_than_asked_for(tmp_path: Path) -> None:
    world = World(tmp_path, SMALL)
    for at in range(200):
        world.append(pairs(f"k{at}:{'v' * 20}"))
    with mock.patch.object(browsing, "_CHUNK_BYTES", 256):
        some = look(world, records_max=3)
        assert [record_of(one).key for one in some.records] == [b"k199", b"k198", b"k197"]
        assert some.read_bytes < 1024 < world.log.size_bytes
        bounded = look(world, Matching(NEVER), read_bytes_max=2048)
    assert bounded.records == [] and bounded.before_offset is not None
    assert 2048 <= bounded.read_bytes < world.log.size_bytes


LOOKS: dict[str, Callable[[World], object]] = {
    "the newest": lambda world: look(world, records_max=50),
    "the latest of each key": lambda world: look(world, LatestOnly(), records_max=50),
    "none": lambda world: look(world, LatestOnly(NEVER)),
    "one key": lambda world: latest_of(world, b"9"),
    "a time": lambda world: world.log.offset_for_timestamp(9_000),
    "all seen": lambda world: all(take_snapshot(world.log).seen(lambda size: None)),
}


@cache
def batch_of_many_records() -> bytes:
    records = [Record(at, at, b"%d" % at, b"") for at in range(10_000)]
    return encode_batch(records, codec=Codec.ZSTD)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOKS)
def test_a_small_batch_of_many_records_takes_little_memory(tmp_path: Path, name: str) -> None:
    world = World(tmp_path, SMALL)
    world.log.config = replace(world.log.config, internal_segment_bytes=1 << 20)
    world.append_batch(batch_of_many_records())
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
    assert [record_of(one).key for one in page.records] == [b"b2", b"a2", b"b1", b"a1"]
    assert page.before_offset == 2
    page = look(world, before_offset=2, decoded_max=1)
    assert [record_of(one).key for one in page.records] == [b"b0", b"a0"]
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
        assert look_whole(world, Matching()) == expected


def test_only_a_look_that_reaches_damage_reports_it(tmp_path: Path) -> None:
    world = World(tmp_path, SMALL)
    world.append(pairs("a:1 b:1"))
    world.roll()
    world.append(pairs("c:1 d:1"))
    path = world.log.segments[0].path(LOG)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert [record_of(one).key for one in look(world, records_max=2).records] == [b"d", b"c"]
    with pytest.raises(CorruptFile):
        look(world)


def put_large(world: World, records: list[Record], codec: Codec = Codec.ZSTD) -> None:
    world.log.config = replace(world.log.config, internal_segment_bytes=1 << 26)
    world.append_batch(encode_batch(records, codec=codec, base_offset=records[0].offset))


def test_of_a_large_record_the_beginning_is_kept(tmp_path: Path) -> None:
    world = World(tmp_path, SMALL)
    headers = tuple((f"h{at}", b"w" * 9 if at else None) for at in range(50))
    put_large(world, [Record(0, 1, b"k" * 100, b"v" * 1000, headers)])
    (one,) = look(world, bounds=Bounds(10, 20, 3, 5)).records
    assert (one.key, one.value) == (Cut(b"k" * 10, 100), Cut(b"v" * 20, 1000))
    assert one.key is not None and one.key.is_cut
    cut = Cut(b"w" * 5, 9)
    assert one.headers == ((Cut(b"h0", 2), None), (Cut(b"h1", 2), cut), (Cut(b"h2", 2), cut))
    assert one.headers_left_out == 47


def test_a_page_ends_where_it_holds_enough_bytes(tmp_path: Path) -> None:
    world = World(tmp_path, SMALL)
    put_large(world, [Record(at, 1, b"k", b"v" * 99) for at in range(10)])
    page = look(world, found_bytes_max=250)
    assert [one.offset for one in page.records] == [9, 8, 7] and page.before_offset == 7


def test_a_page_ends_where_enough_was_unpacked(tmp_path: Path) -> None:
    world = World(tmp_path, SMALL)
    for at in range(3):
        put_large(world, [Record(at, 1, b"k", bytes(1 << 20))])
    page = look(world, Matching(NEVER), unpacked_bytes_max=1 << 21)
    assert page.records == [] and page.before_offset == 1
    assert look(world, Matching(NEVER), before_offset=1).before_offset is None


def test_a_batch_of_many_records_is_gone_through_page_by_page(tmp_path: Path) -> None:
    world = World(tmp_path, SMALL)
    count = 20_000
    put_large(world, [Record(at, at, b"%d" % at, b"") for at in range(count)])
    offsets: list[int] = []
    before: int | None = None
    while True:
        page = look(world, Matching(b"7"), before_offset=before, decoded_max=1)
        offsets += [one.offset for one in page.records]
        assert len(page.records) <= unpacked.BLOCK_RECORDS
        if page.before_offset is None:
            break
        before = page.before_offset
    assert offsets == [at for at in reversed(range(count)) if b"7" in b"%d" % at]


def test_long_keys_are_distinguished(tmp_path: Path) -> None:
    world = World(tmp_path, SMALL)
    keys = [b"k" * 255, b"k" * 256, b"k" * 257, b"k" * 255 + b"l", token_of(b"k" * 256)]
    assert len({token_of(key) for key in keys}) == len(keys)
    for _ in range(2):
        first = world.log.log_end_offset
        put_large(world, [Record(first + at, at, key, b"") for at, key in enumerate(keys)])
    found = look_whole(world, LatestOnly())
    assert [one.key for one in found] == keys[::-1]


def test_a_look_can_be_stopped_within_a_batch(tmp_path: Path) -> None:
    world = World(tmp_path, SMALL)
    put_large(world, [Record(at, at, b"", b"") for at in range(10_000)])
    calls: list[int] = []

    def stop(size: int) -> None:
        calls.append(size)
        if size == 0 and calls.count(0) == 2:
            raise CleaningAborted("it was aborted")

    with pytest.raises(CleaningAborted):
        browse(
            take_snapshot(world.log),
            before_offset=None,
            newest=Matching(NEVER),
            limits=Limits(10, MANY, MANY, MANY, MANY),
            bounds=WHOLE,
            before_io=stop,
            load_kernels=lambda: None,
        )


def test_looking_for_bytes_finds_them_wherever_they_lie() -> None:
    section = bytes(range(256)) * 10
    with mock.patch.object(excerpts, "_WINDOW_BYTES", 7):
        for start in range(0, 40, 3):
            for length in (0, 1, 5, 20, 300):
                wanted = section[1000 : 1000 + length]
                for end in (start, 990, 1005, 1300, len(section)):
                    expected = section.find(wanted, start, end) >= 0
                    assert excerpts.holds(section, wanted, start, end) == expected
