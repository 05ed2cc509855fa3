"""Apache Kafka's kafka-reassign-partitions.sh moves a partition to a broker of another host."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.processes import kafka_libs, kafka_tool
from tests.broker.test_admin_against_kafka import describe, names, topics
from tests.broker.test_cluster_against_kafka import Pair, odradeks
from tests.support.requests import creatable
from tests.support.waiting import wait_until

TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPIC, BROKER = 2, 4
COUNT, RECORD_BYTES = 400, 10_000
SIZE_BYTES = COUNT * RECORD_BYTES
SLOW_RATE, RATE = 20_000, 800_000  # bytes a second
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


class Mover:
    """Kafka's tool, for a move of t-0 from broker 1 to broker 2."""

    def __init__(self, pair: Pair, folder: Path) -> None:
        self._bootstrap = f"127.0.0.1:{pair.first.port}"
        self._file = folder / "moves.json"
        move = {"topic": "t", "partition": 0, "replicas": [2]}
        self._file.write_text(json.dumps({"version": 1, "partitions": [move]}))

    def run(self, *arguments: str) -> str:
        """Return what the tool prints."""
        to = ("--bootstrap-server", self._bootstrap)
        own = () if "--list" in arguments else ("--reassignment-json-file", str(self._file))
        ran = kafka_tool([TOOL, *to, *arguments, *own], check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


def throttles(pair: Pair) -> dict[str, str]:
    """Return the settings of throttles that the brokers know, without their defaults."""
    found = {}
    for kind, name, node_id in ((TOPIC, "t", 1), (BROKER, "1", 1), (BROKER, "2", 2)):
        (result,) = pair.ask(node_id, describe(kind, name, *RATES, *REPLICAS), 4).results
        for one in result.configs:
            if one.config_source in (1, 2):  # of a topic, of a broker
                found[f"{one.name} of {name}"] = one.value
    return found


def leader(pair: Pair) -> int:
    (topic,) = pair.ask(2, names("t"), 12).topics
    found: int = topic.partitions[0].leader_id
    return found


def produce(bootstrap: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for value in values:
        producer.produce("t", value, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


def consume(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    consumer.assign([TopicPartition("t", 0, 0)])
    values: list[bytes] = []
    end_s = time.monotonic() + 60
    while len(values) < count and time.monotonic() < end_s:
        for message in consumer.consume(count, 1):
            assert message.error() is None, message.error()
            values.append(message.value() or b"")
    consumer.close()
    return values


def copies(pair: Pair) -> list[Path]:
    """Return the directories of t-0 at the second broker, complete or not."""
    return sorted((pair.second.directory / "data").glob("t-0*"))


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kafkas_tool_moves_a_partition_at_a_rate(tmp_path: Path) -> None:
    if kafka_libs() is None:
        pytest.skip("Kafka's jars are not there: `make kafka` fetches them")
    with odradeks(tmp_path) as pair:
        wait_until(lambda: pair.alive(1) == pair.alive(2) == [1, 2])
        made = pair.ask(1, topics(creatable("t", -1, -1, assignments={0: [1]})), 7)
        assert not made.topics[0].error_code
        source = random.Random(1)
        values = [source.randbytes(RECORD_BYTES) for _ in range(COUNT)]
        produce(pair.first.bootstrap, values)
        mover = Mover(pair, tmp_path)

        # So slow that it does not end while the tool starts a few times.
        started = mover.run("--execute", "--throttle", str(SLOW_RATE))
        assert "Successfully started partition reassignment for t-0" in started
        wanted = {
            "leader.replication.throttled.replicas of t": "0:1",
            "follower.replication.throttled.replicas of t": "0:2",
            **{f"{rate} of {node_id}": str(SLOW_RATE) for rate in RATES for node_id in "12"},
        }
        # The broker that the tool has asked may be ahead of the other one.
        wait_until(lambda: throttles(pair) == wanted, "the rates are set")
        assert "t-0: replicas: 2,1. adding: 2. removing: 1." in mover.run("--list")
        wait_until(lambda: copies(pair), "the second broker begins a copy")
        assert "Reassignment of partition t-0 is still in progress." in mover.run("--verify")
        assert leader(pair) == 1

        cancelled = mover.run("--cancel")
        assert "Successfully cancelled partition reassignment for: t-0" in cancelled
        assert "No partition reassignments found." in mover.run("--list")
        wait_until(lambda: not throttles(pair), "no rate is left")
        wait_until(lambda: not copies(pair), "the copy is removed")
        assert leader(pair) == 1

        begun_s = time.monotonic()
        mover.run("--execute", "--throttle", str(RATE))
        produce(pair.first.bootstrap, [b"during the move"])
        wait_until(lambda: leader(pair) == 2, "the second broker leads the partition")
        # The budget of the first second, and a batch that is larger than what is left of one.
        assert time.monotonic() - begun_s > SIZE_BYTES / RATE - 2
        produce(pair.second.bootstrap, [b"after the move"])
        verified = mover.run("--verify")
        assert "Reassignment of partition t-0 is completed." in verified
        wait_until(lambda: not throttles(pair), "no rate is left")
        values += [b"during the move", b"after the move"]
        assert consume(pair.second.bootstrap, len(values)) == values
        assert [one.name for one in copies(pair)] == ["t-0"]
