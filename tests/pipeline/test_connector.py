"""Which connector goes with which Spark, and which jars Ivy is asked for."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from odradek.pipeline.connector import (
    AVRO,
    DELTA,
    ICEBERG,
    IVY_SETTINGS,
    KAFKA,
    PROTOBUF,
    Package,
    package_settings,
    prepare,
    spark_version,
)
from odradek.pipeline.errors import PipelineError

DISTRIBUTION = frozenset(
    {"spark-core_2.13-4.0.0.jar", "lz4-java-1.8.0.jar", "slf4j-api-2.0.16.jar", "jsr305-3.0.0.jar"}
)


@pytest.mark.parametrize(
    ("spark", "connector"),
    [
        ("4.0.0", "4.0.0"),
        ("4.0.1", "4.0.1"),
        ("4.1.0", "4.1.0"),
        ("4.2.0", "4.2.0"),
        ("4.1.0.dev1", "4.1.0"),
    ],
)
def test_a_spark_that_has_a_connector_takes_its_own(spark: str, connector: str) -> None:
    assert KAFKA.coordinates(spark).split(":")[-1] == connector


def test_a_spark_that_delta_lake_does_not_work_with_is_refused() -> None:
    assert DELTA.coordinates("4.2.9")
    message = r"delta-spark has nothing for Spark 4\.3\.0 yet.*<4\.3"
    with pytest.raises(PipelineError, match=message):
        DELTA.coordinates("4.3.0")


def test_a_spark_that_iceberg_does_not_work_with_is_refused() -> None:
    assert ICEBERG.coordinates("4.0.7").split(":")[1] == "iceberg-spark-runtime-4.0_2.13"
    assert ICEBERG.coordinates("4.1.1").split(":")[1] == "iceberg-spark-runtime-4.1_2.13"
    with pytest.raises(PipelineError, match=r"^iceberg-spark-runtime has nothing .*<4\.2"):
        ICEBERG.coordinates("4.2.0")


@pytest.mark.parametrize("package", [KAFKA, AVRO, PROTOBUF, DELTA])
@pytest.mark.parametrize("spark", ["4.0.99", "4.1.0", "4.1.99", "4.2.1", "4.3.0", "4.9.2"])
def test_another_spark_takes_what_is_nearest(package: Package, spark: str) -> None:
    major, minor, patch = (int(part) for part in spark.split("."))
    if package is DELTA and minor > 2:
        return  # it has nothing for these, as the test above says
    chosen = next(
        version
        for version, coordinates in package.published.items()
        if coordinates == package.coordinates(spark)
    )
    lines = {version[:2] for version in package.published}
    assert chosen[:2] == max(line for line in lines if line <= (major, minor))
    for other in package.published:
        if other[:2] == chosen[:2]:
            assert other <= chosen or other > (major, minor, patch)


@pytest.mark.parametrize("spark", ["3.5.8", "5.0.0", "main", ""])
def test_another_line_of_spark_is_refused_with_the_one_to_install(spark: str) -> None:
    with pytest.raises(PipelineError, match="pip install 'pyspark>="):
        KAFKA.coordinates(spark)


def test_only_what_the_distribution_holds_is_left_out(tmp_path: Path) -> None:
    excluded = package_settings([KAFKA], DISTRIBUTION, "4.0.0", tmp_path)["spark.jars.excludes"]
    assert set(excluded.split(",")) == {
        "org.lz4:lz4-java",
        "at.yawk.lz4:lz4-java",
        "org.slf4j:slf4j-api",
        "com.google.code.findbugs:jsr305",
    }


@pytest.mark.parametrize("prefix", ["", "org.apache.spark_"])
def test_nothing_is_fetched_where_the_connector_is_there(prefix: str, tmp_path: Path) -> None:
    jars = DISTRIBUTION | {f"{prefix}spark-sql-kafka-0-10_2.13-4.0.0.jar"}
    assert package_settings([KAFKA], jars, "4.0.0", tmp_path) == {}


def test_settings_of_a_package_are_set_though_the_distribution_holds_it(tmp_path: Path) -> None:
    jars = DISTRIBUTION | {"delta-spark_2.13-4.0.1.jar"}
    assert package_settings([DELTA], jars, "4.0.0", tmp_path) == DELTA.settings
    both = package_settings([KAFKA, DELTA], jars, "4.0.0", tmp_path)
    assert both["spark.jars.packages"] == KAFKA.coordinates("4.0.0")


def test_the_version_of_spark_is_read_from_its_jars() -> None:
    assert spark_version(DISTRIBUTION) == "4.0.0"
    assert spark_version({"spark-core_2.12-3.5.0.jar", "scala-library-2.13.jar"}) is None


def test_ivy_knows_maven_central_alone_and_no_address() -> None:
    settings = ElementTree.fromstring(IVY_SETTINGS)
    resolvers = {element.tag for element in settings.iter() if element.get("m2compatible")}
    assert resolvers == {"ibiblio"}
    assert "://" not in IVY_SETTINGS
    assert not [element for element in settings.iter() if element.get("root")]


def test_preparing_twice_leaves_the_settings_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "spark-4.0.0"
    prepare(folder)
    first = (folder / "ivysettings.xml").stat()
    prepare(folder)
    assert (folder / "ivysettings.xml").stat().st_mtime_ns == first.st_mtime_ns
    assert [path.name for path in folder.iterdir()] == ["ivysettings.xml"]


def test_settings_of_another_version_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "ivysettings.xml").write_text("<ivysettings/>")
    prepare(tmp_path)
    assert (tmp_path / "ivysettings.xml").read_text() == IVY_SETTINGS


def test_a_cache_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match="--cache"):
        prepare(tmp_path / "file" / "spark-4.0.0")


def test_sessions_that_begin_at_once_prepare_the_same_folder(tmp_path: Path) -> None:
    """No session renames the draft of another."""
    with ThreadPoolExecutor(8) as pool:
        for number in range(50):
            folder = tmp_path / str(number)
            list(pool.map(prepare, [folder] * 8))
            assert [path.name for path in folder.iterdir()] == ["ivysettings.xml"]
