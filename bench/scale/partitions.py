"""Three brokers with many shared partitions: memory, the death of a broker, a cold start."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from bench.processes import OdradekProcess, resident_bytes
from bench.shared.stage import Stage, running

_OF, _BROKERS, _PATIENCE_S = 1_000, 3, 300.0


@dataclass(frozen=True, slots=True)
class Crowd:
    """The figures of a cluster with so many partitions."""

    partitions: int
    created_s: float
    memory_bytes: float  # of a broker, more than without partitions
    replaced_s: float  # from kill -9 to a leader of each partition at another broker
    produced_s: float  # from kill -9 to an acknowledged record in each topic
    started_s: float  # from the start of all to a leader of each partition

    def __str__(self) -> str:
        return (
            f"{self.partitions:,} partitions: made in {self.created_s:.1f} s, "
            f"{self.memory_bytes / 1e6:.0f} MB more at each broker; replaced in "
            f"{self.replaced_s:.1f} s, produced in {self.produced_s:.1f} s; "
            f"all started in {self.started_s:.1f} s"
        )


def measure(partitions: int) -> Crowd:
    """Return the figures of a cluster with PostgreSQL and a server of S3. Raises NotInstalled."""
    with running(_BROKERS, is_delayed=False, has_files=False, settings={}) as stage:
        before_bytes = _memory_bytes(stage)
        topics = [f"topic-{number}" for number in range(partitions // _OF)]
        begun_s = time.monotonic()
        for topic in topics:
            stage.create(topic, _OF, "object")
        created_s = time.monotonic() - begun_s
        _produce(stage, topics)
        memory_bytes = _memory_bytes(stage) - before_bytes
        victim, *others = stage.brokers
        victim.kill()
        killed_s = time.monotonic()
        with ThreadPoolExecutor(1) as producing:
            produced = producing.submit(_produce, stage, topics)
            _wait_for_leaders(others[0], partitions, {2, 3})
            replaced_s = time.monotonic() - killed_s
            produced_s = produced.result() - killed_s
        for one in others:
            one.kill()
        begun_s = time.monotonic()
        with ThreadPoolExecutor(_BROKERS) as starting:
            list(starting.map(lambda one: one.start(), stage.brokers))
        _wait_for_leaders(victim, partitions, {1, 2, 3})
        started_s = time.monotonic() - begun_s
        for one in stage.brokers:
            one.kill()
        return Crowd(partitions, created_s, memory_bytes, replaced_s, produced_s, started_s)


def _memory_bytes(stage: Stage) -> float:
    processes = [one.process for one in stage.brokers]
    return sum(resident_bytes(one) for one in processes if one) / len(processes)


def _produce(stage: Stage, topics: list[str]) -> float:
    """Send a record to each partition; return the time at which all were acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": stage.bootstrap,
            "acks": "all",
            "log_level": 0,
            "topic.metadata.refresh.interval.ms": 500,
            "queue.buffering.max.messages": 1_000_000,
            "message.timeout.ms": int(_PATIENCE_S * 1_000),
        }
    )
    for topic in topics:
        for partition in range(_OF):
            producer.produce(topic, b"a record", partition=partition)
        producer.poll(0)
    assert not producer.flush(_PATIENCE_S), "records are left"
    return time.monotonic()


def _wait_for_leaders(broker: OdradekProcess, partitions: int, nodes: set[int]) -> None:
    """Wait until a broker names a leader among some for each partition."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    end_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end_s:
        found = admin.list_topics(timeout=60).topics.values()
        leaders = [
            each.leader
            for one in found
            if str(one.topic).startswith("topic-")
            for each in one.partitions.values()
        ]
        if len(leaders) == partitions and nodes.issuperset(leaders):
            return
        time.sleep(0.1)
    raise TimeoutError(f"partitions lack leaders after {_PATIENCE_S} s")
