"""Two brokers beside two of Apache Kafka: what each says about the cluster, as one comes and goes.

The same script goes to both clusters: while both brokers are alive, while one is stopped, after
that one was unregistered, and once it is back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.processes import KafkaProcess, OdradekProcess, kafka_libs
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from odradek.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.broker.kafka_peer import Peer
from tests.broker.test_admin_against_kafka import change, describe, names, replace, topics
from tests.broker.test_quorum_against_kafka import flat, quorum
from tests.support.forking import ForkedOdradek
from tests.support.requests import creatable
from tests.support.waiting import wait_until

BROKER, LOGGER = 4, 8
SET, DELETE = 0, 1
PREFERRED, UNCLEAN = 0, 1
SECOND_STOPPED, SECOND_UNREGISTERED = "second stopped", "second unregistered"
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "auto.create.topics.enable": "false",
}


@dataclass
class Pair:
    """Two brokers of one cluster; the second may be stopped and started again."""

    first: OdradekProcess | KafkaProcess
    second: OdradekProcess | KafkaProcess

    def ask(self, node_id: int, request: Any, version: int) -> Any:
        """Return the answer of a broker."""
        broker = self.first if node_id == 1 else self.second
        with Peer(broker.port) as peer:
            return peer.ask(request, version)

    def shown(self, answer: Any) -> dict[str, Any]:
        """Return the values in an answer by their places; ports by their brokers."""
        if isinstance(answer, ElectLeadersResponse):
            answer.replica_election_results.sort(key=lambda one: one.topic)
        ports = {self.first.port: "port of 1", self.second.port: "port of 2"}
        return {
            place: ports.get(value, value) if isinstance(value, int) else value
            for place, value in flat(answer)
        }

    def alive(self, node_id: int) -> list[int]:
        """Return the brokers that one of them sees."""
        answer = self.ask(node_id, names(), 12)
        return sorted(one.node_id for one in answer.brokers)


@contextmanager
def kafkas(folder: Path) -> Iterator[Pair]:
    first = KafkaProcess(folder / "1", {**SETTINGS, "node.id": "1"})
    with ExitStack() as stack:
        stack.callback(lambda: first.process and first.kill())
        first.start()
        with Peer(first.port) as peer:
            cluster_id = peer.ask(cluster(), 1).cluster_id
        second = KafkaProcess(
            folder / "2",
            {
                **SETTINGS,
                "node.id": "2",
                "process.roles": "broker",
                "controller.quorum.voters": f"1@127.0.0.1:{first.controller_port}",
            },
            cluster_id=cluster_id,
        )
        second.settings = {
            **second.settings, "listeners": f"PLAINTEXT://127.0.0.1:{second.port}"
        }  # fmt: skip
        stack.callback(lambda: second.process and second.kill())
        second.start()
        yield Pair(first, second)


@contextmanager
def odradeks(folder: Path) -> Iterator[Pair]:
    url = {"odradek.catalog.url": f"sqlite://{folder / 'catalog.db'}"}
    with ExitStack() as stack:
        brokers = []
        for number in (1, 2):
            settings = {**SETTINGS, **url, "node.id": str(number)}
            one = ForkedOdradek(folder / str(number), settings)
            stack.callback(one.stop)
            one.start()
            brokers.append(one)
        yield Pair(*brokers)


def elect(kind: int, *partitions: tuple[str, int]) -> ElectLeadersRequest:
    asked = [TopicPartitions(topic=name, partitions=[number]) for name, number in partitions]
    return ElectLeadersRequest(
        election_type=kind, topic_partitions=asked or None, timeout_ms=10_000
    )


def cluster(*, fenced: bool = False) -> DescribeClusterRequest:
    return DescribeClusterRequest(
        include_cluster_authorized_operations=False, include_fenced_brokers=fenced
    )


def partitions(name: str) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])


def unregister(node_id: int) -> UnregisterBrokerRequest:
    return UnregisterBrokerRequest(broker_id=node_id)


QUESTIONS: dict[str, tuple[Any, int]] = {
    "cluster": (cluster(), 2),
    "cluster with fenced brokers": (cluster(fenced=True), 2),
    "metadata": (names("spread"), 12),
    "partitions": (partitions("spread"), 0),
    "preferred election here": (elect(PREFERRED, ("spread", 0)), 2),
    "preferred election there": (elect(PREFERRED, ("spread", 1)), 2),
    "preferred election of all": (elect(PREFERRED), 2),
    "unclean election there": (elect(UNCLEAN, ("spread", 1)), 2),
    "unclean election of all": (elect(UNCLEAN), 2),
    "election of nothing": (elect(PREFERRED, ("spread", 7)), 2),
    "reassignments": (ListPartitionReassignmentsRequest(), 0),
    "quorum": (quorum("__cluster_metadata", 0), 2),
    "settings of 1": (describe(BROKER, "1", "log.cleaner.threads"), 4),
    "settings of 2": (describe(BROKER, "2", "log.cleaner.threads"), 4),
    "settings of 3": (describe(BROKER, "3", "log.cleaner.threads"), 4),
    "loggers of 2": (describe(LOGGER, "2", "root"), 4),
    "settings of all": (describe(BROKER, ""), 4),
    "log directories": (DescribeLogDirsRequest(topics=None), 4),
    "change of 1": (change(BROKER, "1", ("log.cleaner.threads", SET, "2")), 1),
    "change of 2": (change(BROKER, "2", ("log.cleaner.threads", SET, "2")), 1),
    "change of 3": (change(BROKER, "3", ("log.cleaner.threads", SET, "2")), 1),
    "replacement of 2": (replace(BROKER, "2", log_cleaner_threads="2"), 2),
    "level of 2": (change(LOGGER, "2", ("root", SET, "WARN")), 1),
    "unregister 3": (unregister(3), 0),
}


def answers(pair: Pair) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what a cluster answers, step by step."""

    def both(stage: str, node_ids: tuple[int, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
        for question, (request, version) in QUESTIONS.items():
            for node_id in node_ids:
                answer = pair.ask(node_id, request, version)
                yield f"{stage}, {question}, at {node_id}", pair.shown(answer)

    wait_until(lambda: pair.alive(1) == pair.alive(2) == [1, 2])
    placed = {"spread": {0: [1], 1: [2]}, "here": {0: [1]}}
    wanted = [creatable(name, -1, -1, assignments=places) for name, places in placed.items()]
    made = pair.ask(1, topics(*wanted), 7)
    assert not any(one.error_code for one in made.topics)
    wait_until(lambda: not pair.ask(2, names("spread"), 12).topics[0].error_code)
    yield from both("both", (1, 2))
    pair.second.stop()
    wait_until(lambda: pair.alive(1) == [1])
    yield from both(SECOND_STOPPED, (1,))
    yield "unregister the second", pair.shown(pair.ask(1, unregister(2), 0))
    yield from both(SECOND_UNREGISTERED, (1,))
    yield "unregister again", pair.shown(pair.ask(1, unregister(2), 0))
    pair.second.start()
    wait_until(lambda: pair.alive(1) == pair.alive(2) == [1, 2])
    yield from both("second back", (1, 2))
    yield "unregister a live one", pair.shown(pair.ask(1, unregister(2), 0))


# What differs on purpose, or by chance, as patterns of where it does.
KNOWN = [
    r".* (cluster_id|topics\[\w+\]\.topic_id)",
    # Kafka's brokers name one at random that passes a change on; ours carry it out themselves.
    r".* controller_id",
    r".* results\[0\]\.(log_dir|total_bytes|usable_bytes)",
    r".* results\[8 2\]\.configs\[root\]\.value",
    # Ours counts changes of the database; the times of others' last fetches are not known.
    r".*, quorum, .*\.(high_watermark|log_end_offset|leader_epoch|last_\w+|replica_directory_id)",
    r".*, quorum, .* nodes\[0\]\.listeners.*",  # the controller's own
    # A broker that has gone stays for some minutes in Kafka.
    r"second (stopped|unregistered), quorum, .*\.observers.*",
    # In Kafka an epoch begins when the leader goes, and another when it comes back.
    r"second back, .*\[1\]\.leader_epoch",
    # Kafka forgets a broker that is alive, which is lost until it is started again.
    r"unregister a live one .*",
]
SENTENCES = [code.sentence for code in ErrorCode]  # our own, for codes without an explanation


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_brokers_say_what_two_of_kafka_say(tmp_path: Path) -> None:
    if kafka_libs() is None:
        pytest.skip("Kafka's jars are not there: `make kafka` fetches them")
    with odradeks(tmp_path / "ours") as pair:
        ours = dict(_values(pair))
    with kafkas(tmp_path / "theirs") as pair:
        theirs = dict(_values(pair))
    differing = [
        f"{place}: ours {ours.get(place, 'absent')!r}, Kafka's {theirs.get(place, 'absent')!r}"
        for place in {**ours, **theirs}
        if ours.get(place) != theirs.get(place)
        and ours.get(place) not in SENTENCES
        and not any(re.fullmatch(known, place) for known in KNOWN)
    ]
    assert not differing, "\n".join(differing)


def _values(pair: Pair) -> Iterator[tuple[str, Any]]:
    for step, values in answers(pair):
        for place, value in values.items():
            yield f"{step} {place}", value
