"""Workers that die at each step of a handover or a takeover: nothing is lost or comes twice."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.broker import doomed_workers
from tests.broker.doomed_workers import (
    AFTER_CLOSE,
    AFTER_COMMIT,
    AFTER_OPENING,
    BEFORE_GIVING_UP,
    BEFORE_OPENING,
    doom,
    left,
)
from tests.broker.kafka_peer import Peer
from tests.broker.siege import Sender, check_exactly_once, read_all
from tests.broker.workers import Workers, workers
from tests.support.requests import listing_offsets
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

PARTITIONS = 4
IN_ORDER = {"acks": "all", "enable.idempotence": "true"}
SETTINGS = {"offsets.topic.num.partitions": "1"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Workers]:
    """Two workers, and a topic of which each leads the half."""
    made = workers(tmp_path, 2, SETTINGS)
    (tmp_path / "doomed").mkdir()
    made.module = doomed_workers.__name__
    made.environment = doomed_workers.environment(tmp_path / "doomed")
    made.start()
    try:
        admin = AdminClient({"bootstrap.servers": made.bootstrap})
        wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, "both have joined")
        for future in admin.create_topics([NewTopic("t", PARTITIONS, 1)]).values():
            future.result()
        yield made
    finally:
        made.stop()


def leaders(broker: Workers) -> list[list[int]]:
    """Return for each partition the workers that answer as its leader."""
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    for node_id, port in broker.ports.items():
        try:
            with Peer(port) as peer:
                asked = listing_offsets({"t": range(PARTITIONS)})
                (topic,) = peer.ask(asked, 5).topics
        except OSError:  # it is not there, or not yet again
            continue
        for one in topic.partitions:
            if not one.error_code:
                found[one.partition_index].append(node_id)
    return found


def ask_for_all(broker: Workers, node_id: int) -> None:
    """Ask a worker to lead all partitions; it may die before it answers."""
    wanted = [
        ReassignablePartition(partition_index=at, replicas=[node_id]) for at in range(PARTITIONS)
    ]
    asked = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=wanted)]
    )
    with Peer(broker.ports[node_id]) as peer:
        try:
            answer = peer.ask(asked, 0)
        except ConnectionError:
            return
        assert not answer.error_code


def check_death(
    broker: Workers, folder: Path, steps: Sequence[str], begin: Callable[[], None]
) -> None:
    """Let workers die at steps, beside a load; check that nothing is lost or there twice."""
    sender = Sender("one", broker.bootstrap, "t", PARTITIONS, IN_ORDER)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        sending = thread.submit(sender.run, stop)
        try:
            wait_until(lambda: len(sender.acknowledged) > 100, "records were acknowledged")
            doom(folder, *steps)
            begin()
            wait_until(lambda: not left(folder), "workers die", shown=broker.log_text)
            wait_until(
                lambda: all(len(found) == 1 for found in leaders(broker)),
                "each partition has one leader",
                shown=lambda: (leaders(broker), broker.log_text()),
            )
        finally:
            stop.set()
        sending.result()
    assert not sender.failed
    assert len(sender.acknowledged) == sender.number
    check_exactly_once(sender, read_all(broker.bootstrap, "t", PARTITIONS))
    assert broker.log_text().count("cause=SIGKILL") >= len(steps)


@pytest.mark.parametrize(
    "steps",
    [
        (BEFORE_GIVING_UP,),
        (AFTER_CLOSE,),
        (AFTER_COMMIT,),
        (BEFORE_OPENING,),
        (AFTER_OPENING,),
        (AFTER_COMMIT, BEFORE_OPENING),
    ],
    ids=" and ".join,
)
def test_partitions_survive_workers_that_die_at_a_step_of_their_handover(
    broker: Workers, tmp_path: Path, steps: tuple[str, ...]
) -> None:
    check_death(broker, tmp_path / "doomed", steps, lambda: ask_for_all(broker, 1))


@pytest.mark.parametrize("step", [BEFORE_OPENING, AFTER_OPENING])
def test_partitions_survive_a_worker_that_dies_as_it_takes_over_those_of_another(
    broker: Workers, tmp_path: Path, step: str
) -> None:
    check_death(
        broker, tmp_path / "doomed", (step,), lambda: broker.send(2, signal.SIGKILL)
    )
