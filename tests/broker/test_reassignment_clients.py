"""Real clients on three brokers with own disks, while partitions move between these."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from bench.processes import OdradekProcess
from odradek.broker.topics.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.kafka_peer import Peer
from tests.broker.test_cluster_clients import (
    PARTITIONS,
    Sender,
    addresses,
    create,
    process,
    running,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def move(broker: OdradekProcess, moves: dict[tuple[str, int], int]) -> list[int]:
    """Let partitions move to brokers; return the error of each."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, number), node_id in moves.items():
        wanted = ReassignablePartition(partition_index=number, replicas=[node_id])
        topics.setdefault(topic, []).append(wanted)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=some) for name, some in topics.items()]
    )
    with Peer(broker.port) as peer:
        answer = peer.ask(request, 1)
    assert not answer.error_code
    return [one.error_code for topic in answer.responses for one in topic.partitions]


def knows(broker: OdradekProcess, topic: str) -> bool:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return topic in admin.list_topics(timeout=10).topics


def is_moving(broker: OdradekProcess) -> bool:
    with Peer(broker.port) as peer:
        request = ListPartitionReassignmentsRequest(topics=None)
        return bool(peer.ask(request, 0).topics)


def test_transactions_are_exactly_once_while_partitions_and_coordinators_move(
    tmp_path: Path, catalog_url: str
) -> None:
    source = random.Random(7)
    with running(tmp_path, catalog_url) as brokers:
        turns = itertools.count()

        def move_some() -> None:
            if next(turns) % 2:
                topics = ("in", "out", CONSUMER_OFFSETS, TRANSACTION_STATE)
                moves = {
                    (topic, source.randrange(PARTITIONS)): source.randint(1, 3)
                    for topic in topics
                    for _ in range(2)
                }
                move(source.choice(brokers), moves)

        process(addresses(brokers), move_some)


def test_a_producer_does_not_notice_that_partitions_move(tmp_path: Path, catalog_url: str) -> None:
    with running(tmp_path, catalog_url) as brokers:
        bootstrap = addresses(brokers)
        create(bootstrap, "t")
        wait_until(lambda: all(knows(one, "t") for one in brokers), "all know the topic")
        sender = Sender(bootstrap, "t")
        for turn in range(6):
            moves = {("t", number): 1 + (number + turn) % 3 for number in range(PARTITIONS)}
            assert move(brokers[turn % 3], moves) == [0] * PARTITIONS

            def send_and_look() -> bool:
                sender.send(0.05)
                return not is_moving(brokers[0])

            wait_until(send_and_look, "all have moved")
        sender.check()
        for one in brokers:
            assert "Traceback" not in one.log_text()
