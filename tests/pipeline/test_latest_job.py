"""The job from a broker to a table: whole histories, restarts, kills, and what it refuses."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from pyspark.errors import StreamingQueryException

from bench.processes import ROOT
from odradek.pipeline.errors import PipelineError, explain
from odradek.pipeline.latest import LatestJob, start, wait
from odradek.pipeline.read import read_rows
from odradek.pipeline.source import TopicSource
from odradek.pipeline.table import newest_snapshot, read_table
from tests.pipeline.conftest import CACHE, MakeTopic, Produce, Produced
from tests.pipeline.model import as_record, as_table, latest
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 2


@pytest.fixture
def job(tmp_path: Path, broker_bootstrap: str, make_topic: MakeTopic) -> LatestJob:
    """A job on a new topic, a new table and a new checkpoint, that ends at the topic's end."""
    source = TopicSource(broker_bootstrap, topic=make_topic(PARTITIONS))
    return LatestJob(source, str(tmp_path / "table"), str(tmp_path / "checkpoint"), True)


def test_a_history_with_tombstones_comes_to_the_dict_that_it_builds(
    spark: SparkSession, job: LatestJob, produce: Produce
) -> None:
    produce(_topic(job), _history(seed=1, count=600))
    _run(spark, job)
    _assert_table_is_the_topic(spark, job)


def test_a_second_run_continues_where_the_first_ended(
    spark: SparkSession, job: LatestJob, produce: Produce
) -> None:
    batches: list[int] = []
    for seed in (1, 2, 3):
        produce(_topic(job), _history(seed, count=200))
        batches += _run(spark, job)
        _assert_table_is_the_topic(spark, job)
    assert batches == sorted(set(batches)), "a batch was applied twice"
    assert len(batches) >= 3
    assert _run(spark, job) == [], "nothing new, and yet a batch"


def test_many_small_batches_come_to_the_same_and_leave_few_snapshots(
    spark: SparkSession, job: LatestJob, produce: Produce, tmp_path: Path
) -> None:
    produce(_topic(job), _history(seed=4, count=300))
    source = TopicSource(
        job.source.bootstrap_servers, topic=job.source.topic, max_offsets_per_trigger=90
    )
    bounded = LatestJob(source, job.table, job.checkpoint, True, keep_snapshots=2)
    assert len(_run(spark, bounded)) >= 3
    _assert_table_is_the_topic(spark, job)
    assert len(list(Path(job.table).glob("snapshot-*"))) == 2


def test_a_batch_whose_commit_was_lost_is_not_applied_again(
    spark: SparkSession, job: LatestJob, produce: Produce
) -> None:
    produce(_topic(job), _history(seed=5, count=200))
    _run(spark, job)
    produce(_topic(job), _history(seed=6, count=200))
    *_, last = _run(spark, job)
    # As if the job had been killed between the snapshot's commit and the checkpoint's.
    for name in (f"{last}", f".{last}.crc"):
        (Path(job.checkpoint) / "commits" / name).unlink(missing_ok=True)
    before = newest_snapshot(spark, job.table)
    assert _run(spark, job) == []
    assert newest_snapshot(spark, job.table) == before
    _assert_table_is_the_topic(spark, job)


