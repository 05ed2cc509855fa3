"""Sessions one after another in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from pyspark.sql import SparkSession

from odradek.pipeline.connector import DELTA, KAFKA
from odradek.pipeline.session import SessionOptions, open_session
from tests.pipeline.conftest import CACHE, JAVA_OPTIONS

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.interop,  # starts Java twice, and a third time for the tests after it
    pytest.mark.timeout(600),
]


def test_a_later_session_has_its_own_packages_and_memory(tmp_path: Path) -> None:
    settings = {"spark.driver.extraJavaOptions": JAVA_OPTIONS, "spark.driver.memory": "600m"}
    with open_session(SessionOptions(CACHE, settings=settings, packages=(KAFKA,))) as spark:
        java = spark.sparkContext._gateway.proc
        assert _memory_bytes(spark) <= 600 << 20
    settings["spark.driver.memory"] = "900m"
    options = SessionOptions(CACHE, settings=settings, packages=(KAFKA, DELTA))
    with open_session(options) as spark:
        assert java.poll() is not None
        assert 600 << 20 < _memory_bytes(spark) <= 900 << 20
        spark.range(3).write.format("delta").save(str(tmp_path / "table"))
        assert spark.read.format("delta").load(str(tmp_path / "table")).count() == 3


def _memory_bytes(spark: SparkSession) -> int:
    return int(spark._jvm.Runtime.getRuntime().maxMemory())
