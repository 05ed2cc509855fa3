"""A client of librdkafka is held to its quota over half a minute, and one beside it is not.

A rate is taken over a window, and lets a client of whom it has seen nothing have ten seconds of
it at once, in Kafka, too. So the time is that of three whole windows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.processes import OdradekProcess
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.metadata import MetadataRequest
from tests.broker.clusters import BesiegedBrokers
from tests.broker.kafka_peer import Peer
from tests.compat.clients import Confluent
from tests.interop.conftest import StartBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

HELD_S = 33.0  # three windows of eleven seconds
RATE = 1_000_000.0
PERCENT = 5.0
VALUE = b"v" * 1_000


@pytest.fixture
def broker(start_broker: StartBroker) -> OdradekProcess:
    started = start_broker()
    if not isinstance(started, OdradekProcess):
        pytest.skip("the time is read from our metrics")
    if isinstance(started, BesiegedBrokers):
        pytest.skip("one broker answers all the while")
    Confluent().create_topic(started.bootstrap, "t", 1)
    return started


def set_quota(broker: OdradekProcess, name: str, value: float) -> None:
    slow = [EntityData(entity_type="client-id", entity_name="slow")]
    entry = EntryData(entity=slow, ops=[OpData(key=name, value=value, remove=False)])
    with Peer(broker.port) as peer:
        answer = peer.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
        assert answer.entries[0].error_code == 0


@contextmanager
def neighbour(broker: OdradekProcess) -> Iterator[None]:
    """Ask all the while, as another client, and be told to wait not once."""
    is_over, told = threading.Event(), []

    def ask() -> None:
        with Peer(broker.port, "neighbour") as peer:
            while not is_over.wait(0.05):
                told.append(peer.ask(MetadataRequest(topics=None), 9).throttle_time_ms)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        is_over.set()
        asking.join()
    assert len(told) > 30
    assert not any(told)


def rate_of(take: Callable[[], int]) -> float:
    """Do something for a while; return how much of it a second."""
    begun, done = time.monotonic(), 0
    while time.monotonic() < begun + HELD_S:
        done += take()
    return done / (time.monotonic() - begun)


def producing(broker: OdradekProcess, client_id: str) -> Callable[[], int]:
    """Return what produces as fast as it can, and tells how many bytes are acknowledged."""
    settings = {"client.id": client_id, "linger.ms": 5, "batch.size": 65_536}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    acknowledged = []

    def take() -> int:
        try:
            producer.produce(
                "t", VALUE, on_delivery=lambda error, _: acknowledged.append(not error)
            )
            producer.poll(0)
        except BufferError:
            producer.poll(0.01)
        count = sum(acknowledged)
        acknowledged.clear()
        return count * len(VALUE)

    return take


def test_a_producer_is_held_to_its_rate(broker: OdradekProcess) -> None:
    set_quota(broker, "producer_byte_rate", RATE)
    with neighbour(broker):
        held = rate_of(producing(broker, "slow"))
    assert held == pytest.approx(RATE, rel=0.1)


def test_a_consumer_is_held_to_its_rate(broker: OdradekProcess) -> None:
    produce, produced = producing(broker, "fast"), 0
    while produced < RATE * HELD_S * 1.2:
        produced += produce()
    set_quota(broker, "consumer_byte_rate", RATE)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "client.id": "slow", "group.id": str(uuid4())}
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    try:
        with neighbour(broker):
            held = rate_of(
                lambda: sum(len(one.value() or b"") for one in consumer.consume(500, 0.05))
            )
    finally:
        consumer.close()
    assert held == pytest.approx(RATE, rel=0.1)


def test_a_client_is_held_to_its_share_of_the_event_loop(broker: OdradekProcess) -> None:
    set_quota(broker, "request_percentage", PERCENT)
    client = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "slow"})
    shares, next_s = [], time.monotonic() + HELD_S / 3

    def take() -> int:
        nonlocal next_s
        client.list_topics(timeout=30)
        if time.monotonic() > next_s:
            shares.append(share_of(broker, "slow"))
            next_s += 1
        return 1

    with neighbour(broker):
        rate_of(take)
    assert sum(shares) / len(shares) == pytest.approx(PERCENT, rel=0.1)


def share_of(broker: OdradekProcess, client_id: str) -> float:
    """Return the percentage of an event loop's time that a client has had of late.

    Each of several brokers or workers has a loop, and the client asks any of them.
    """
    name, client = "kafka_server_request_request_time{", f'client_id="{client_id}",user=""}} '
    found = []
    for one in (broker, *getattr(broker, "others", ())):
        lines = one.metrics().splitlines()
        found += [line.partition(client)[2] for line in lines if line.startswith(name)]
    return max(float(share) for share in found if share)
