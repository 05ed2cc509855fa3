"""An error of a job is reported in one line that says what to change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from odradek.pipeline.admin import open_admin, require_compacted
from odradek.pipeline.delta_table import DeltaTable
from odradek.pipeline.formats import Format, ValueFormat
from odradek.pipeline.keyed import Keyed
from odradek.pipeline.latest import wait
from odradek.pipeline.materializing import MaterializeJob, start
from odradek.pipeline.options import errors_in_one_line
from odradek.pipeline.origin import TableSource, Tickets
from odradek.pipeline.publishing import PublishJob, prepare, send
from odradek.pipeline.source import TopicSource
from tests.pipeline.conftest import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

Origin = TableSource | Tickets


@pytest.fixture
def source(broker_bootstrap: str, make_topic: MakeTopic) -> TopicSource:
    """An empty compacted topic."""
    return TopicSource(broker_bootstrap, topic=make_topic(1, **{"cleanup.policy": "compact"}))


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        (TableSource("/nowhere/table"), "there is no table at file:/nowhere/table"),
        (TableSource("/tmp", format="parqet"), "Spark knows no table format parqet"),
        (TableSource("jdbc:none:x", options={"dbtable": "t"}), "no JDBC driver for that address"),
        ("csv", "--where or --deleted-where names a column"),
    ],
    ids=["path", "format", "driver", "column"],
)
def test_a_table_that_cannot_be_read(
    spark: SparkSession, source: TopicSource, tmp_path: Path, origin: Origin | str, words: str
) -> None:
    if isinstance(origin, str):
        (tmp_path / "table.csv").write_text("id\n1\n")
        origin = TableSource(str(tmp_path / "table.csv"), where="nme = 'x'")
    job = PublishJob(source, origin, Keyed(["id"]), str(tmp_path / "work"))
    line = _line(source, lambda: prepare(spark, job))
    assert words in line
    assert not (tmp_path / "work").exists()


def test_a_condition_that_is_no_sql(
    spark: SparkSession, source: TopicSource, tmp_path: Path
) -> None:
    keyed = Keyed(["id"], deleted_where="id is is null")
    job = PublishJob(source, Tickets(1), keyed, str(tmp_path / "work"))
    assert "is not valid Spark SQL" in _line(source, lambda: prepare(spark, job))


def test_a_record_that_is_too_large_for_the_producer(
    spark: SparkSession, source: TopicSource, tmp_path: Path
) -> None:
    job = PublishJob(source, Tickets(1, 2_000_000), Keyed(["id"]), str(tmp_path / "work"))
    publication = prepare(spark, job)[0]
    line = _line(
        source, lambda: send(spark, job, publication, lambda sent: None, threading.Event())
    )
    assert "kafka.max.request.size" in line


def test_a_record_that_is_too_large_for_the_topic(
    spark: SparkSession, broker_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1, **{"cleanup.policy": "compact", "max.message.bytes": "1000"})
    source = TopicSource(broker_bootstrap, topic=topic)
    job = PublishJob(source, Tickets(1, 5000), Keyed(["id"]), str(tmp_path / "work"))
    publication = prepare(spark, job)[0]
    line = _line(
        source, lambda: send(spark, job, publication, lambda sent: None, threading.Event())
    )
    assert f"larger than topic {topic} accepts: raise its max.message.bytes" in line


def test_a_topic_that_is_not_there_or_not_compacted(
    spark: SparkSession, broker_bootstrap: str, make_topic: MakeTopic
) -> None:
    for topic, words in (("nowhere", "does not exist"), (make_topic(), "cleanup.policy=delete")):
        source = TopicSource(broker_bootstrap, topic=topic)
        with open_admin(spark, source) as admin:
            line = _line(source, lambda: require_compacted(admin, source))  # noqa: B023
        assert words in line


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (ValueFormat(Format.JSON, "id BIGINT"), "offset 0 of "),
        (ValueFormat(Format.JSON, "id BIGNIT"), "--schema 'id BIGNIT' is not a Spark schema"),
        (ValueFormat(Format.AVRO, '{"type": "rekord"}'), "--schema is not an Avro schema"),
        (ValueFormat(Format.AVRO, '{"type": "rec'), "--schema is not an Avro schema"),
    ],
    ids=["value", "json schema", "avro schema", "avro json"],
)
def test_values_that_do_not_fit_inside_a_stream(
    spark: SparkSession,
    source: TopicSource,
    produce: Produce,
    tmp_path: Path,
    values: ValueFormat,
    words: str,
) -> None:
    produce(str(source.topic), [(0, b"k", b"no json", [])])
    job = MaterializeJob(source, DeltaTable(str(tmp_path / "t")), str(tmp_path / "c"), values)
    line = _line(source, lambda: wait(start(spark, job, lambda batch_id, merged: None)))
    assert words in line
    assert not (tmp_path / "t").exists()


def _line(source: TopicSource, act: Callable[[], object]) -> str:
    with pytest.raises(click.ClickException) as failure, errors_in_one_line(source, debug=False):
        act()
    assert "\n" not in failure.value.message
    assert "--debug" not in failure.value.message, "a cause that has no words of its own"
    return failure.value.message