@pytest.mark.interop
def test_a_job_that_is_killed_amid_a_batch_continues_with_the_same_table(
    spark: SparkSession, job: LatestJob, produce: Produce
) -> None:
    produce(_topic(job), _history(seed=7, count=20_000))
    arguments = ["--bootstrap-servers", job.source.bootstrap_servers, "--topic", _topic(job)]
    arguments += ["--table", job.table, "--checkpoint", job.checkpoint, "--available-now"]
    running = subprocess.Popen(
        _command(*arguments, "--max-offsets-per-trigger", "4000"),
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _halt_amid_a_batch(Path(job.table), running)
    finally:
        os.killpg(running.pid, signal.SIGKILL)  # Python and the Java that it started
        running.wait()
    killed = newest_snapshot(spark, job.table)
    assert killed is not None
    assert _uncommitted(Path(job.table))
    batches = _run(spark, job)
    assert batches[0] == killed.batch_id + 1
    _assert_table_is_the_topic(spark, job)


def test_a_table_of_another_checkpoint_is_refused(
    spark: SparkSession, job: LatestJob, produce: Produce, tmp_path: Path
) -> None:
    produce(_topic(job), _history(seed=8, count=50))
    _run(spark, job)
    elsewhere = str(tmp_path / "elsewhere")
    for table, checkpoint in ((job.table, elsewhere), (elsewhere, job.checkpoint)):
        with pytest.raises(PipelineError, match="new --table and a new --checkpoint"):
            _run(spark, LatestJob(job.source, table, checkpoint, True))
    _assert_table_is_the_topic(spark, job)


def test_records_deleted_before_they_were_read_stop_the_job_unless_it_may_go_on(
    spark: SparkSession, job: LatestJob, produce: Produce
) -> None:
    produce(_topic(job), _history(seed=9, count=100))
    _run(spark, job)
    produce(_topic(job), _history(seed=10, count=100))
    _delete_records(job, before=90)
    with pytest.raises(StreamingQueryException) as failure:
        _run(spark, job)
    line = explain(failure.value, where="b", what="t")
    assert "--no-fail-on-data-loss" in line
    lenient = TopicSource(
        job.source.bootstrap_servers, topic=job.source.topic, fail_on_data_loss=False
    )
    _run(spark, LatestJob(lenient, job.table, job.checkpoint, True))
    rows = {(r["partition"], r["offset"]) for r in read_table(spark, job.table).collect()}
    remaining = {
        (r.partition, r.offset) for r in latest(map(as_record, _read(spark, job))).values()
    }
    assert remaining <= rows


def test_a_pattern_reads_every_topic_that_matches_into_one_table(
    spark: SparkSession,
    broker_bootstrap: str,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    topics = [make_topic(1), make_topic(1)]
    for seed, topic in enumerate(topics):
        produce(topic, [one for one in _history(seed, count=40) if one[0] == 0])
    source = TopicSource(broker_bootstrap, subscribe_pattern="|".join(topics))
    job = LatestJob(source, str(tmp_path / "table"), str(tmp_path / "checkpoint"), True)
    _run(spark, job)
    _assert_table_is_the_topic(spark, job)
    assert {row["topic"] for row in read_table(spark, job.table).collect()} == set(topics)


@pytest.mark.interop
def test_a_missing_topic_is_reported_in_one_line(broker_bootstrap: str, tmp_path: Path) -> None:
    arguments = ["--bootstrap-servers", broker_bootstrap, "--topic", "no-such-topic"]
    done = subprocess.run(
        _command(*arguments, "--table", str(tmp_path / "table"), "--available-now"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"Error: topic no-such-topic does not exist at the broker at {broker_bootstrap}: "
        "create it, or change --topic"
    ]


def _history(seed: int, count: int) -> list[Produced]:
    """Records of few keys, a fifth of them tombstones, each key in a partition of its own."""
    chance = random.Random(seed)
    records: list[Produced] = []
    for number in range(count):
        key = chance.randrange(40)
        value = None if chance.random() < 0.2 else b"%d-%d" % (seed, number)
        headers = [("n", b"%d" % number)] if chance.random() < 0.3 else []
        records.append((key % PARTITIONS, b"key-%d" % key, value, headers))
    return records


def _topic(job: LatestJob) -> str:
    assert job.source.topic is not None
    return job.source.topic


def _run(spark: SparkSession, job: LatestJob) -> list[int]:
    """Run the job to the topic's end and return the batches that it committed."""
    batches: list[int] = []
    wait(start(spark, job, lambda batch_id, keys: batches.append(batch_id)))
    return batches


def _read(spark: SparkSession, job: LatestJob) -> list[Row]:
    return read_rows(spark, job.source, None, 1_000_000)


def _assert_table_is_the_topic(spark: SparkSession, job: LatestJob) -> None:
    topic = latest(map(as_record, _read(spark, job)))
    assert topic, "an empty table shows nothing"
    assert as_table(read_table(spark, job.table).collect()) == topic


def _command(*arguments: str) -> Sequence[str]:
    return [sys.executable, "-m", "odradek.pipeline.latest", "--cache", str(CACHE), *arguments]


def _uncommitted(table: Path) -> list[Path]:
    return [path for path in table.glob("snapshot-*") if not (path / "_SUCCESS").exists()]


def _halt_amid_a_batch(table: Path, running: subprocess.Popen[bytes]) -> None:
    """Halt the job while one snapshot is committed and the next is being written."""

    def is_amid() -> bool:
        assert running.poll() is None, "the job ended before it could be killed"
        return bool(_uncommitted(table) and list(table.glob("snapshot-*/_SUCCESS")))

    def is_halted() -> bool:
        if not is_amid():
            return False
        os.killpg(running.pid, signal.SIGSTOP)
        if is_amid():
            return True
        os.killpg(running.pid, signal.SIGCONT)  # the batch ended before it stood still
        return False

    wait_until(is_halted, "a second batch begins", 200, pause_max_s=0.005)


def _delete_records(job: LatestJob, before: int) -> None:
    from kafka import TopicPartition
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=job.source.bootstrap_servers)
    try:
        admin.delete_records({TopicPartition(_topic(job), p): before for p in range(PARTITIONS)})
    finally:
        admin.close()
