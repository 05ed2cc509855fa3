"""The tickets that are made where no table is at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from pyspark.sql import functions as f

from odradek.pipeline.keyed import Keyed, as_records
from odradek.pipeline.tickets import STATUSES, tickets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_they_are_the_same_whatever_machine_makes_them(spark: SparkSession) -> None:
    first = tickets(spark, 500, bytes_each=300, accounts=7)
    again = tickets(spark, 500, bytes_each=300, accounts=7).repartition(5)
    assert first.exceptAll(again).count() == again.exceptAll(first).count() == 0


def test_another_version_has_the_same_tickets_with_other_contents(spark: SparkSession) -> None:
    first = tickets(spark, 500, bytes_each=300, accounts=7)
    second = tickets(spark, 500, bytes_each=300, accounts=7, version=2)
    both = first.alias("a").join(second.alias("b"), ["id", "account_id", "subject"])
    assert both.where("a.description <> b.description AND a.version <> b.version").count() == 500


def test_more_tickets_are_those_and_further_ones(spark: SparkSession) -> None:
    few = tickets(spark, 100, bytes_each=300, accounts=7)
    many = tickets(spark, 500, bytes_each=300, accounts=7)
    assert few.exceptAll(many).count() == 0


@pytest.mark.parametrize("bytes_each", [400, 1000, 5000])
def test_they_have_the_size_asked_for(spark: SparkSession, bytes_each: int) -> None:
    records = as_records(tickets(spark, 1000, bytes_each=bytes_each, accounts=7), Keyed(["id"]))
    mean = records.agg(f.avg(f.length("value"))).collect()[0][0]
    assert mean == pytest.approx(bytes_each, abs=30)


def test_accounts_and_statuses_are_spread(spark: SparkSession) -> None:
    made = tickets(spark, 2000, bytes_each=300, accounts=7)
    assert {row[0] for row in made.select("account_id").distinct().collect()} == set(range(1, 8))
    assert {row[0] for row in made.select("status").distinct().collect()} == set(STATUSES)
