"""A broker, a Spark session and topics for the pipeline's tests.

The broker is Odradek, or whichever ODRADEK_TEST_BOOTSTRAP names: the same tests then say whether
a difference is the broker's. Such a broker needs log.cleaner.backoff.ms=500 or so.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.broker.clusters import ThreeSharingBrokers
from tests.support.forking import ForkedOdradek

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.both import Both

MakeTopic = Callable[..., str]

# One record to produce: partition, key, value (None deletes the key), headers.
Produced = tuple[int, bytes, bytes | None, Sequence[tuple[str, bytes]]]
Produce = Callable[[str, Sequence[Produced]], None]

CACHE = Path(environ.get("ODRADEK_CACHE", "~/.cache/odradek")).expanduser()

# Most queries read some records only: compiling much for them would take longer.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="module")
def broker_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the broker under test."""
    given = environ.get("ODRADEK_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    settings = {"log.cleaner.backoff.ms": "500", "log.cleaner.dedupe.buffer.size": "8000000"}
    broker = ForkedOdradek(tmp_path_factory.mktemp("broker"), settings)
    broker.start()
    yield broker.bootstrap
    broker.stop()


@pytest.fixture(scope="module")
def spark(java_of_spark: None) -> Iterator[SparkSession]:
    """One small Spark session for all tests of a module.

    Every module's has the same settings, so that they share one Java process.
    """
    from odradek.pipeline.connector import AVRO, DELTA, ICEBERG, KAFKA
    from odradek.pipeline.session import SessionOptions, open_session
    from tests.pipeline.tables import SQLITE

    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    }
    packages = (KAFKA, DELTA, AVRO, ICEBERG, SQLITE)
    with open_session(SessionOptions(CACHE, settings=settings, packages=packages)) as session:
        yield session


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """Odradek and Apache Kafka with the same topics, and one Spark session that reads both."""
    from tests.pipeline.both import running_both

    with running_both(spark, tmp_path_factory.mktemp("both")) as brokers:
        yield brokers


@pytest.fixture(scope="module")
def sharing_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeSharingBrokers]:
    """Three brokers with a bucket, which clean often, and store what they have soon."""
    settings = {
        "log.cleaner.backoff.ms": "500",
        "log.cleaner.dedupe.buffer.size": "8000000",
        "odradek.wal.checkpoint.bytes": str(1 << 20),
    }
    made = ThreeSharingBrokers(tmp_path_factory.mktemp("shared"), settings)
    made.start()
    yield made
    made.stop()
    made.close()


@pytest.fixture
def make_topic(broker_bootstrap: str) -> MakeTopic:
    """Create a topic: make_topic(partitions=2, **{"cleanup.policy": "compact"}) -> its name."""
    from kafka.admin import KafkaAdminClient, NewTopic

    def make(partitions: int = 1, **config: str) -> str:
        name = f"pipeline-{uuid.uuid4().hex[:12]}"
        admin = KafkaAdminClient(bootstrap_servers=broker_bootstrap)
        try:
            admin.create_topics([NewTopic(name, partitions, 1, topic_configs=config)])
        finally:
            admin.close()
        return name

    return make


@pytest.fixture
def produce(broker_bootstrap: str) -> Iterator[Produce]:
    """Produce records in order, all acknowledged when it returns."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=broker_bootstrap, acks="all", linger_ms=5)

    def send(topic: str, records: Sequence[Produced]) -> None:
        sent = [
            producer.send(topic, value, key=key, partition=partition, headers=list(headers))
            for partition, key, value, headers in records
        ]
        producer.flush(timeout=60)
        for future in sent:
            future.get(timeout=0)

    yield send
    producer.close(timeout=10)
