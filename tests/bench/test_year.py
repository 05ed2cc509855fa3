"""The computed year: it keeps its promises, and real cleaners do the same byte for byte."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.year import main, simulate
from bench.year_load import DAY_MS, PATTERNS, sealed_segments
from bench.year_model import KafkaModel, ModelLog, OwnModel, RecordSizes, SealedSegment, play
from odradek.cleaner.runtime.progress import Horizons
from odradek.config.topic import TopicConfig
from odradek.protocol.batches import HEADER_SIZE, Record, encode_batch
from odradek.storage.segment import LOG
from tests.cleaner.kafka_cleaner import MEMORY, Cleaned, KafkaCleaner, KafkaLog
from tests.cleaner.once import SETTINGS
from tests.cleaner.worlds import COMPACT, World

# A timestamp's delta takes one byte, and up to six once it counts from a delete horizon up to a
# year away; then the record's size may take a byte more.
GROWTH_BYTES_MAX = 6
START_MS = 1_000_000
CONFIG = TopicConfig(
    cleanup_policy=COMPACT, internal_segment_bytes=4 << 20, min_cleanable_dirty_ratio=0.2
)
DAYS = 120


@pytest.mark.parametrize(
    "shared",
    [pytest.param(False, id="local"), pytest.param(True, id="shared", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_pattern_makes_it_write_more_than_kafkas_cleaner(pattern: str, shared: bool) -> None:
    kafkas, ours = (
        simulate(pattern, cleaner, config=TopicConfig(), scale=0.02, shared=shared)
        for cleaner in ("kafka", "odradek")
    )
    assert kafkas.work.runs > 0
    assert ours.produced_bytes == kafkas.produced_bytes
    assert ours.work.written_bytes <= kafkas.work.written_bytes
    # The dirty part may be as large as the clean one before the ratio of 0.5 asks.
    assert ours.log_bytes <= 2 * kafkas.log_bytes


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["articles", "closed"])
@pytest.mark.parametrize("shared", [False, True])
def test_few_updates_over_many_old_keys_cost_half(pattern: str, shared: bool) -> None:
    kafkas, ours = (
        simulate(pattern, cleaner, config=TopicConfig(), shared=shared)
        for cleaner in ("kafka", "odradek")
    )
    assert 2 * ours.work.written_bytes <= kafkas.work.written_bytes


def test_it_prints_a_row_for_each_pattern_and_cleaner(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--days", "30", "--scale", "0.01", "--cleaners", "kafka", "complete", "tiers"]
    assert main(["articles", "sessions", *options]) == 0
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[0:2] for row in rows] == [
        [f"| {pattern}", cleaner]
        for pattern in ("articles", "sessions")
        for cleaner in ("kafka", "complete", "tiers")
    ]


class Scribe:
    """Writes the segments of a model into real logs, batch by batch."""

    def __init__(self, sizes: RecordSizes, segments: Sequence[SealedSegment]) -> None:
        self.sizes = sizes
        self._value = b"v" * (sizes.value_bytes - _record_bytes(b"v" * 1000) + 1000)
        self._next = {
            one.base_offset: later
            for one, later in zip(segments, [*segments[1:], None], strict=True)
        }

    def batches(self, segment: SealedSegment) -> list[bytes]:
        """Return a segment's batches."""
        records, count = segment.records, self.sizes.batch_records
        made = [
            Record(offset, START_MS, _key(key), None if is_tombstone else self._value)
            for offset, key, is_tombstone in zip(
                records.offsets.tolist(),
                records.keys.tolist(),
                records.is_tombstone.tolist(),
                strict=True,
            )
        ]
        return [
            encode_batch(made[at : at + count], base_offset=made[at].offset)
            for at in range(0, len(made), count)
        ]

    def write(
        self, segment: SealedSegment, append: Callable[[bytes], object], roll: Callable[[], None]
    ) -> None:
        """Append a segment, and the first batch of the next one: the active one is not empty."""
        first, *others = self.batches(segment)
        for batch in others if segment.base_offset else (first, *others):
            append(batch)
        roll()
        later = self._next[segment.base_offset]
        if later is not None:
            append(self.batches(later)[0])


def _key(number: int) -> bytes:
    return b"%012d" % number


def _record_bytes(value: bytes | None) -> int:
    return len(encode_batch([Record(0, START_MS, _key(0), value)])) - HEADER_SIZE


