"""The jobs on a later PySpark, with jars that Maven has put together.

`make interop` fetches both into .interop. What the jobs make is compared with what a plain
consumer sees of the topic.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from os import environ, pathsep
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from bench.processes import ROOT, OdradekProcess
from tests.interop.programs import BUILDS
from tests.pipeline.made import SCHEMA, consumed, delta_rows, parquet_rows
from tests.support.forking import ForkedOdradek

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.interop,
    pytest.mark.timeout(2400),
]

TOPIC, TICKETS = "tickets", 2_000
COMMAND_TIMEOUT_S = 600
PYTHON, LIBS = BUILDS / "spark" / "python", BUILDS / "spark" / "libs"
ENGINE = "Apache-Spark/4.2.0 Delta-Lake/4.4.0"


def test_the_tables_of_a_topic_equal_it(tmp_path: Path) -> None:
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("not installed: java and mvn")
    assert PYTHON.exists() and LIBS.exists(), "PySpark 4.2.0 is not there: run `make interop`"
    table, latest = tmp_path / "table", tmp_path / "latest"
    values = ("--format", "json", "--schema", SCHEMA)
    broker = ForkedOdradek(tmp_path / "broker")
    broker.start()
    try:
        made = ("--tickets", str(TICKETS), "--bytes", "300", "--partitions", "4", "--create")
        _run(broker, "publish", *made, "--work", f"{tmp_path}/work")
        _run(broker, "materialize", "--table", f"{table}", "--available-now", *values)
        said = _run(broker, "audit", "--table", f"{table}", *values)
        assert said.count("held") == 3
        assert "BROKEN" not in said
        _run(broker, "latest", "--table", f"{latest}", "--available-now")
        records = consumed(broker.bootstrap, TOPIC, TICKETS)
    finally:
        broker.stop()
    assert sorted(int(record.key) for record in records) == list(range(1, TICKETS + 1))
    assert delta_rows(table) == {
        (record.partition, record.key): (record.offset, json.loads(record.value))
        for record in records
    }
    [snapshot] = latest.glob("snapshot-*")
    assert parquet_rows(snapshot) == {
        (record.partition, record.key): (record.offset, record.value) for record in records
    }
    assert ENGINE in (table / "_delta_log" / f"{0:020d}.json").read_text()
    # Nothing was fetched: all was named.
    assert not list(tmp_path.glob("cache/*/ivy"))


def _run(broker: OdradekProcess, job: str, *arguments: str) -> str:
    """Run a job to its end, which is well, and return what it says."""
    where = ("--bootstrap-servers", broker.bootstrap, "--topic", TOPIC)
    what = ("--conf", f"spark.jars={LIBS}/*.jar", "--cache", f"{broker.directory.parent}/cache")
    environment = {name: value for name, value in environ.items() if name != "SPARK_HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", "pipeline", job, *where, *what, *arguments],
        cwd=broker.directory,
        env={**environment, "PYTHONPATH": pathsep.join((str(ROOT), str(PYTHON)))},
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
