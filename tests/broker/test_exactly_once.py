"""Copies in transactions whose copiers and broker are killed: each message comes once.

`make test` runs a short form, `make interop` a long one; FUZZ_SEED says where its kills fall.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import ROOT, OdradekProcess
from tests.conftest import StartBroker
from tests.fuzz.seeds import FIRST_SEED

PARTITIONS = 2
PATIENCE_S = 120.0
SETTINGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}


@dataclass
class Copiers:
    """One copier a partition; one that ends is started again."""

    broker: OdradekProcess
    directory: Path
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    starts: int = 0

    def keep_running(self) -> None:
        """Start those that do not run."""
        for partition in range(PARTITIONS):
            process = self.processes.get(partition)
            if process is None or process.poll() is not None:
                self.starts += 1
                output = (self.directory / f"copier-{self.starts}").open("wb")
                arguments = [self.broker.bootstrap, "source", "target", str(partition)]
                self.processes[partition] = subprocess.Popen(
                    [sys.executable, "-m", "tests.broker.copier", *arguments],
                    stdout=output,
                    stderr=output,
                    cwd=ROOT,
                )
                output.close()

    def kill(self, partition: int) -> None:
        """End a copier at once."""
        self.processes[partition].kill()
        self.processes[partition].wait()

    def stop(self) -> None:
        """End all."""
        for partition in list(self.processes):
            self.kill(partition)


@pytest.fixture
def copiers(start_broker: StartBroker, tmp_path: Path) -> Iterator[Copiers]:
    made = Copiers(start_broker(SETTINGS), tmp_path)
    yield made
    made.stop()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_each_message_is_copied_once(copiers: Copiers) -> None:
    _copy(copiers, count=300, kills=4, seed=0)


@pytest.mark.interop
@pytest.mark.timeout(3600)
def test_each_message_is_copied_once_whatever_is_killed(copiers: Copiers) -> None:
    _copy(copiers, count=6_000, kills=40, seed=FIRST_SEED)


def _copy(copiers: Copiers, count: int, kills: int, seed: int) -> None:
    broker, random = copiers.broker, Random(seed)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(name, PARTITIONS) for name in ("source", "target")]
    for created in admin.create_topics(topics).values():
        created.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce("source", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0
    # A kill each time so many messages more have been copied.
    moments = sorted(random.sample(range(count * 9 // 10), kills))
    reader = Reader(broker)
    for moment in [*moments, count]:
        deadline = time.monotonic() + PATIENCE_S
        while reader.count < moment:
            assert time.monotonic() < deadline, f"{reader.count} of {moment} have been copied"
            copiers.keep_running()
            reader.read()
        if moment == count:
            break
        if random.random() < 0.5:
            broker.kill()
            broker.start()
        else:
            copiers.kill(random.randrange(PARTITIONS))
    copiers.stop()
    reader.read()
    for partition in range(PARTITIONS):
        expected = [b"%d" % number for number in range(partition, count, PARTITIONS)]
        assert reader.seen[partition] == expected
    reader.close()


class Reader:
    """Reads what is committed of the target."""

    def __init__(self, broker: OdradekProcess) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign(
            [TopicPartition("target", partition, 0) for partition in range(PARTITIONS)]
        )
        self.seen: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}

    @property
    def count(self) -> int:
        """How many messages have been read."""
        return sum(map(len, self.seen.values()))

    def read(self) -> None:
        """Read what there is."""
        for one in self._consumer.consume(100, 0.3):
            if one.error() is None:
                self.seen[one.partition()].append(one.value())

    def close(self) -> None:
        """End."""
        self._consumer.close()
