"""Odradek and Apache Kafka with the same topics, and one Spark session that reads both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bench.processes import KafkaProcess, OdradekProcess
from tests.pipeline.reading import Reader
from tests.pipeline.topics import CLEANED_PLACES, Topics, fill, wait_until_cleaned
from tests.support.forking import ForkedOdradek

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_SETTINGS = {"log.cleaner.backoff.ms": "200", "log.cleaner.dedupe.buffer.size": "8000000"}
_KAFKA_SETTINGS = {
    **_SETTINGS,
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


@dataclass
class Side:
    """One of the brokers: what changes its topics, and Spark's source on it."""

    name: str
    broker: OdradekProcess | KafkaProcess
    topics: Topics
    reader: Reader


@dataclass
class Both:
    """Both brokers; what is done with one is done with the other at the same time."""

    odradek: Side
    kafka: Side
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2))

    def play(self, act: Callable[[Side], T]) -> tuple[T, T]:
        """Do something with each, and return what came of it: Odradek's first."""
        ours, kafkas = self._threads.map(act, (self.odradek, self.kafka))
        return ours, kafkas


@contextmanager
def running_both(spark: SparkSession, folder: Path) -> Iterator[Both]:
    """Start both brokers, and fill them."""
    brokers: Mapping[str, OdradekProcess | KafkaProcess] = {
        "odradek": ForkedOdradek(folder / "odradek", _SETTINGS),
        "kafka": KafkaProcess(folder / "kafka", _KAFKA_SETTINGS),
    }

    def begin(name: str) -> Side:
        broker = brokers[name]
        broker.start()
        topics = Topics(broker.bootstrap)
        fill(topics)
        wait_until_cleaned(broker.data, CLEANED_PLACES)
        return Side(name, broker, topics, Reader(spark, broker.bootstrap, folder))

    try:
        with ThreadPoolExecutor(2) as threads:
            odradek, kafka = threads.map(begin, brokers)
        yield Both(odradek, kafka)
    finally:
        for broker in brokers.values():
            broker.stop()
