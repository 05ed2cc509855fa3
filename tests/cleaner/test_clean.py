"""Cleaning real logs: tombstones over time, lags, full maps, large batches, damage, durability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.cleaner.errors import CleaningAborted
from odradek.cleaner.passes.clean import clean
from odradek.cleaner.passes.stats import report
from odradek.cleaner.rules.job import CleanerSettings, make_job
from odradek.cleaner.rules.policy import Reason
from odradek.cleaner.runtime.progress import find_candidate
from odradek.protocol.batches import batch_crc
from odradek.protocol.compression import Codec
from odradek.storage.errors import CorruptFile, StaleSegments
from odradek.storage.files import Buffer
from odradek.storage.metering import StoreUse
from odradek.storage.real_files import RealFile
from odradek.storage.segment import CLEANED, INDEX, LOG, TIME_INDEX, Segment
from tests.cleaner.once import SETTINGS, clean_once
from tests.cleaner.worlds import EAGER, FS, World, pairs


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def files(world: World) -> list[str]:
    return [p.name for p in sorted(world.log.directory.iterdir()) if ".deleted" not in p.suffixes]


# --- tombstones -------------------------------------------------------------------------------


def dirty_something(world: World) -> None:
    """Make the log dirty, as a cleaning needs it to be."""
    world.append(pairs("other:1"))
    world.roll()


def test_a_tombstone_outlives_its_values_by_delete_retention(world: World) -> None:
    world.append(pairs("a:1 b:1"))
    world.append(pairs("a:-"))
    world.roll()
    world.clean()
    assert world.values() == ["b:1", "a:-"]  # the values go at once, the tombstone is stamped
    stamped = world.batches()[1].header
    assert stamped.has_delete_horizon
    assert stamped.base_timestamp == world.now_ms + EAGER.delete_retention_ms

    world.now_ms += EAGER.delete_retention_ms - 1
    dirty_something(world)
    world.clean()
    assert "a:-" in world.values()
    assert world.batches()[1].header.base_timestamp == stamped.base_timestamp  # stamped once

    world.now_ms += 1
    dirty_something(world)
    result = world.clean()
    assert result is not None and result.expired_tombstones == 1
    assert world.values() == ["b:1", "other:1"]


def test_a_horizon_moves_no_timestamp(world: World) -> None:
    world.append(pairs("a:1 b:- c:1"), timestamps=[5, 900, 7])
    world.append(pairs("d:- e:-"), timestamps=[50, 60], log_append_time=True)
    before = world.records()
    world.roll()
    world.clean()
    assert all(batch.header.has_delete_horizon for batch in world.batches())
    assert world.records() == before


def test_with_no_retention_a_tombstone_goes_at_the_second_cleaning(tmp_path: Path) -> None:
    world = World(tmp_path, replace(EAGER, delete_retention_ms=0))
    world.append(pairs("a:1 a:-"))
    world.roll()
    world.clean()
    assert world.values() == ["a:-"]
    dirty_something(world)
    world.clean()
    assert world.values() == ["other:1"]


def test_the_largest_retention_keeps_tombstones_for_ever(tmp_path: Path) -> None:
    world = World(tmp_path, replace(EAGER, delete_retention_ms=2**63 - 1))
    world.append(pairs("a:-"))
    world.roll()
    world.clean()
    world.now_ms = 2**53
    dirty_something(world)
    world.clean()
    assert world.values() == ["a:-", "other:1"]


# --- what must stay ---------------------------------------------------------------------------


def test_the_log_keeps_its_end_when_the_last_records_go(world: World) -> None:
    world.append(pairs("a:1"))
    world.append([(None, b"no key")])  # from before the topic was compacted
    world.roll()
    result = world.clean()
    assert result is not None and result.invalid_records == 1
    last = world.batches()[-1]
    assert (last.header.count, last.header.last_offset) == (0, 1)
    world.append(pairs("b:1"))
    assert world.records()[-1].offset == 2


def test_an_active_producers_last_sequence_stays(world: World) -> None:
    world.append(pairs("a:1 a:2"), producer=(5, 0, 0))
    world.append(pairs("a:3"), producer=(5, 0, 2))
    world.append(pairs("a:4"))
    world.append(pairs("z:1"))
    world.roll()
    world.clean()
    left = {b.header.producer_id: b.header for b in world.batches()}
    assert (left[5].count, left[5].base_sequence, left[5].last_offset) == (0, 2, 2)
    world.log.producers.clear()
    dirty_something(world)
    world.clean()
    assert all(b.header.producer_id == -1 for b in world.batches())


def test_a_batch_that_loses_records_keeps_all_else(world: World) -> None:
    original = world.append(
        pairs("a:1 b:1 c:1"), codec=Codec.ZSTD, producer=(5, 3, 0), timestamps=[900, 500, 700]
    )
    world.append(pairs("a:2 c:2"))
    world.roll()
    world.clean()
    batch = world.batches()[0]
    assert batch.records == (original.records[1],)
    assert batch.facts == replace(
        original.facts, count=1, base_timestamp=500, max_timestamp=500
    )


def test_untouched_batches_are_copied_byte_for_byte(world: World) -> None:
    for codec in Codec:
        world.append(pairs(f"{codec.label}:1 more-{codec.label}:2"), codec=codec)
    world.roll()
    before = world.log.segments[0].log.read(0, world.log.segments[0].size_bytes)
    world.clean()
    assert world.log.segments[0].log.read(0, world.log.segments[0].size_bytes) == before


def test_lag_keeps_young_segments_whole(tmp_path: Path) -> None:
    world = World(tmp_path, replace(EAGER, min_compaction_lag_ms=1000))
    for value in ("1", "2", "3"):
        world.append(pairs(f"a:{value}"))
        world.roll()
        world.now_ms += 600
    world.now_ms -= 600  # the segments are 1200, 600 and 0 ms old
    result = world.clean()
    assert result is not None and result.end_offset == 1
    assert world.values() == ["a:1", "a:2", "a:3"]
    world.now_ms += 1000
    world.clean()
    assert world.values() == ["a:3"]


def test_segments_are_merged_and_the_indexes_found_right(tmp_path: Path) -> None:
    world = World(tmp_path, replace(EAGER, index_interval_bytes=200))
    for at in range(300):
        world.append([(b"%d" % (at % 40), b"x" * 50)])
        if at % 7 == 0:
            world.roll()
    world.roll()
    modified = world.log.segments[-2].modified_ms
    world.clean()
    assert [s.base_offset for s in world.log.segments] == [0, 300]
    first = world.log.segments[0]
    assert first.modified_ms == modified
    assert first.offset_index.last() is not None
    for record in world.records():
        found = world.log.read(record.offset, 1, at_least_one=True)
        assert found is not None
        assert first.locate(record.offset) == (found.position, found.size)
    assert first.max_timestamp == max(r.timestamp for r in world.records())
    assert first.time_index.last() == (first.max_timestamp, first.offset_of_max_timestamp)


# --- limits -----------------------------------------------------------------------------------


def settings(map_slots: int = 10_000, chunk_bytes: int = 1 << 20) -> CleanerSettings:
    return CleanerSettings(16 * map_slots, 0.9, chunk_bytes, 0, must_verify=False)


def test_a_full_map_ends_the_run_inside_a_segment_and_the_next_goes_on(world: World) -> None:
    keys = [b"%d" % (at % 150) for at in range(300)]
    for at in range(0, 300, 5):
        world.append([(key, b"%d" % at) for key in keys[at : at + 5]])
    world.roll()
    ends = []
    for _ in range(10):
        result = world.clean(settings(map_slots=64))
        if result is None:
            break
        ends.append((result.first_dirty_offset, result.end_offset, result.is_partial))
        assert world.checkpoint == result.end_offset
    # 57 keys fit into 64 slots, and a batch is wholly in the map or not counted.
    assert ends[0] == (0, 55, True)
    assert [start for start, _, _ in ends[1:]] == [end for _, end, _ in ends[:-1]]
    assert ends[-1][1:] == (300, False)
    assert sorted(world.values(), key=lambda v: int(v.split(":")[0])) == [
        f"{key}:{150 + key // 5 * 5}" for key in range(150)
    ]


def test_segments_after_the_end_of_a_partial_run_are_left_alone(world: World) -> None:
    for at in range(0, 200, 20):
        world.append([(b"%d" % (at + more), b"v") for more in range(20)])
        world.roll()
    untouched = world.log.segments[3:]
    result = world.clean(settings(map_slots=64))
    # 57 keys: two segments are in the map, the third partly.
    assert result is not None
    assert (result.end_offset, result.segments_read) == (40, 2)
    assert world.log.segments[-len(untouched) :] == untouched
    assert len(world.records()) == 200


def test_offsets_missing_before_the_next_segment_are_clean_too(world: World) -> None:
    # Otherwise the log would stay dirty, and be cleaned over and over (KAFKA-8764).
    world.append(pairs("a:1 a:2"))
    world.log.log_end_offset += 10
    world.roll()
    result = world.clean()
    assert result is not None and result.end_offset == 12
    assert world.clean() is None


def test_a_batch_of_more_keys_than_the_map_may_hold_is_cleaned_all_the_same(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.append([(b"%d" % at, b"1") for at in range(500)])
    world.append([(b"%d" % at, b"2") for at in range(500)])
    world.roll()
    for _ in range(3):
        world.clean(settings(map_slots=64))
    assert "log.cleaner.dedupe.buffer.size" in caplog.text
    assert world.checkpoint == 1000
    assert {record.value for record in world.records()} == {b"2"}


def test_offsets_without_records_take_no_memory(world: World) -> None:
    world.append(pairs("a:1"))
    world.append(pairs("b:1"), gap=10**7)
    world.roll()
    result = world.clean()
    assert result is not None
    assert result.map_bytes < 10_000


def test_a_batch_larger_than_the_buffer_is_read_whole(world: World) -> None:
    world.append([(b"a", b"x" * 50_000)])
    world.append([(b"b", b"y" * 50_000), (b"a", b"z")], codec=Codec.LZ4)
    world.append(pairs("b:2"))
    world.roll()
    world.clean(settings(chunk_bytes=1000))
    assert world.values() == ["a:z", "b:2"]


def test_decompression_is_bounded(tmp_path: Path) -> None:
    world = World(tmp_path, replace(EAGER, max_decompressed_message_bytes=10_000))
    world.append([(b"a", b"\0" * 20_000)], codec=Codec.ZSTD)
    world.roll()
    with pytest.raises(CorruptFile, match="10000"):
        world.clean()


# --- damage, aborts, refusals -----------------------------------------------------------------


def damage(segment: Segment, position: int) -> None:
    byte = segment.log.read(position, 1)
    FS.open(segment.path(LOG), write=True).append(position, [bytes([byte[0] ^ 0xFF])])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_damage_is_named_by_file_and_position_and_changes_nothing(
    world: World, codec: Codec
) -> None:
    world.append(pairs("a:1"))
    world.append(pairs("a:2 b:2"), codec=codec)
    world.roll()
    before = files(world)
    segment = world.log.segments[0]
    second = next(position for position, header, _ in segment.batches() if header.base_offset)
    damage(segment, second + 70)
    with pytest.raises(CorruptFile) as caught:
        world.clean()
    assert caught.value.path == segment.path(LOG)
    assert caught.value.position == second
    assert "CRC" in str(caught.value) and "after offset 0" in str(caught.value)
    assert files(world) == before
    assert world.checkpoint is None


@pytest.mark.parametrize(
    ("position", "value", "cause"),
    [
        (57, (5).to_bytes(4, "big"), "malformed record"),  # more records than there are
        (57, (1).to_bytes(4, "big"), "malformed record"),  # fewer
        (57, (2**31 - 1).to_bytes(4, "big"), "malformed record"),
        (61, b"\x7f", "malformed record"),  # a record that does not fit
        (16, b"\x03", "magic"),
        (16, b"\x01", "message"),  # an old format, which has another layout
    ],
)
@pytest.mark.parametrize("dirty", [True, False])
def test_a_lie_with_a_right_crc_is_damage_too(
    world: World, position: int, value: bytes, cause: str, dirty: bool
) -> None:
    world.append(pairs("a:1 a:2"))
    world.roll()
    world.append(pairs("b:1"))
    world.roll()
    if not dirty:
        world.directory.cleaner_offsets["prices", 0] = 2
    segment = world.log.segments[0]
    lie = bytearray(segment.log.read(0, segment.size_bytes))
    lie[position : position + len(value)] = value
    lie[17:21] = batch_crc(lie, 0, len(lie)).to_bytes(4, "big")
    FS.open(segment.path(LOG), write=True).append(0, [lie])
    with pytest.raises(CorruptFile, match=cause) as caught:
        world.clean()
    assert (caught.value.path, caught.value.position) == (segment.path(LOG), 0)


def test_a_torn_segment_is_damage(world: World) -> None:
    world.append(pairs("a:1"))
    world.append(pairs("a:2"))
    world.roll()
    segment = world.log.segments[0]
    segment.log.truncate(segment.size_bytes - 5)
    with pytest.raises(CorruptFile, match="past the end"):
        world.clean()


def test_an_abort_at_any_moment_leaves_nothing_behind(world: World) -> None:
    for _ in range(20):
        world.append(pairs("a:1 b:2"))
    world.roll()
    before, aborts = files(world), 0
    while True:
        left = aborts

        def abort_after_some(size: int) -> None:
            nonlocal left
            if left == 0:
                raise CleaningAborted("stop")
            left -= 1

        try:
            clean_once(
                world.log, world.directory, world.now_ms, fs=FS,
                settings=settings(chunk_bytes=200), before_io=abort_after_some,
            )  # fmt: skip
        except CleaningAborted:
            assert files(world) == before
            aborts += 1
        else:
            break
    assert aborts > 15
    assert world.values() == ["a:1", "b:2"]


def test_a_log_trimmed_meanwhile_refuses_the_outcome(world: World) -> None:
    for value in ("1", "2", "3"):
        world.append(pairs(f"a:{value}"))
        world.roll()
    candidate = find_candidate(world.log, world.directory, world.now_ms)
    assert candidate is not None
    job = make_job(world.log, candidate.dirty, SETTINGS, world.now_ms, Reason.DIRTY)
    world.log.delete_segments(1, world.now_ms)
    left = world.log.segments

    def propose(old: Sequence[Segment], new: Sequence[Segment]) -> None:
        world.log.replace_segments(old, new, world.now_ms)

    with pytest.raises(StaleSegments):
        clean(
            job, fs=FS, random_below=lambda n: n // 3, clock_ms=lambda: 0,
            before_io=lambda size: None, propose=propose,
        )  # fmt: skip
    assert world.log.segments == left
    assert not [name for name in files(world) if name.endswith(CLEANED)]


class RecordingFile:
    """A file that notes when it is written and synced."""

    def __init__(self, file: RealFile, events: list[tuple[str, str]]) -> None:
        self._file, self._events = file, events
        self.path = file.path

    def size(self) -> int:
        return self._file.size()

    def append(self, position: int, buffers: Sequence[Buffer]) -> int:
        self._events.append(("write", self.path.name))
        return self._file.append(position, buffers)

    def read(self, position: int, size: int) -> bytes:
        return self._file.read(position, size)

    def read_cached(self, position: int, size: int) -> bytes | bytearray | None:
        return self._file.read_cached(position, size)

    def truncate(self, size: int) -> None:
        self._events.append(("write", self.path.name))
        self._file.truncate(size)

    def sync(self) -> None:
        self._events.append(("sync", self.path.name))
        self._file.sync()

    def opened(self) -> None:
        """Let nobody sync it but by sync()."""


def test_everything_is_on_the_disk_before_it_is_proposed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(50):
        world.append([(b"%d" % (at % 20), b"x" * 200)])
    world.roll()
    events: list[tuple[str, str]] = []
    opened = FS.open

    def open_recording(path: Path, *, write: bool = False) -> RecordingFile:
        return RecordingFile(opened(path, write=write), events)

    monkeypatch.setattr(FS, "open", open_recording)
    candidate = find_candidate(world.log, world.directory, world.now_ms)
    assert candidate is not None

    def propose(old: Sequence[Segment], new: Sequence[Segment]) -> None:
        for kind in (LOG, INDEX, TIME_INDEX):
            name = new[0].path(kind).name
            last = [what for what, which in events if which == name]
            assert last and last[-1] == "sync", name
        raise StaleSegments("seen enough")

    with pytest.raises(StaleSegments):
        clean(
            make_job(world.log, candidate.dirty, SETTINGS, world.now_ms, Reason.DIRTY),
            fs=FS, random_below=lambda n: n // 3, clock_ms=lambda: 0,
            before_io=lambda size: None, propose=propose,
        )  # fmt: skip


def test_a_run_is_reported_in_kafkas_words(world: World) -> None:
    world.append(pairs("a:1 a:2 b:1"))
    world.roll()
    result = world.clean()
    assert result is not None
    lines = report(result, 3).splitlines()
    assert lines[0] == "Log cleaner thread 3 cleaned log prices-0 (dirty section = [0, 3])"
    assert lines[5] == "\tStart size: 0.0 MB (3 messages)"
    assert lines[6] == "\tEnd size: 0.0 MB (2 messages)"
    assert "33.3% fewer messages" in lines[7]
    assert "Object store" not in "".join(lines)
    shared = replace(result, store=StoreUse(2, 3, 1_500_000, 2 << 20))
    assert report(shared, 3).splitlines()[-1] == (
        "\tObject store: 2 PUTs with 1.4 MB, 3 GETs with 2.0 MB"
    )


def test_an_impossible_checkpoint_is_repaired_and_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.append(pairs("a:1 a:2"))
    world.roll()
    world.directory.cleaner_offsets["prices", 0] = 1000
    world.clean()
    assert "lies beyond the log end offset" in caplog.text
    assert world.values() == ["a:2"]
    assert world.checkpoint == 2
