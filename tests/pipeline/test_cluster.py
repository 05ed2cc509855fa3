"""The jobs on a standalone cluster of Spark's: nothing but --master says that there is one.

What they make is compared with what a plain consumer sees of the topic.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from os import environ
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

import pyspark

from bench.processes import ROOT, OdradekProcess
from bench.servers.spark_cluster import Cluster, running_cluster
from odradek.pipeline.connector import KAFKA, package_settings, prepare
from odradek.pipeline.session import jars_folder
from tests.pipeline.conftest import CACHE
from tests.pipeline.made import SCHEMA, consumed, delta_rows, parquet_rows
from tests.support.forking import ForkedOdradek

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.interop,
    pytest.mark.timeout(3000),
]

TOPIC, TICKETS = "tickets", 2_000
COMMAND_TIMEOUT_S = 900
SPARK_HOME = Path(environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


@dataclass(frozen=True)
class Scene:
    """A cluster, a broker, and a folder that all see."""

    cluster: Cluster
    broker: OdradekProcess
    folder: Path

    def run(self, job: str, *arguments: str, submitted: tuple[str, ...] | None = None) -> str:
        """Run a job to its end, which is well, and return what it says.

        ``submitted`` are options of spark-submit, which then runs it.
        """
        done = self.try_to_run(job, *arguments, submitted=submitted)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def try_to_run(
        self, job: str, *arguments: str, submitted: tuple[str, ...] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a job to its end."""
        master = ("--master", self.cluster.master.address)
        where = ("--bootstrap-servers", self.broker.bootstrap, "--topic", TOPIC)
        if submitted is None:
            command = [sys.executable, "-m", "odradek.cli.main", "pipeline", job, *master]
        else:
            submit = f"{SPARK_HOME}/bin/spark-submit"
            command = [submit, *master, *submitted, f"{ROOT}/pipeline/{job}.py"]
        return subprocess.run(
            [*command, *where, *arguments],
            cwd=self.folder,
            env={**environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )

    @property
    def environment(self) -> dict[str, str]:
        """Return what jobs are started with: no Python for the executors."""
        return {
            "PYTHONPATH": str(ROOT),
            "ODRADEK_CACHE": str(CACHE),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PYTHON": "/no/python/here",
        }


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A cluster, and a broker to whose topic tickets were published on it."""
    folder = tmp_path_factory.mktemp("cluster")
    broker = ForkedOdradek(folder / "broker")
    broker.start()
    try:
        with running_cluster(folder) as cluster:
            scene = Scene(cluster, broker, folder)
            made = ("--tickets", str(TICKETS), "--bytes", "300", "--partitions", "4")
            said = scene.run("publish", *made, "--create", "--work", f"{folder}/work")
            assert f"published {TICKETS} of {TICKETS} records" in said
            yield scene
    finally:
        broker.stop()


def test_tickets_are_published_once_each(scene: Scene) -> None:
    records = consumed(scene.broker.bootstrap, TOPIC, TICKETS)
    assert sorted(int(record.key) for record in records) == list(range(1, TICKETS + 1))
    assert all(json.loads(record.value)["id"] == int(record.key) for record in records)


def test_a_table_is_kept_that_an_audit_holds_against_the_topic(scene: Scene) -> None:
    table = f"{scene.folder}/table"
    values = ("--format", "json", "--schema", SCHEMA)
    said = scene.run("materialize", "--table", table, "--available-now", *values)
    assert f"inserted={TICKETS}" in said
    records = consumed(scene.broker.bootstrap, TOPIC, TICKETS)
    assert delta_rows(Path(table)) == {
        (record.partition, record.key): (record.offset, json.loads(record.value))
        for record in records
    }
    said = scene.run("audit", "--table", table, *values)
    assert "BROKEN" not in said
    assert said.count("held") == 3


def test_a_job_runs_by_spark_submit(scene: Scene) -> None:
    version = pyspark.__version__
    folder = jars_folder(CACHE, version)
    jars = frozenset(path.name for path in (SPARK_HOME / "jars").glob("*.jar"))
    prepare(folder)
    fetched = package_settings([KAFKA], jars, version, folder)
    options = [part for one in fetched.items() for part in ("--conf", "=".join(one))]
    table = scene.folder / "latest"
    named = ("--name", "latest-tickets", *options)
    said = scene.run("latest", "--table", str(table), "--available-now", submitted=named)
    assert f"keys={TICKETS}" in said
    assert scene.cluster.apps()[-1]["name"] == "latest-tickets"
    [snapshot] = table.glob("snapshot-*")
    records = consumed(scene.broker.bootstrap, TOPIC, TICKETS)
    assert parquet_rows(snapshot) == {
        (record.partition, record.key): (record.offset, record.value) for record in records
    }


def test_spark_submit_without_the_packages_fails_and_names_them(scene: Scene) -> None:
    done = scene.try_to_run(
        "materialize", "--table", f"{scene.folder}/none", "--available-now", submitted=()
    )
    assert done.returncode == 1
    # Spark-submit prints all that Python does to standard output.
    [line] = [one for one in done.stdout.splitlines() if one.startswith("Error: ")]
    assert f"--packages {KAFKA.coordinates(pyspark.__version__)},io.delta:" in line
    assert not (scene.folder / "none").exists()


def test_both_workers_ran_tasks_of_each_job(scene: Scene) -> None:
    assert scene.cluster.master.page()["aliveworkers"] == 2
    ended = scene.cluster.apps()
    assert ended
    for app in ended:
        assert (app["cores"], app["state"]) == (2, "FINISHED")
        assert all(scene.cluster.tasks(app["id"])), app
