"""The problems and promises of five articles about log compaction, each held by a test.

    Heroku      Pulling the Thread on Kafka's Compacted Topics, 2017
    Medium      Log Compacted Topics in Apache Kafka, 2019
    Zendesk     An investigation into Kafka Log Compaction, 2020
    WarpStream  Compacted topics, its documentation
    AutoMQ      Apache Kafka 消息清理之道 (how Kafka cleans up messages)

Sizes are scaled down by settings: what matters is how many keys there are for the map. Those
that need a broker are in tests/broker/test_articles.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.rules.facts import note_state, read_facts
from odradek.cleaner.rules.policy import Bound, dirty_range
from odradek.cleaner.runtime.progress import Horizons
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import iterate_batches
from odradek.storage.log import Log
from tests.cleaner.once import SETTINGS
from tests.cleaner.worlds import EAGER, World, pairs

HOUR_MS = 3_600_000
# Room for some two hundred keys, and none to spill what is more.
SMALL_MAP = replace(SETTINGS, map_bytes_max=4096, spill_bytes_max=0)
# The same room, and files for the rest.
SPILLING = replace(SETTINGS, map_bytes_max=4096)
MANY = 1000
def put(world: World, text: str, *, roll: bool = True) -> None:
    """Append "a:1 b:-", each record as a batch, and seal the segment."""
    for pair in pairs(text):
        world.append([pair])
    if roll:
        world.roll()


def publish(world: World, version: int, *, count: int = MANY, segments: int = 4) -> None:
    """Append a record for each of many keys, always in the same order, and seal the segments."""
    per_batch = 25
    for start in range(0, count, per_batch):
        keys = range(start, start + per_batch)
        world.append([(b"ticket-%d" % key, b"%d" % version) for key in keys])
        if (start + per_batch) % (count // segments) == 0:
            world.roll()


def clean_all(world: World, limits: object = SETTINGS) -> list[CleanResult]:
    """Clean until nothing is dirty; each run must get on."""
    results: list[CleanResult] = []
    while (result := world.clean(limits)) is not None:  # type: ignore[arg-type]
        assert result.end_offset > result.first_dirty_offset
        if results:
            assert result.first_dirty_offset == results[-1].end_offset
        results.append(result)
        if not result.is_partial:
            break
    return results


def must_clean(world: World) -> CleanResult:
    result = world.clean()
    assert result is not None
    return result


# --- Heroku -----------------------------------------------------------------------------------


def test_heroku_the_example_of_the_two_phases(tmp_path: Path) -> None:
    """Phase 1 maps the new records only, phase 2 drops whatever they have made obsolete."""
    world = World(tmp_path, replace(EAGER, internal_segment_bytes=200))
    world.append(pairs("a:1"), gap=1)  # the article counts from 1
    put(world, "b:2 c:3")
    put(world, "a:4 b:5")
    first = must_clean(world)
    assert (first.map_keys, world.checkpoint) == (3, 6)
    assert world.values() == ["c:3", "a:4", "b:5"]

    put(world, "c:6 a:7")
    second = must_clean(world)
    assert second.map_keys == 2  # b is not in it
    assert world.values() == ["b:5", "c:6", "a:7"]
    assert [record.offset for record in world.records()] == [5, 6, 7]


def test_heroku_a_segment_with_more_keys_than_the_map_is_cleaned_in_part(tmp_path: Path) -> None:
    """The map overflows in the middle of a segment: the run ends there, the next goes on."""
    world = World(tmp_path)
    publish(world, 1, segments=1)
    publish(world, 2, segments=1)
    (one, other, _) = world.log.segments
    first = world.clean(SMALL_MAP)
    assert first is not None and first.is_partial
    assert one.base_offset < first.end_offset < other.base_offset
    assert world.checkpoint == first.end_offset  # "I got partway through a log segment"
    rest = clean_all(world, SMALL_MAP)
    assert rest[0].first_dirty_offset == first.end_offset
    assert len(rest) > MANY // 256
    assert not rest[-1].is_partial and world.clean(SMALL_MAP) is None
    assert [record.value for record in world.records()] == [b"2"] * MANY


def test_heroku_a_batch_with_more_keys_than_the_map_stops_nobody(tmp_path: Path) -> None:
    """Where even one batch overflows the map, the thread that would crash goes on."""
    world = World(tmp_path)
    for version in (b"1", b"2"):
        world.append([(b"%d" % key, version) for key in range(1000)])
        world.roll()
    clean_all(world, SMALL_MAP)
    assert [record.value for record in world.records()] == [b"2"] * 1000


def test_heroku_the_active_segment_is_never_cleaned(tmp_path: Path) -> None:
    """The map is never built for the latest segment, however many duplicates it holds."""
    world = World(tmp_path)
    put(world, "a:1 a:2", roll=False)
    assert world.clean() is None
    world.roll()
    put(world, "a:3 a:4 a:5", roll=False)
    result = must_clean(world)
    assert result.end_offset == 2 == world.log.active.base_offset
    assert world.values() == ["a:2", "a:3", "a:4", "a:5"]
    world.roll()
    must_clean(world)
    assert world.values() == ["a:5"]


def test_heroku_small_segments_become_larger_ones(tmp_path: Path) -> None:
    """Small segments are merged, which avoids littering the file system with small files."""
    world = World(tmp_path)
    for at in range(20):
        put(world, f"k{at}:1")
    must_clean(world)
    assert [segment.base_offset for segment in world.log.segments] == [0, 20]
    assert len(world.records()) == 20


# --- Medium -----------------------------------------------------------------------------------


def test_medium_the_example_ends_as_the_article_says(tmp_path: Path) -> None:
    """p3, p6 and p5 keep their last records; the active segment keeps p5:14 alive beside p5:17."""
    config = replace(EAGER, min_cleanable_dirty_ratio=0.01)
    world = World(tmp_path, config, topic="latest-product-price")
    for at, pair in enumerate(pairs("p3:10 p5:7 p3:11 p6:25 p6:12 p5:14 p5:17")):
        if at:
            world.roll()
        world.append([pair])

    result = world.clean()

    assert result is not None
    assert (result.first_dirty_offset, result.end_offset) == (0, 6)
    assert result.map_keys == 3
    assert world.values() == ["p3:11", "p6:12", "p5:14", "p5:17"]
    assert [segment.base_offset for segment in world.log.segments] == [0, 6]
    checkpoint = (tmp_path / "cleaner-offset-checkpoint").read_text()
    assert checkpoint.splitlines() == ["0", "1", "latest-product-price 0 6"]


def test_medium_a_young_record_keeps_its_whole_segment(tmp_path: Path) -> None:
    """A segment that has a record younger than min.compaction.lag.ms is not cleaned."""
    world = World(tmp_path, replace(EAGER, min_compaction_lag_ms=HOUR_MS))
    put(world, "a:1 a:2")
    world.now_ms += HOUR_MS
    put(world, "a:3", roll=False)
    young = world.log.log_end_offset
    world.append(pairs("a:4"), timestamps=[world.now_ms + 10])
    world.roll()
    world.now_ms += 10
    result = must_clean(world)
    assert result.end_offset == 2 < young
    assert world.values() == ["a:2", "a:3", "a:4"]


# --- Zendesk ----------------------------------------------------------------------------------


def test_zendesk_the_worked_example_of_the_dirty_ratio(tmp_path: Path) -> None:
    """With 3 clean and 6 dirty records the ratio is 0.66, above the default of 0.5."""
    world = World(tmp_path, replace(EAGER, min_cleanable_dirty_ratio=0.5))
    put(world, "a:1 b:1 c:1")
    must_clean(world)
    put(world, "a:2 b:2 c:2", roll=False)
    assert world.clean() is None  # all of it is in the active segment
    put(world, "a:3 b:3 c:3")
    dirty = dirty_range(read_facts(note_state(world.log)), world.checkpoint, world.now_ms)
    assert dirty.cleanable_ratio == pytest.approx(6 / 9)
    must_clean(world)
    assert world.values() == ["a:3", "b:3", "c:3"]


def test_zendesk_more_keys_than_the_map_take_one_run(tmp_path: Path) -> None:
    """The default map would have taken 54 runs, each of them rewriting the log."""
    world = World(tmp_path)
    publish(world, 1)
    publish(world, 2)
    result = world.clean(SPILLING)
    assert result is not None and not result.is_partial
    assert result.spilled_bytes > 0
    assert result.map_keys == MANY
    assert [record.value for record in world.records()] == [b"2"] * MANY
    assert world.clean(SPILLING) is None


def test_zendesk_republication_gives_all_its_space_back(tmp_path: Path) -> None:
    """Once all records were published again, cleaning reclaims what they have doubled."""
    world = World(tmp_path, replace(EAGER, min_cleanable_dirty_ratio=0.5))
    publish(world, 1)
    must_clean(world)
    once_bytes = world.log.size_bytes
    for version in range(2, 5):
        publish(world, version)
        publish(world, version)  # a tie would not be above the ratio
        assert world.log.size_bytes > 2 * once_bytes
        must_clean(world)
        assert world.log.size_bytes == once_bytes
        assert [record.value for record in world.records()] == [b"%d" % version] * MANY


@pytest.mark.parametrize("limits", [SMALL_MAP, pytest.param(SPILLING, id="spilling")])
def test_zendesk_a_small_map_reclaims_as_much_in_the_end(tmp_path: Path, limits: object) -> None:
    """The first publication is half dirty when the second begins: all the same it all goes."""
    world = World(tmp_path)
    publish(world, 1)
    world.directory.cleaner_offsets["prices", 0] = MANY // 2
    publish(world, 2)
    clean_all(world, limits)
    assert [record.value for record in world.records()] == [b"2"] * MANY


def test_zendesk_unique_keys_are_not_rewritten(tmp_path: Path) -> None:
    """Runs over records that are all unique reclaimed nothing, and rewrote the log each time."""
    world = World(tmp_path, replace(EAGER, internal_segment_bytes=MANY * 10))
    publish(world, 1)
    result = must_clean(world)
    assert result.reclaimed_bytes == 0
    assert result.written_bytes == 0


# --- WarpStream -------------------------------------------------------------------------------


def test_warpstream_no_record_is_deduplicated_before_the_least_lag(tmp_path: Path) -> None:
    """A record does not supersede earlier ones as long as it is younger than the least lag."""
    world = World(tmp_path, replace(EAGER, min_compaction_lag_ms=HOUR_MS))
    put(world, "a:1 a:2")
    world.now_ms += HOUR_MS - 1
    assert world.clean() is None
    assert world.values() == ["a:1", "a:2"]
    world.now_ms += 1
    must_clean(world)
    assert world.values() == ["a:2"]


@pytest.mark.parametrize("lag_ms", [1, 1000, HOUR_MS, 2 * HOUR_MS])
def test_warpstream_the_greatest_lag_holds_to_the_moment(tmp_path: Path, lag_ms: int) -> None:
    """WarpStream cleans half an hour after the lag, and takes any below 2 hours for 2 hours."""
    config = replace(EAGER, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=lag_ms)
    world = World(tmp_path, config)
    put(world, "a:1 a:2")
    world.now_ms += lag_ms
    assert world.clean() is None
    world.now_ms += 1
    must_clean(world)
    assert world.values() == ["a:2"]


def test_warpstream_no_number_of_keys_leaves_duplicates(tmp_path: Path) -> None:
    """With more than 3 million keys in its 128 MiB duplicates stay; here they go, in one run."""
    world = World(tmp_path)
    for version in range(3):
        publish(world, version)
    assert not clean_all(world, SPILLING)[0].is_partial
    keys = [record.key for record in world.records()]
    assert len(keys) == len(set(keys)) == MANY


def test_warpstream_no_number_of_keys_leaves_duplicates_in_several_runs(tmp_path: Path) -> None:
    """Nor do duplicates stay where nothing may be spilled: further runs get them."""
    world = World(tmp_path)
    for version in range(3):
        publish(world, version)
    clean_all(world, SMALL_MAP)
    keys = [record.key for record in world.records()]
    assert len(keys) == len(set(keys)) == MANY


def test_warpstream_a_small_update_reaches_into_a_large_segment(tmp_path: Path) -> None:
    """Files of very different sizes are not left apart: the old record goes at once."""
    world = World(tmp_path)
    publish(world, 1)
    must_clean(world)
    put(world, "ticket-7:2")
    must_clean(world)
    assert [r.value for r in world.records() if r.key == b"ticket-7"] == [b"2"]
    assert len(world.records()) == MANY


def test_warpstream_a_topic_changes_between_delete_and_compact(tmp_path: Path) -> None:
    """There it cannot; here nothing is lost either way, and cleaning goes on where it was."""
    world = World(tmp_path)
    put(world, "a:1 a:2 b:1")
    must_clean(world)
    world.log.config = replace(EAGER, cleanup_policy=frozenset({"delete"}))
    put(world, "a:3 a:4")
    assert world.values() == ["a:2", "b:1", "a:3", "a:4"]
    world.log.config = EAGER
    result = must_clean(world)
    assert result.first_dirty_offset == 3
    assert world.values() == ["b:1", "a:4"]


# --- AutoMQ -----------------------------------------------------------------------------------

RETENTION_MS = 1000
GRAVES = replace(EAGER, delete_retention_ms=RETENTION_MS)


def test_automq_a_tombstone_lives_from_its_first_cleaning_on(tmp_path: Path) -> None:
    """The reprieve of delete.retention.ms begins with the first cleaning, not with the record."""
    world = World(tmp_path, GRAVES)
    put(world, "a:1 a:- b:1")
    world.now_ms += 10 * RETENTION_MS
    must_clean(world)
    assert world.values() == ["a:-", "b:1"]
    for wait_ms, expected in ((RETENTION_MS - 1, ["a:-", "c:1"]), (1, ["c:1"])):
        world.now_ms += wait_ms
        put(world, "c:1")
        must_clean(world)
        assert [one for one in world.values() if one != "b:1"] == expected


def test_automq_a_marker_lives_as_long_as_a_tombstone(tmp_path: Path) -> None:
    """The marker of a transaction of which nothing is left has the same reprieve."""
    world = World(tmp_path, GRAVES)
    world.append(pairs("a:1"), producer=(7, 0, 0), transactional=True)
    world.append_marker(7, 0, commit=True)
    world.append(pairs("x:1"), producer=(7, 0, 1))  # the producer's last batch is another
    for later in ("a:2", "b:1"):
        put(world, later)
        must_clean(world)  # the first drops the record, the second finds a marker of nothing
        assert markers(world) == 1
    for wait_ms, expected in ((RETENTION_MS - 1, 1), (1, 0)):
        world.now_ms += wait_ms
        put(world, "c:1")
        must_clean(world)
        assert markers(world) == expected
    assert world.values() == ["x:1", "a:2", "b:1", "c:1"]


def markers(world: World) -> int:
    return sum(batch.header.is_control and bool(batch.records) for batch in world.batches())


def test_automq_an_expired_tombstone_goes_without_new_records(tmp_path: Path) -> None:
    """Once the reprieve is over the key is deleted for good, also in a topic that is silent."""
    world = World(tmp_path, GRAVES)
    horizons: Horizons = {}
    put(world, "a:1 a:- b:1")
    world.clean(horizons=horizons)
    world.now_ms += RETENTION_MS + RETENTION_MS // 10
    world.clean(horizons=horizons)
    assert world.values() == ["b:1"]


def test_automq_what_is_open_bounds_what_is_cleaned(tmp_path: Path) -> None:
    """The first uncleanable offset is the least of the stable, the active and the young one."""
    world = World(tmp_path)
    put(world, "a:1 a:2")
    world.append(pairs("a:3"), producer=(7, 0, 0), transactional=True)
    world.roll()
    put(world, "a:4")
    dirty = dirty_range(read_facts(note_state(world.log)), None, world.now_ms)
    assert (dirty.first_uncleanable_offset, dirty.bound) == (2, Bound.LAST_STABLE_OFFSET)
    must_clean(world)
    assert world.values() == ["a:2", "a:3", "a:4"]
    world.append_marker(7, 0, commit=True)
    dirty = dirty_range(read_facts(note_state(world.log)), world.checkpoint, world.now_ms)
    assert (dirty.first_uncleanable_offset, dirty.bound) == (4, Bound.ACTIVE_SEGMENT)
    must_clean(world)
    assert world.values() == ["a:4"]


@pytest.mark.slow
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(0, 90), st.integers(1, 40)),
            st.sampled_from([("roll",), ("clean",), ("clean small",), ("read",), ("follow",)]),
        ),
        max_size=60,
    )
)
@settings(max_examples=settings().max_examples // 2)
def test_automq_the_guarantees_hold_while_records_come_and_go(
    steps: list[tuple[object, ...]],
) -> None:
    """Who keeps up sees every offset; order and offsets stay; from the start the state is final.

    Zendesk asks the same of a consumer that reads from the beginning during a republication.
    """
    with TemporaryDirectory() as path:
        world = World(Path(path), replace(EAGER, delete_retention_ms=HOUR_MS))
        written: list[tuple[int, bytes | None, bytes | None]] = []
        slow, close = Reader(world.log), Reader(world.log)
        for step in steps:
            match step:
                case ("append", int(first), int(count)):
                    value = b"%d" % len(written)
                    keys = range(first, first + count)
                    stored = world.append([(b"k%d" % key, value) for key in keys])
                    written += [(r.offset, r.key, r.value) for r in stored.records]
                    close.read_all()  # it keeps up
                case ("roll",):
                    world.roll()
                case ("clean",):
                    world.clean()
                case ("clean small",):
                    world.clean(replace(SMALL_MAP, map_bytes_max=1024))
                case ("read",):
                    slow.read(1)  # a batch, and then it lags again
                case ("follow",):
                    slow.read(1 << 20)
        slow.read_all()
        assert close.seen == written
        offsets = [offset for offset, _, _ in slow.seen]
        assert offsets == sorted(set(offsets))
        assert set(slow.seen) <= set(written)
        assert slow.state() == close.state()
        late = Reader(world.log)
        late.read_all()
        assert late.state() == close.state()


class Reader:
    """A consumer from the beginning, as slow as a test wants it."""

    def __init__(self, log: Log) -> None:
        self._log, self._offset = log, 0
        self.seen: list[tuple[int, bytes | None, bytes | None]] = []

    def read(self, size_max: int) -> bool:
        """Fetch once, as a broker does; return whether there was something."""
        found = self._log.read(self._offset, size_max, at_least_one=True)
        if found is None:
            return False
        for position, header in iterate_batches(memoryview(data := found.read())):
            for record in decode_records(data, position):
                if record.offset >= self._offset:
                    self.seen.append((record.offset, record.key, record.value))
            self._offset = header.last_offset + 1
        return True

    def read_all(self) -> None:
        while self.read(1 << 20):
            pass

    def state(self) -> dict[bytes | None, bytes | None]:
        return {key: value for _, key, value in self.seen}