class HeldToOurs(OwnModel):
    """The model beside Odradek's cleaner, on a log of files."""

    def __init__(self, log: ModelLog, world: World, scribe: Scribe, *, alone: bool) -> None:
        super().__init__(log)
        self.may_clean_alone = alone  # type: ignore[misc]
        self._settings = replace(SETTINGS, may_clean_alone=alone)
        self.alone_runs = 0
        self.world, self._scribe = world, scribe
        self._horizons: Horizons = {}

    def append(self, segment: SealedSegment) -> None:
        """Write the segment, and see that the cleaner has nothing to do before."""
        self.world.now_ms = START_MS + (segment.facts.largest_timestamp or 0) - 1
        if self.log.checkpoint is not None:
            assert self.world.clean(horizons=self._horizons) is None
        self._scribe.write(segment, self.world.append_batch, self.world.roll)
        super().append(segment)

    def run(self, now_ms: int) -> None:
        """Run both, and compare."""
        before, tolerance = replace(self.work), tolerance_bytes(self.log)
        super().run(now_ms)
        self.world.now_ms = START_MS + now_ms
        result = self.world.clean(self._settings, horizons=self._horizons)
        assert result is not None
        self.alone_runs += result.is_alone
        # It has read segments as they were before.
        tolerance = max(tolerance, tolerance_bytes(self.log))
        read = result.indexed_bytes + result.read_bytes
        assert read == pytest.approx(self.work.read_bytes - before.read_bytes, abs=2 * tolerance)
        written = self.work.written_bytes - before.written_bytes
        assert result.written_bytes == pytest.approx(written, abs=tolerance)
        assert result.segments_written == self.work.new_segments - before.new_segments
        sizes = [one.size_bytes for one in self.world.log.segments[:-1]]
        assert sizes == pytest.approx([s.size_bytes for s in self.log.segments], abs=tolerance)


def tolerance_bytes(log: ModelLog) -> int:
    """Return the bytes by which tombstones make a model and a log differ: none without any."""
    stamped = sum(len(s.records.keys) for s in log.segments if s.records.is_tombstone.any())
    return GROWTH_BYTES_MAX * stamped


class HeldToKafkas(KafkaModel):
    """The model beside Kafka's cleaner."""

    def __init__(self, log: ModelLog, kafka: KafkaLog, scribe: Scribe) -> None:
        super().__init__(log)
        self.kafka, self._scribe = kafka, scribe

    def append(self, segment: SealedSegment) -> None:
        """Write the segment, and see that the cleaner has nothing to do before."""
        now_ms = START_MS + (segment.facts.largest_timestamp or 0) - 1
        if self.log.checkpoint is not None:
            assert self._ask(now_ms) is None
        self._scribe.write(segment, self.kafka.append, self.kafka.roll)
        super().append(segment)

    def run(self, now_ms: int) -> None:
        """Run both, and compare."""
        super().run(now_ms)
        cleaned = self._ask(START_MS + now_ms)
        assert cleaned is not None
        (*_, active) = paths = sorted(self.kafka.directory.glob(f"*{LOG}"))
        sizes = [path.stat().st_size for path in paths if path is not active]
        model = [one.size_bytes for one in self.log.segments]
        assert sizes == pytest.approx(model, abs=tolerance_bytes(self.log))

    def _ask(self, now_ms: int) -> Cleaned | None:
        return self.kafka.clean(now_ms, self.log.key_count, 1 << 20)


def load_of(
    pattern: str, scale: float
) -> tuple[RecordSizes, int, Sequence[tuple[int, SealedSegment]]]:
    """Return a shortened pattern: the sizes of its records, its keys, its segments."""
    sizes = replace(PATTERNS[pattern].sizes, tombstone_bytes=_record_bytes(None))
    load = PATTERNS[pattern].make(np.random.default_rng(3), DAYS, scale)
    config = replace(CONFIG, segment_ms=DAY_MS)
    sealed = list(sealed_segments(load, sizes, config, DAYS, shared=False))
    return sizes, int(load.keys.max()) + 1, sealed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "scale"),
    [("articles", 0.04), ("closed", 0.04), ("zipf", 0.02), ("zipf", 0.005), ("sessions", 0.01)],
)
@pytest.mark.parametrize("alone", [False, True])
def test_our_cleaner_reads_and_writes_as_computed(
    pattern: str, scale: float, tmp_path: Path, alone: bool
) -> None:
    sizes, key_count, sealed = load_of(pattern, scale)
    # Sessions are cleaned every few days, and in between for their tombstones.
    has_deletes = pattern == "sessions"
    config = replace(CONFIG, min_cleanable_dirty_ratio=0.95, segment_ms=DAY_MS)
    config = config if has_deletes else CONFIG
    world = World(tmp_path, config)
    log = ModelLog(sizes, config, key_count)
    scribe = Scribe(sizes, [segment for _, segment in sealed])
    model = HeldToOurs(log, world, scribe, alone=alone)
    play(model, sealed, 0, DAYS * DAY_MS)
    assert model.work.runs > 2
    assert (model.work.expiry_runs > 0) == (tolerance_bytes(log) > 0) == has_deletes
    if pattern in ("articles", "closed"):
        assert (model.alone_runs > 0) == alone


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize(("pattern", "scale"), [("articles", 0.02), ("sessions", 0.005)])
def test_kafkas_cleaner_writes_as_computed(pattern: str, scale: float) -> None:
    sizes, key_count, sealed = load_of(pattern, scale)
    with tempfile.TemporaryDirectory(dir=MEMORY) as root:
        oracle = KafkaCleaner(Path(root))
        try:
            kafka = oracle.open(CONFIG, START_MS)
            log = ModelLog(sizes, CONFIG, key_count)
            scribe = Scribe(sizes, [segment for _, segment in sealed])
            model = HeldToKafkas(log, kafka, scribe)
            play(model, sealed, 0, DAYS * DAY_MS)
            kafka.close()
        finally:
            oracle.close()
    assert model.work.runs > 2
