"""What a ticket service does with a compacted topic, end to end, while the cleaner runs.

Its tickets are published, published again, read by a new group from the beginning, and read while
they are published once more. Each time the table that is kept of the topic equals its source, and
an audit holds. `make test` has few tickets; `make interop` a million of 1 kB.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from bench.processes import OdradekProcess
from odradek.pipeline.admin import open_admin
from odradek.pipeline.audit import compare, compare_table, find_kept
from odradek.pipeline.delta_table import DeltaTable
from odradek.pipeline.formats import Format, ValueFormat
from odradek.pipeline.kept_table import Merged
from odradek.pipeline.keyed import Keyed
from odradek.pipeline.latest import wait
from odradek.pipeline.materializing import MaterializeJob, start
from odradek.pipeline.origin import Tickets
from odradek.pipeline.publishing import PublishJob, prepare, send
from odradek.pipeline.reading import BrokerTopic, take
from odradek.pipeline.source import TopicSource
from tests.support.forking import ForkedOdradek

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TOPIC = "tickets"
PARTITIONS = 8
ACCOUNTS = 100
SCHEMA = (
    "id BIGINT, account_id BIGINT, status STRING, version BIGINT, subject STRING, "
    "description STRING"
)
JSON = ValueFormat(Format.JSON, SCHEMA)
CLEANING_TIMEOUT_S = 300


@dataclass(frozen=True)
class Scale:
    """How many tickets, of how many bytes, in what segments and batches."""

    tickets: int
    bytes_each: int
    configs: Mapping[str, str]
    options: Mapping[str, str] = field(default_factory=dict)


SCALES = [
    pytest.param(
        Scale(
            4_000, 300, {"internal.segment.bytes": "40000"}, {"kafka.batch.size": "16384"}
        ),
        id="small",
        marks=pytest.mark.timeout(580),
    ),
    pytest.param(
        Scale(1_000_000, 1_000, {"segment.bytes": str(16 << 20)}),
        id="large",
        marks=[pytest.mark.interop, pytest.mark.timeout(3600)],
    ),
]


@pytest.fixture(scope="module", params=SCALES)
def service(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A ticket service whose broker cleans all the while."""
    folder = tmp_path_factory.mktemp("tickets")
    settings = {"log.cleaner.backoff.ms": "200", "log.cleaner.dedupe.buffer.size": "8000000"}
    broker = ForkedOdradek(folder / "broker", settings)
    broker.start()
    try:
        yield Service(spark, broker, folder, request.param)
    finally:
        broker.stop()


class Service:
    """Publishes tickets, keeps a table of them, audits the topic."""

    def __init__(
        self, spark: SparkSession, broker: OdradekProcess, folder: Path, scale: Scale
    ) -> None:
        self.spark, self.folder, self.scale = spark, folder, scale
        self.source = TopicSource(broker.bootstrap, topic=TOPIC, options=scale.options)
        table = DeltaTable(f"{folder}/table")
        self.job = MaterializeJob(
            self.source, table, f"{folder}/checkpoint", JSON, available_now=True
        )
        configs = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.1",
            **scale.configs,
        }
        with open_admin(spark, self.source) as admin:
            admin.create(TOPIC, PARTITIONS, configs)

    def tickets(self, version: int) -> Tickets:
        """Return the service's tickets in a version."""
        return Tickets(self.scale.tickets, self.scale.bytes_each, ACCOUNTS, version)

    def publish(self, version: int) -> None:
        """Publish all tickets in a version."""
        job = PublishJob(
            self.source, self.tickets(version), Keyed(["id"]), f"{self.folder}/work"
        )
        publication = prepare(self.spark, job)[0]
        assert send(self.spark, job, publication, lambda sent: None, threading.Event())

    def materialize(self) -> list[Merged]:
        """Bring the table up to date."""
        merges = list[Merged]()
        wait(start(self.spark, self.job, lambda batch_id, merged: merges.append(merged)))
        return merges

    def require_equal(self, version: int) -> None:
        """Hold the table against its source, both ways, and the topic against the table."""
        table = self.job.table.read(self.spark).select("value.*")
        source = self.tickets(version).read(self.spark)
        assert table.count() == self.scale.tickets
        assert table.exceptAll(source).count() == 0
        kept = find_kept(self.spark, TOPIC, self.job.table, self.job.checkpoint)
        take(self.spark, BrokerTopic(self.source), f"{self.folder}/now", JSON)
        report = compare_table(self.spark, TOPIC, kept, f"{self.folder}/now", 10)
        assert report.held, report

    def take(self, name: str) -> None:
        """Take a reading of the topic."""
        take(self.spark, BrokerTopic(self.source), f"{self.folder}/{name}")

    def require_kept(self, first: str, second: str) -> int:
        """Hold two readings against each other; return what was cleaned in between."""
        folder = self.folder
        report = compare(self.spark, TOPIC, f"{folder}/{first}", f"{folder}/{second}", 10)
        assert report.held, report
        return report.cleaned_between


