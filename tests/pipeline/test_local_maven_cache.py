"""A local Maven repository that holds POMs without their jars must not stop a user.

Maven leaves such POMs behind whenever it needs only the POM. Ivy, as Spark sets it up, finds the
POM there, looks for the jar nowhere else, and fails.
"""

from __future__ import annotations

import subprocess
import sys
from os import environ
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

import pyspark

from bench.processes import ROOT
from odradek.pipeline.connector import KAFKA

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.interop, pytest.mark.timeout(400)]

PLAIN = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder.config("spark.jars.packages", sys.argv[1]).getOrCreate()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory whose Maven repository has POMs of all that Spark will ask for."""
    organisation, connector, version = KAFKA.coordinates(pyspark.__version__).split(":")
    for group, name, revision in (
        (organisation, connector, version),
        (organisation, "spark-token-provider-kafka-0-10_2.13", version),
        ("org.apache.kafka", "kafka-clients", "3.9.0"),
        ("org.lz4", "lz4-java", "1.8.0"),
    ):
        folder = tmp_path / "home/.m2/repository" / group.replace(".", "/") / name / revision
        folder.mkdir(parents=True)
        (folder / f"{name}-{revision}.pom").write_text(
            "<project><modelVersion>4.0.0</modelVersion>"
            f"<groupId>{group}</groupId><artifactId>{name}</artifactId>"
            f"<version>{revision}</version></project>"
        )
    return tmp_path / "home"


def test_spark_left_alone_fails(home: Path) -> None:
    done = _python(home, "-c", PLAIN, KAFKA.coordinates(pyspark.__version__))
    assert done.returncode != 0
    assert "download failed: org.apache.spark#spark-sql-kafka" in done.stderr


def test_our_session_starts_and_touches_nothing_in_the_home(home: Path, tmp_path: Path) -> None:
    before = sorted(home.rglob("*"))
    done = _python(home, "-m", "odradek.pipeline.fetch", "--cache", str(tmp_path / "cache"))
    if "connect to the network" in done.stderr:
        pytest.skip("Maven Central is out of reach")
    assert (done.returncode, done.stderr) == (0, "")
    assert KAFKA.coordinates(pyspark.__version__) in done.stdout
    assert sorted(home.rglob("*")) == before


def _python(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Java takes the home directory from the password database, not from HOME.
    environment = {**environ, "HOME": str(home), "SPARK_SUBMIT_OPTS": f"-Duser.home={home}"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
