"""Workers that die at each step of a handover or a takeover: nothing is lost or comes twice."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from bench.servers.postgresql import Postgresql
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.broker import doomed_workers
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
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
# Records that are acknowledged between the request for a move and a death, at most.
MOMENTS = 100
SETTINGS = {"offsets.topic.num.partitions": "1"}


@contextmanager
def running(
    path: Path, count: int = 2, settings: Mapping[str, str] | None = None
) -> Iterator[Workers]:
    """Run workers, and create a topic of which each leads a part."""
    made = workers(path, count, {**SETTINGS, **(settings or {})})
    (path / "doomed").mkdir()
    made.module = doomed_workers.__name__
    made.environment = doomed_workers.environment(path / "doomed")
    made.start()
    try:
        admin = AdminClient({"bootstrap.servers": made.bootstrap})
        wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == count, "all have joined")
        for future in admin.create_topics([NewTopic("t", PARTITIONS, 1)]).values():
            future.result()
        yield made
    finally:
        made.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Workers]:
    """Two workers."""
    with running(tmp_path) as made:
        yield made


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
    with suppress(OSError), Peer(broker.ports[node_id]) as peer:
        peer.ask(asked, 0)


@contextmanager
def load(broker: Workers) -> Iterator[Sender]:
    """Send records while the body runs; check that all are there once, and each partition led."""
    sender = Sender("one", broker.bootstrap, "t", PARTITIONS, IN_ORDER)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        sending = thread.submit(sender.run, stop)
        try:
            wait_until(lambda: len(sender.acknowledged) > 100, "records were acknowledged")
            yield sender
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


def check_death(
    broker: Workers, folder: Path, steps: Sequence[str], begin: Callable[[], None]
) -> None:
    """Let workers die at steps, beside a load."""
    with load(broker):
        doom(folder, *steps)
        begin()
        wait_until(lambda: not left(folder), "workers die", shown=broker.log_text)
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


@pytest.mark.parametrize("seed", range(2))
def test_partitions_survive_workers_that_die_at_random_moments_of_moves(
    tmp_path: Path, seed: int
) -> None:
    source = random.Random(seed)
    with running(tmp_path, 3) as broker, load(broker) as sender:
        for _ in range(5):
            target, victim = source.choices(list(broker.ports), k=2)
            ask_for_all(broker, target)
            moment = len(sender.acknowledged) + source.randrange(MOMENTS)
            wait_until(lambda m=moment: len(sender.acknowledged) >= m, "the moment of a death")  # type: ignore[misc]
            before = broker.pid_of(victim)
            broker.send(victim, signal.SIGKILL)
            wait_until(lambda v=victim, b=before: broker.pid_of(v) != b, "it is started again")  # type: ignore[misc]


def test_partitions_of_a_worker_that_dies_while_the_catalog_is_away_are_led_later(
    tmp_path: Path, postgresql: Postgresql, new_database: str
) -> None:
    with running(tmp_path, settings={"odradek.catalog.url": new_database}) as broker:
        with load(broker):
            postgresql.stop()
            try:
                broker.send(2, signal.SIGKILL)
                wait_until(
                    lambda: "partitions wait for a leader broker=2" in broker.log_text(),
                    "the supervisor cannot reach the catalog",
                )
            finally:
                postgresql.start()
        assert broker.log_text().count("started a worker broker=2") > 1