class Group(threading.Thread):
    """A consumer group of one, that reads all of the topic from the beginning."""

    def __init__(self, service: Service, group_id: str) -> None:
        super().__init__(name=group_id, daemon=True)
        self.service, self.group_id = service, group_id
        self.versions: dict[bytes, int] = {}
        self.records = 0
        self._ends: dict[int, int] | None = None
        self._failure: BaseException | None = None

    def finish(self) -> None:
        """Have it read to the topic's end of now, and wait for it."""
        with open_admin(self.service.spark, self.service.source) as admin:
            self._ends = admin.offsets(TOPIC)
        self.join()
        if self._failure is not None:
            raise self._failure

    def run(self) -> None:
        from confluent_kafka import Consumer

        settings = {
            "bootstrap.servers": self.service.source.bootstrap_servers,
            "group.id": self.group_id,
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings)
        try:
            consumer.subscribe([TOPIC])
            positions = dict.fromkeys(range(PARTITIONS), 0)
            while self._ends is None or any(positions[n] < end for n, end in self._ends.items()):
                for message in consumer.consume(5000, timeout=0.5):
                    assert message.error() is None, message.error()
                    assert message.offset() >= positions[message.partition()]
                    positions[message.partition()] = message.offset() + 1
                    self.versions[message.key()] = json.loads(message.value())["version"]
                    self.records += 1
        except BaseException as failure:
            self._failure = failure
        finally:
            consumer.close()


def test_an_initial_publication(service: Service) -> None:
    service.publish(1)
    service.take("published")
    merged = service.materialize()
    assert sum(one.inserted for one in merged) == service.scale.tickets
    service.require_equal(1)


def test_a_republication_is_cleaned_and_keeps_what_is_last(service: Service) -> None:
    service.publish(2)
    service.take("republished")
    service.materialize()
    service.require_equal(2)
    service.require_kept("published", "republished")
    # All but what the segments that are still written hold of version 1 goes.
    deadline = time.monotonic() + CLEANING_TIMEOUT_S
    cleaned = 0
    while cleaned < service.scale.tickets // 2:
        assert time.monotonic() < deadline, f"only {cleaned} records have been cleaned"
        service.take("cleaned")
        cleaned = service.require_kept("published", "cleaned")
    service.require_kept("republished", "cleaned")
    service.require_equal(2)


def test_a_new_group_reads_all_from_the_beginning(service: Service) -> None:
    group = Group(service, "newcomers")
    group.start()
    group.finish()
    assert group.versions == _all(service, 2)


def test_a_consumer_during_a_republication_ends_with_what_is_last(service: Service) -> None:
    group = Group(service, "during")
    group.start()
    service.publish(3)
    group.finish()
    assert group.versions == _all(service, 3)
    service.materialize()
    service.require_equal(3)
    service.take("during")
    service.require_kept("cleaned", "during")


def _all(service: Service, version: int) -> dict[bytes, int]:
    return {b"%d" % number: version for number in range(1, service.scale.tickets + 1)}
