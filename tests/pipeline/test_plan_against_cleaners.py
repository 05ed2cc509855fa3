"""What a plan foretells is what the cleaners then do: Odradek's own, and Apache Kafka's."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from pyspark.sql import SparkSession

from bench.cleaner_brokers import clean_stages
from bench.cleaner_load import TOPIC, Load, Written, write_log
from bench.cleaner_report import Run, runs
from bench.processes import KafkaProcess, OdradekProcess
from odradek.config.topic import TopicConfig
from odradek.pipeline.cleaner_model import KafkaCleaner
from odradek.pipeline.planning import PlanOptions, plan_topics
from tests.cleaner.once import SETTINGS
from tests.cleaner.worlds import COMPACT, World
from tests.support.forking import ForkedOdradek

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

# What Kafka takes at least: one thread's buffer must be larger than 1 MiB.
BUFFER_BYTES = (1 << 20) + 1
MB = 1 << 20
SETTINGS_OF_BOTH = {
    "log.cleaner.threads": "1",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": str(BUFFER_BYTES),
}
EAGER = TopicConfig(cleanup_policy=COMPACT, min_cleanable_dirty_ratio=0.0, segment_bytes=100_000)


@pytest.mark.parametrize(
    ("map_bytes", "gap"),
    [pytest.param(16 << 20, 0, marks=pytest.mark.interop), (4_000, 100_000)],
)
def test_one_run_of_odradek_is_predicted(
    spark: SparkSession, tmp_path: Path, map_bytes: int, gap: int
) -> None:
    world, chance = World(tmp_path / "data", EAGER), random.Random(map_bytes + gap)
    settings = replace(SETTINGS, map_bytes_max=map_bytes, map_load_factor=0.9)
    options = PlanOptions(KafkaCleaner(map_bytes), min_cleanable_ratio=0.0)
    seen = []
    # First all keys, then some again, then a few that lie side by side: most segments have none.
    for keys in (range(1500), chance.choices(range(2000), k=900), [*range(300, 320)] * 2):
        write(world, chance, keys, gap, has_tombstones=len(keys) == 900)
        (plan,) = plan_topics(spark, {"path": str(world.directory.path)}, options)
        result = world.clean(settings)
        assert result is not None and not result.is_partial
        assert plan.odradek is not None
        own = plan.odradek
        seen.append((own.spilled_bytes > 0, own.written_bytes > 0, own.read_bytes))
        assert (own.keys, own.spilled_bytes) == (result.map_keys, result.spilled_bytes)
        assert own.indexed_bytes == pytest.approx(result.indexed_bytes)
        assert own.read_bytes == pytest.approx(result.read_bytes)
        assert own.written_bytes == pytest.approx(result.written_bytes, rel=0.02)
        marks_and_hashes = own.memory_bytes - result.map_bytes
        assert 0 <= marks_and_hashes <= 9 * plan.records
        assert plan.dirty_ratio == pytest.approx(result.cleanable_ratio)
    (after,) = plan_topics(spark, {"path": str(world.directory.path)}, options)
    assert (after.odradek, after.kafka, after.dirty_bytes) == (None, (), 0)
    assert after.keys == len({record.key for record in world.records()})
    assert any(spills for spills, _, _ in seen) == (map_bytes == 4_000)
    assert not seen[0][1] and seen[1][1]  # nothing is obsolete at first
    # Segments without any of the keys are not read, where there was room for their filters.
    assert (seen[2][2] < plan.cleanable_bytes) == (map_bytes > 4_000)


@pytest.mark.kafka
@pytest.mark.interop
@pytest.mark.parametrize(
    ("keys", "value_bytes", "segment_bytes"),
    [
        pytest.param(np.arange(100_000), 100, MB, id="every key once"),
        pytest.param(
            np.random.default_rng(5).integers(0, 90_000, 150_000), 100, MB, id="keys again"
        ),
        pytest.param(
            np.arange(400_000), 480, 16 * MB, id="400k keys", marks=pytest.mark.interop
        ),
    ],
)
def test_the_runs_of_kafka_and_of_odradek_are_predicted(
    spark: SparkSession, tmp_path: Path, keys: np.ndarray, value_bytes: int, segment_bytes: int
) -> None:
    load = Load([keys], value_bytes, segment_bytes)
    written = write_log(load, tmp_path / "log")
    cleaner = KafkaCleaner(BUFFER_BYTES)
    (plan,) = plan_topics(
        spark, {"path": str(tmp_path / "log"), "topic": TOPIC}, PlanOptions(cleaner, 0.0)
    )
    assert plan.records == len(keys)
    assert plan.keys == plan.dirty_keys == len(np.unique(keys))
    theirs, ours = (
        _runs(broker, load, written)
        for broker in (
            KafkaProcess(tmp_path / "kafka", SETTINGS_OF_BOTH),
            ForkedOdradek(tmp_path / "own", SETTINGS_OF_BOTH),
        )
    )
    assert len(plan.kafka) == len(theirs) > 1
    for predicted, run in zip(plan.kafka, theirs, strict=True):
        assert predicted.end_offset == run.end_offset
    read = sum(run.read_bytes for run in plan.kafka) / MB
    copied = sum(run.written_bytes for run in plan.kafka) / MB
    assert read == pytest.approx(sum(run.log_mb for run in theirs), rel=0.05)
    assert copied == pytest.approx(sum(run.written_mb for run in theirs), rel=0.05)
    (run,) = ours
    assert plan.odradek is not None
    assert plan.odradek.read_bytes / MB == pytest.approx(run.log_mb, rel=0.05)
    assert plan.odradek.written_bytes / MB == pytest.approx(run.written_mb, rel=0.05)
    assert plan.odradek.spilled_bytes / MB == pytest.approx(run.spilled_mb, rel=0.05, abs=0.1)


def _runs(broker: KafkaProcess | OdradekProcess, load: Load, written: Written) -> list[Run]:
    """Have a broker clean a log, and return what it reports."""
    clean_stages(broker, load, written)
    return runs(broker.log_text())


def write(
    world: World,
    chance: random.Random,
    keys: list[int] | range,
    gap: int,
    *,
    has_tombstones: bool,
) -> None:
    """Append records of one size in batches, after a gap of offsets."""
    world.now_ms += 1_000
    for start in range(0, len(keys), 20):
        records = [
            (b"key-%06d" % key, None if has_tombstones and chance.random() < 0.02 else b"v" * 100)
            for key in keys[start : start + 20]
        ]
        world.append(records, gap=gap if start == 0 else 0)
        if world.log.active.size_bytes > EAGER.segment_bytes:
            world.roll()
    world.roll()
