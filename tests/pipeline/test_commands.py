"""What the commands decide before, after and without Java."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from click.testing import CliRunner
from pyspark.sql import Row

from odradek.pipeline.connector import DELTA, KAFKA
from odradek.pipeline.latest import latest_command
from odradek.pipeline.materialize import materialize_command
from odradek.pipeline.read import format_rows, read_command
from odradek.pipeline.session import SessionOptions, explain_start, named_jars, session_settings

pytestmark = pytest.mark.spark

JARS = frozenset({"spark-core_2.13-4.0.0.jar"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--topic and --subscribe-pattern"),
        (["--topic", "a", "--subscribe-pattern", "b"], "--topic and --subscribe-pattern"),
        (["--topic", "a", "--starting-offsets", "first"], "--starting-offsets"),
        (["--topic", "a", "--max-offsets-per-trigger", "0"], "at least 1"),
        (["--topic", "a", "--bootstrap-servers", "nowhere"], "--bootstrap-servers"),
        (["--topic", "a", "--option", "kafka.x"], "--option 'kafka.x' is not NAME=VALUE"),
        (["--topic", "a", "--conf", "=x"], "--conf '=x' is not NAME=VALUE"),
        (["--topic", "a", "--keep-snapshots", "0"], "--keep-snapshots"),
    ],
)
def test_a_bad_option_is_refused_before_spark_starts(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(latest_command, ["--table", str(tmp_path / "table"), *arguments])
    assert result.exit_code in (1, 2)
    assert result.output.startswith(("Error: ", "Usage: "))
    assert words in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--table", "t", "--warehouse", "w"], "need --table-format iceberg"),
        (["--table", "t", "--iceberg-catalog", "http://x"], "need --table-format iceberg"),
        (["--table", "n.t", "--table-format", "iceberg"], "iceberg needs --checkpoint"),
        (["--table", "t", "--table-format", "iceberg", "--checkpoint", "c"], "NAMESPACE.TABLE"),
        (["--table", ".t", "--table-format", "iceberg", "--checkpoint", "c"], "NAMESPACE.TABLE"),
        (["--table", "t", "--table-format", "hudi"], "'hudi' is not one of 'delta', 'iceberg'"),
    ],
)
def test_an_option_that_does_not_fit_the_tables_format_is_refused(
    arguments: list[str], words: str
) -> None:
    result = CliRunner().invoke(materialize_command, ["--topic", "a", *arguments])
    assert result.exit_code == 2
    assert words in result.output


def test_the_broker_of_the_environment_is_asked_unless_an_option_names_one(tmp_path: Path) -> None:
    arguments = ["--topic", "a", "--table", str(tmp_path / "table")]
    for more, words in (([], "'there'"), (["--bootstrap-servers", "here"], "'here'")):
        environment = {"ODRADEK_BOOTSTRAP_SERVERS": "there"}
        result = CliRunner().invoke(latest_command, [*arguments, *more], env=environment)
        assert result.exit_code == 1
        assert f"--bootstrap-servers: {words} is not host:port" in result.output


def test_a_topic_and_a_table_cannot_both_be_printed(tmp_path: Path) -> None:
    result = CliRunner().invoke(read_command, ["--topic", "a", "--table", str(tmp_path)])
    assert result.exit_code == 2
    assert "not both" in result.output


def test_the_users_settings_win_and_an_empty_one_unsets(tmp_path: Path) -> None:
    own = {"spark.driver.memory": "3g", "spark.jars.packages": ""}
    settings = session_settings(SessionOptions(tmp_path, settings=own), JARS, "4.0.0")
    assert settings["spark.driver.memory"] == "3g"
    assert "spark.jars.packages" not in settings
    assert settings["spark.master"] == "local[2]"


@pytest.mark.parametrize(
    ("given", "packages"),
    [
        ("a:b:1", ["a:b:1", KAFKA.coordinates("4.0.0")]),
        ("a:b:1,c:d:2", ["a:b:1", "c:d:2", KAFKA.coordinates("4.0.0")]),
        ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",) * 2,
    ],
)
def test_the_users_packages_are_added_and_replace_other_versions(
    given: str, packages: str | list[str], tmp_path: Path
) -> None:
    own = {"spark.jars.packages": given}
    settings = session_settings(SessionOptions(tmp_path, settings=own), JARS, "4.0.0")
    wanted = packages if isinstance(packages, str) else ",".join(packages)
    assert settings["spark.jars.packages"] == wanted


def test_spark_submits_options_win_over_defaults_and_the_commands_win_over_both(
    tmp_path: Path,
) -> None:
    submitted = {
        "spark.master": "spark://10.0.0.5:7077",
        "spark.sql.shuffle.partitions": "64",
        "spark.executor.memory": "3g",
    }
    own = {"spark.executor.memory": "5g"}
    options = SessionOptions(tmp_path, settings=own, packages=(KAFKA, DELTA))
    settings = session_settings(options, JARS, "4.0.0", submitted)
    assert settings["spark.master"] == "spark://10.0.0.5:7077"
    assert settings["spark.sql.shuffle.partitions"] == "64"
    assert settings["spark.executor.memory"] == "5g"
    assert settings.items() >= DELTA.settings.items()
    # Java runs already: a package that is asked for now is never fetched.
    assert not {name for name in settings if name.startswith("spark.jars")}
    chosen = session_settings(replace(options, master="local[1]"), JARS, "4.0.0", submitted)
    assert chosen["spark.master"] == "local[1]"


@pytest.mark.parametrize(
    ("master", "is_here"),
    [
        (None, True),
        ("local", True),
        ("local[*]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://10.0.0.5:7077", False),
        ("spark://localhost.example:7077", False),
        ("yarn", False),
    ],
)
def test_a_session_listens_on_loopback_where_all_of_it_runs_here(
    master: str | None, is_here: bool, tmp_path: Path
) -> None:
    settings = session_settings(SessionOptions(tmp_path, master=master), JARS, "4.0.0")
    assert (settings.get("spark.driver.host") == "127.0.0.1") is is_here


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
@pytest.mark.parametrize("wildcard", [False, True])
def test_jars_that_are_named_are_not_fetched(wildcard: bool, scheme: str, tmp_path: Path) -> None:
    connector = tmp_path / "spark-sql-kafka-0-10_2.13-4.2.0.jar"
    connector.touch()
    given = tmp_path / "*.jar" if wildcard else connector
    named = named_jars(f"s3a://jars/ours.jar, {scheme}{given}")
    assert {"ours.jar", connector.name} <= named
    options = SessionOptions(tmp_path, packages=(KAFKA, DELTA))
    settings = session_settings(options, JARS | named, "4.2.0")
    assert settings["spark.jars.packages"] == DELTA.coordinates("4.2.0")


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ("x\nRuntimeException: [unresolved dependency: a.b#c;1: not found]", "lacks a.b#c;1"),
        ("Host x.example not found.\n[unresolved dependency: a#b;1: not found]", "network"),
        ("Invalid maximum heap size: -Xmxoops", "spark.driver.memory=1g"),
        ("java.lang.UnsupportedOperationException: getSubject is supported only", "Java 24"),
        ('Exception in thread "main" org.apache.spark.SparkException: Master must', "Master must"),
        ("", "--debug"),
    ],
)
def test_a_failed_start_is_reported_in_one_line(report: str, message: str, tmp_path: Path) -> None:
    settings = session_settings(SessionOptions(tmp_path), JARS, "4.0.0")
    line = explain_start(report, settings, 24)
    assert message in line
    assert "\n" not in line


def test_rows_are_printed_in_aligned_columns_and_bytes_that_are_no_text_as_hexadecimal() -> None:
    when = datetime(2025, 5, 1, 10, 0, 0, 3000, tzinfo=UTC).replace(tzinfo=None)
    rows = [
        Row(partition=0, offset=3, timestamp=when, key=bytearray(b"p3"), value=bytearray(b"11")),
        Row(partition=0, offset=123, timestamp=when, key=None, value=bytearray(b"\xff\x00")),
        Row(partition=0, offset=124, timestamp=when, key=b"a\nb", value=None),
    ]
    assert list(format_rows(rows)) == [
        "partition  offset  timestamp                key       value",
        "        0       3  2025-05-01 10:00:00.003  p3        11",
        "        0     123  2025-05-01 10:00:00.003  (null)    0xff00",
        "        0     124  2025-05-01 10:00:00.003  0x610a62  (null)",
    ]
