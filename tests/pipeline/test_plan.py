"""What a plan of cleanings is made of: neighbours of records, ends of runs, ratios, words."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from os import environ
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from pyspark.sql import SparkSession

from bench.processes import ROOT
from odradek.pipeline.cleaner_model import NEVER, KafkaCleaner
from odradek.pipeline.dirty_ratios import dirty_ratios
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.neighbours import (
    UNCLEANABLE,
    Extent,
    find_run_ends,
    sum_keys,
    sum_sizes,
    with_neighbours,
)
from odradek.pipeline.plan import plan_command
from odradek.pipeline.planning import PlanOptions, cleaned_offsets, find_partitions
from odradek.protocol.batches import Record, encode_batch
from tests.pipeline.segments import write_segment

SCHEMA = (
    "key binary, topic string, partition int, offset bigint, size_bytes int, "
    "value_size_bytes int, aborted boolean, segment_offset bigint"
)
OPTIONS = PlanOptions(KafkaCleaner())


def test_the_ticket_services_table_of_ratios() -> None:
    # 1.6 billion tickets in 16 TB: "we need the same space again in reserve", "61 days".
    (half, quarter) = dirty_ratios(16e12, 1.6e9, 300, ratios=(0.5, 0.25))
    assert (half.reserve_bytes, half.log_bytes, half.log_records) == (16e12, 32e12, 3.2e9)
    assert half.days_between_runs == pytest.approx(61, abs=1)
    assert half.copied_per_dirty_byte == 1
    assert quarter.reserve_bytes == pytest.approx(16e12 / 3)
    assert quarter.copied_per_dirty_byte == pytest.approx(3)
    assert dirty_ratios(1.0, 1.0)[0].days_between_runs is None


def test_cleaned_offsets_are_read_and_bad_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "cleaner-offset-checkpoint"
    assert cleaned_offsets(path) == {}
    path.write_text("0\n2\na.b-c 0 7\nd 12 42\n")
    assert cleaned_offsets(path) == {("a.b-c", 0): 7, ("d", 12): 42}
    for bad in ("", "1\n0\n", "0\n1\nonly two\n", "0\n1\nt x 1\n"):
        path.write_text(bad)
        with pytest.raises(PipelineError, match="use --from-start"):
            cleaned_offsets(path)


def test_clean_and_active_segments_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    for base in (0, 10, 20):
        records = [Record(at, 1, b"k", b"v") for at in range(base, base + 10)]
        write_segment(folder, base, [encode_batch(records, base_offset=base)])
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 10\n")

    def extent(**options: bool) -> tuple[int, int]:
        plan = PlanOptions(KafkaCleaner(), **options)
        ((one,),) = [find_partitions({"path": str(tmp_path)}, plan)]
        return one.extent.first_dirty_offset, one.extent.first_uncleanable_offset

    assert extent() == (10, 20)
    assert extent(with_active=True) == (10, 30)
    assert extent(from_start=True) == (0, 20)


def test_a_partition_in_two_folders_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_segment(tmp_path / name / "t-0", 0, [encode_batch([Record(0, 1, b"k", b"v")])])
    with pytest.raises(PipelineError, match="t-0 is in several of the folders"):
        find_partitions({"path": f"{tmp_path / 'a'},{tmp_path / 'b'}"}, OPTIONS)


def test_a_missing_path_is_reported_before_spark_starts(tmp_path: Path) -> None:
    result = CliRunner().invoke(plan_command, ["--path", str(tmp_path / "nowhere")])
    assert result.exit_code == 1
    assert result.output == f"Error: {tmp_path}/nowhere does not exist: change option path\n"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_neighbours_and_sums_are_what_a_plain_walk_finds(spark: SparkSession) -> None:
    chance = random.Random(3)
    extents = [Extent("t", 0, 40, 160), Extent("t", 1, 0, 180), Extent("u", 0, 200, 200)]
    rows = [
        (
            chance.choice([None, *(b"%d" % key for key in range(25))]),
            one.topic,
            one.partition,
            offset,
            chance.randrange(20, 90),
            chance.choice([None, 10]),
            chance.random() < 0.1,
            offset // 30 * 30,
        )
        for one in extents
        for offset in range(200)
        if chance.random() < 0.9
    ]
    frame = spark.createDataFrame(rows, SCHEMA).repartition(3)
    found = with_neighbours(spark, frame, extents).persist()
    ends = find_run_ends(found, {"kafka": 6, "own": 15})
    run_ends = {
        place: [*ends.get((place, "kafka"), []), one.first_uncleanable_offset]
        for place, one in enumerate(extents)
    }
    full_at = {place: ends[place, "own"][0] for place in (0, 1)}
    sums = {
        (row["place"], row["segment_offset"], row["run"]): (
            row["size_bytes"], row["tombstones"], row["spilled"],
        )
        for row in sum_sizes(spark, found, run_ends, full_at).collect()
    }  # fmt: skip
    keys = {row["place"]: row.asDict() for row in sum_keys(found).collect()}
    found.unpersist()
    for place, one in enumerate(extents):
        walk = Walk(one, [row for row in rows if row[1:3] == (one.topic, one.partition)])
        assert run_ends[place] == walk.run_ends(6)
        assert walk.run_ends(15)[0] == full_at.get(place, one.first_uncleanable_offset)
        expected = walk.sums(run_ends[place], full_at.get(place))
        assert {key[1:]: value for key, value in sums.items() if key[0] == place} == expected
        assert {"place": place, **walk.keys()} == keys[place]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_command_reports_in_text_and_json_and_draws(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "orders-0"
    for base in (0, 1000, 2000):
        records = [
            Record(at, 1, b"key-%d" % (at % 700), b"v" * 50) for at in range(base, base + 1000)
        ]
        write_segment(folder, base, [encode_batch(records, base_offset=base)])
    done = subprocess.run(
        [
            *(sys.executable, "-m", "odradek.cli.main", "pipeline", "plan", "--path", "data"),
            *("--dedupe-buffer-size", "12000", "--updates-per-second", "1"),
            *("--report", "plan.json", "--plots", "plots"),
        ],
        cwd=tmp_path,
        env={**environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (topic,) = json.loads((tmp_path / "plan.json").read_text())["topics"]
    (partition,) = topic["partitions"]
    assert partition["keys"] == 700 and len(partition["kafka"]) > 1
    assert topic["garbage_ratio"] == pytest.approx(1 - 700 / 3000, abs=0.01)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("topic orders: 1 partition, 3,000 records in ")
    assert f"Kafka 4.3 {len(partition['kafka'])} " in " ".join(done.stdout.split())
    assert lines[-1] == "drew plots/orders.png"
    assert (tmp_path / "plots" / "orders.png").read_bytes().startswith(b"\x89PNG")


class Walk:
    """The records of a partition, walked one by one."""

    def __init__(self, extent: Extent, rows: list[tuple]) -> None:
        self.extent = extent
        # key (None for a void record), offset, size, whether it is a tombstone, segment
        self.records = [
            (None if row[6] else row[0], row[3], row[4], row[5] is None, row[7]) for row in rows
        ]

    def in_map(self, key: bytes | None, offset: int) -> bool:
        start, end = self.extent.first_dirty_offset, self.extent.first_uncleanable_offset
        return key is not None and start <= offset < end

    def run_ends(self, keys_max: int) -> list[int]:
        ends: list[int] = []
        held: set[bytes] = set()
        full_at = None
        for key, offset, *_ in self.records:
            if key is None or not self.in_map(key, offset):
                continue
            if full_at is not None:
                ends.append(full_at)
                held, full_at = set(), None
            held.add(key)
            if len(held) == keys_max:
                full_at = offset + 1
        return [*ends, self.extent.first_uncleanable_offset]

    def sums(
        self, run_ends: list[int], full_at: int | None
    ) -> dict[tuple[int, int], tuple[int, int, int]]:
        sums: dict[tuple[int, int], tuple[int, int, int]] = {}
        for key, offset, size, is_tombstone, segment in self.records:
            dirty = [at for other, at, *_ in self.records if other == key and self.in_map(key, at)]
            later = [at for at in dirty if at > offset]
            next_offset = later[0] if later else NEVER
            if key is None:
                next_offset = max(offset, self.extent.first_dirty_offset)
            if offset >= self.extent.first_uncleanable_offset:
                run = UNCLEANABLE
            elif next_offset == NEVER:
                run = len(run_ends)
            else:
                run = sum(end <= next_offset for end in run_ends)
            is_spilled = (
                full_at is not None
                and key is not None
                and (not dirty or dirty[0] >= full_at)
            )
            before = sums.get((segment, run), (0, 0, 0))
            sums[segment, run] = (
                before[0] + size,
                before[1] + (is_tombstone and self.in_map(key, offset)),
                before[2] + is_spilled,
            )
        return sums

    def keys(self) -> dict[str, int]:
        last = {key: record for record in self.records if (key := record[0]) is not None}
        dirty = [key for key, offset, *_ in self.records if self.in_map(key, offset)]
        return {
            "records": len(self.records),
            "size_bytes": sum(record[2] for record in self.records),
            "keys": len(last),
            "live_bytes": sum(record[2] for record in last.values()),
            "tombstones": sum(record[3] for record in last.values()),
            "dirty_records": len(dirty),
            "dirty_keys": len(set(dirty)),
        }
