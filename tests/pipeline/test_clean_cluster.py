"""Cleaning on a standalone cluster of Spark's, whose executors and driver are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from bench.servers.spark_cluster import Cluster, running_cluster
from odradek.broker.shared.snapshot import SharedLogs, shared_logs
from tests.broker.clusters import ThreeSharingBrokers
from tests.pipeline.test_clean import IDLE, fill, latest, served
from tests.pipeline.test_segments import create

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.interop,
    pytest.mark.timeout(3000),
]

KILLS = 20
_EXECUTOR = b"CoarseGrainedExecutorBackend"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeSharingBrokers]:
    """Three brokers with a bucket."""
    settings = {"odradek.wal.checkpoint.bytes": str(1 << 20)}
    made = ThreeSharingBrokers(tmp_path_factory.mktemp("clean"), settings)
    made.start()
    yield made
    made.stop()
    made.close()


@pytest.fixture(scope="module")
def place(brokers: ThreeSharingBrokers) -> SharedLogs:
    """The catalog and the bucket of the brokers."""
    return shared_logs({}, brokers.settings)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def begin(
    cluster: Cluster, brokers: ThreeSharingBrokers, place: SharedLogs, topic: str, folder: Path
) -> subprocess.Popen[str]:
    """Start the command on the cluster."""
    command = [sys.executable, "-m", "odradek.cli.main", "pipeline", "clean", "--topic", topic]
    command += ["--master", cluster.master.address]
    command += ["--catalog", brokers.settings["odradek.catalog.url"]]
    command += ["--set", f"odradek.object.store.url={place.store_url}"]
    for setting in (
        "spark.task.maxFailures=1000",
        "spark.stage.maxConsecutiveAttempts=1000",
        "spark.deploy.maxExecutorRetries=-1",
    ):
        command += ["--conf", setting]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )


def executors(cluster: Cluster) -> list[int]:
    """Return the processes of the executors that the workers have started."""
    found = []
    for worker in cluster.workers:
        assert worker.process is not None
        for path in Path(f"/proc/{worker.process.pid}/task").glob("*/children"):
            found += [int(pid) for pid in path.read_text().split()]
    return [pid for pid in found if _EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_executors_are_killed_twenty_times(
    spark: SparkSession,
    cluster: Cluster,
    brokers: ThreeSharingBrokers,
    place: SharedLogs,
    tmp_path: Path,
) -> None:
    topic = create(brokers.bootstrap, 3, IDLE)
    fill(brokers.bootstrap, topic, 1, count=40_000)
    before = served(spark, brokers, topic)
    job = begin(cluster, brokers, place, topic, tmp_path)
    killed: list[int] = []
    is_over = threading.Event()

    def kill() -> None:
        while len(killed) < KILLS and not is_over.wait(0.5):
            for pid in executors(cluster)[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    killer = threading.Thread(target=kill)
    assert job.stdout is not None
    lines = []
    for line in job.stdout:
        lines.append(line)
        if line.startswith("reads"):
            killer.start()
    is_over.set()
    killer.join()
    assert job.wait() == 0, lines
    assert len(killed) == KILLS
    assert lines[-1] == "cleaned 3 partitions, left 0 as they are, failed 0\n"
    assert served(spark, brokers, topic) == latest(before)


def test_a_killed_driver_is_started_again(
    spark: SparkSession,
    cluster: Cluster,
    brokers: ThreeSharingBrokers,
    place: SharedLogs,
    tmp_path: Path,
) -> None:
    topic = create(brokers.bootstrap, 3, IDLE)
    fill(brokers.bootstrap, topic, 2)
    before = served(spark, brokers, topic)
    job = begin(cluster, brokers, place, topic, tmp_path)
    assert job.stdout is not None
    for line in job.stdout:
        if line.startswith("reads"):
            job.kill()
    assert job.wait() == -signal.SIGKILL
    assert served(spark, brokers, topic) == before
    job = begin(cluster, brokers, place, topic, tmp_path)
    said, _ = job.communicate(timeout=600)
    assert job.returncode == 0, said
    assert said.endswith("cleaned 3 partitions, left 0 as they are, failed 0\n")
    assert served(spark, brokers, topic) == latest(before)
