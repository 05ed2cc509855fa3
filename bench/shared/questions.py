"""Questions about shared topics, each with the answer that is wanted."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition

from bench.clients import Load as KafkaLoad
from bench.clients import consume, produce
from bench.processes import resident_bytes
from bench.shared.cleaning import ask_cold, ask_lag, ask_many, ask_speed, ask_unique
from bench.shared.loads import RECORD_BYTES, STAMP_BYTES, Load, reading, shown
from bench.shared.stage import Stage
from bench.watch import MemoryWatch

LOCAL, OBJECT = "local", "object"
_PARTITIONS = 12
_RATE = 20_000  # records a second
_COLD = 1_500_000  # records
_FLOOD = 150_000  # records, for each second that a measurement of the throughput may take


@dataclass(frozen=True)
class Question:
    """A question to brokers of a cluster; `ask` prints the answer."""

    title: str
    wanted: str
    ask: Callable[[Stage, float, int], None]
    brokers: int = 3
    settings: Mapping[str, str] = field(default_factory=dict)


def _ask_small(stage: Stage, seconds: float, rounds: int) -> None:
    for storage in (LOCAL, OBJECT):
        stage.create(storage, 1, storage)
        load = Load(stage.bootstrap, {"linger.ms": 0})
        load.send(storage, 0)
        load.flush()
        load.times_s.clear()
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            load.send(storage, 0)
            load.flush()
        print(f"  {storage:7} {shown(load.times_s)}, {len(load.times_s)} records")


def _ask_rate(stage: Stage, seconds: float, rounds: int) -> None:
    """Produce without bounds on the requests under way, then with an idempotent producer's 5."""
    for at, (storage, is_idempotent) in enumerate(
        ((LOCAL, False), (OBJECT, False), (OBJECT, True))
    ):
        topic = f"{storage}-{at}"
        stage.create(topic, _PARTITIONS, storage)
        acks: dict[str, str | bool] = {"acks": "all", "enable.idempotence": is_idempotent}
        load = Load(stage.bootstrap, {"linger.ms": 5, **acks})
        load.send_at_rate(topic, _PARTITIONS, _RATE / 10, 2)
        load.times_s.clear()
        with (
            reading(stage.bootstrap, topic, _PARTITIONS) as reader,
            ThreadPoolExecutor(1) as watching,
        ):
            # The WAL learns first whether producers wait for answers.
            puts = watching.submit(stage.puts_a_second, seconds * 0.75, seconds * 0.25)
            load.send_at_rate(topic, _PARTITIONS, _RATE, seconds)
            print(
                f"  {storage:7}{' idempotent' if is_idempotent else ''}"
                f" produce {shown(load.times_s)}; end to end"
                f" {shown(reader.times_s())}; {puts.result()}"
            )


def _ask_throughput(stage: Stage, seconds: float, rounds: int) -> None:
    found: dict[str, list[float]] = {LOCAL: [], OBJECT: []}
    costs: dict[str, list[str]] = {LOCAL: [], OBJECT: []}
    for storage in found:
        stage.create(storage, _PARTITIONS, storage)
    for _ in range(rounds):
        for storage, rates in found.items():
            before_s, before_store_s = stage.cpu_s(), stage.store_cpu_s()
            rates.append(_throughput(stage, storage, seconds))
            time.sleep(2)  # for the uploads that are still to be done
            sent_gb = int(seconds * _FLOOD) * RECORD_BYTES / 1e9
            own_s, store_s = stage.cpu_s() - before_s, stage.store_cpu_s() - before_store_s
            costs[storage].append(f"{own_s / sent_gb:.1f} + {store_s / sent_gb:.1f}")
    for storage, rates in found.items():
        print(
            f"  {storage:7} {', '.join(f'{one:.0f}' for one in rates)} MB/s; CPU of the brokers"
            f" and of the store {', '.join(costs[storage])} s/GB"
        )
    ratios = sorted(one / other for one, other in zip(*reversed(found.values()), strict=True))
    print(f"  ratio   {', '.join(f'{one:.2f}' for one in ratios)}")


def _throughput(stage: Stage, topic: str, seconds: float) -> float:
    """Return the MB/s of Kafka's ProducerPerformance."""
    load = KafkaLoad(
        int(seconds * _FLOOD),
        RECORD_BYTES,
        {"bootstrap.servers": stage.bootstrap, "acks": "all", "batch.size": "131072"},
    )
    return produce(stage.brokers[0], topic, load) * RECORD_BYTES / 1e6


def _ask_trickle(stage: Stage, seconds: float, rounds: int) -> None:
    count = 2_000
    stage.create("trickle", count, OBJECT)
    load = Load(stage.bootstrap, {"linger.ms": 0}, size_bytes=100)
    load.send_at_rate("trickle", count, 400, 5)
    load.times_s.clear()
    with ThreadPoolExecutor(1) as watching:
        puts = watching.submit(stage.puts_a_second, seconds)
        load.send_at_rate("trickle", count, 400, seconds)
    print(f"  {shown(load.times_s)}, {puts.result()}")


def _ask_cold(stage: Stage, seconds: float, rounds: int) -> None:
    """Read records that only the bucket has, while another topic is produced to.

    The same records in a local topic, which are read from the page cache, are the control: the
    other producer has to share the cores with the consumer there, too.
    """
    stage.create("warm", 4, OBJECT)
    (broker,) = stage.brokers
    for storage in (LOCAL, OBJECT):
        stage.create(storage, _PARTITIONS, storage, {"segment.bytes": str(64 << 20)})
        load = Load(stage.bootstrap, {"linger.ms": 5, "batch.size": 131_072})
        for at in range(_COLD):
            load.send(storage, at // 100 % _PARTITIONS)
            if not at % 1_000:
                load.producer.poll(0)
        load.flush()
        broker.stop()
        os.sync()  # records of last year are not on their way to the disk any more
        broker.start()
        warm = Load(stage.bootstrap, {"linger.ms": 0})
        warm.send_at_rate("warm", 4, 500, 5)  # until the broker has nothing else to do
        warm.times_s.clear()
        warm.send_at_rate("warm", 4, 500, seconds)
        alone_s = list(warm.times_s)
        warm.times_s.clear()
        with ThreadPoolExecutor(1) as consuming, MemoryWatch(broker) as watch:
            rate = consuming.submit(consume, broker, storage, _COLD)
            while not rate.done():
                warm.send_at_rate("warm", 4, 500, 0.5)
        print(f"  {storage:7} read back at {rate.result() * RECORD_BYTES / 1e6:.0f} MB/s,"
              f" {watch.most_bytes / 1e6:.0f} MB of memory; produce to another topic:"
              f" alone {shown(alone_s)}, beside it {shown(warm.times_s)}")  # fmt: skip


def _ask_kills(stage: Stage, seconds: float, rounds: int) -> None:
    """Kill brokers again and again; print the partitions' waits, and the missing records."""
    stage.create("killed", _PARTITIONS, OBJECT)
    source = random.Random(1)
    load = Load(stage.bootstrap, {"linger.ms": 0})
    waits_s = [_wait_after_kill(stage, load, source) for _ in range(rounds)]
    load.flush()
    lost, twice = _compare(stage, load)
    print(f"  {len(waits_s)} kills, {load.count} records: {lost} lost, {twice} twice")
    print(f"  the longest wait of a partition {shown(waits_s)}, at most {max(waits_s):.1f} s")
    sizes = [resident_bytes(one.process) / 1e6 for one in stage.brokers if one.process]
    print(f"  memory at the end {', '.join(f'{one:.0f} MB' for one in sizes)}")


def _wait_after_kill(stage: Stage, load: Load, source: random.Random) -> float:
    """Kill a broker under load, and start it again; return the longest wait of a partition."""
    victim = source.choice(stage.brokers)
    killing_s, killed_s = time.perf_counter() + source.uniform(1, 3), 0.0
    waits_s: dict[int, float] = {}
    while len(waits_s) < _PARTITIONS:
        for partition in range(_PARTITIONS):
            load.send("killed", partition)
        load.producer.poll(0.02)
        if killed_s:
            for partition, last_s in load.last.items():
                if last_s > killed_s:
                    waits_s.setdefault(partition, last_s - killed_s)
        elif time.perf_counter() > killing_s:
            victim.kill()
            load.producer.poll(0.05)  # for the answers that it sent before
            killed_s = time.perf_counter()
    victim.start()
    return max(waits_s.values())


def _compare(stage: Stage, load: Load) -> tuple[int, int]:
    """Return how many records are missing, and how many are there more than once."""
    consumer = Consumer(
        {"bootstrap.servers": stage.bootstrap, "group.id": "none", "log_level": 0}
        | {"enable.auto.commit": False, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition("killed", one, 0) for one in range(_PARTITIONS)])
    found: Counter[tuple[int | None, bytes]] = Counter()
    ended = 0
    while ended < _PARTITIONS:
        for message in consumer.consume(10_000, 1.0):
            if message.error():
                ended += 1
                continue
            stamp = (message.value() or b"")[:STAMP_BYTES]
            found[message.partition(), stamp] += 1
    consumer.close()
    return load.count - len(found), found.total() - len(found)


QUESTIONS = {
    "small": Question(
        "one 1 kB record at a time, acks=all", "p50 <= 8 ms, p99 <= 25 ms", _ask_small
    ),
    "rate": Question(
        f"20 MB/s of 1 kB records, {_PARTITIONS} partitions",
        "produce p99 <= 300 ms, end to end p99 <= 400 ms, <= 6 PUT/s a broker",
        _ask_rate,
    ),
    "throughput": Question("one producer, as fast as possible", ">= 0.8", _ask_throughput),
    "trickle": Question(
        "2,000 partitions, 400 records of 100 B a second", "<= 2 PUT/s a broker", _ask_trickle
    ),
    "cold": Question(
        "1.5 GB that only the bucket has, from one broker",
        ">= 300 MB/s, and p99 beside it < 1.5 times p99 alone (local: the control)",
        _ask_cold,
        brokers=1,
    ),
    "kills": Question(
        "kill -9 of one of three brokers under load", "< 5 s, 0 lost, 0 twice", _ask_kills
    ),
    "cleaning": Question(
        "the broker's cleaner on shared topics in the cache, and on local ones",
        ">= 0.8",
        ask_speed,
        brokers=1,
        settings={"odradek.cache.bytes": str(8 << 30)},
    ),
    "cold-cleaning": Question(
        "the broker's cleaner on topics that only the bucket has",
        ">= 100 MB/s with --delays",
        ask_cold,
        brokers=1,
    ),
    "unique": Question(
        "400,000 keys, each once, and a map of 1 MiB",
        "one run, < 50 MB written",
        ask_unique,
        brokers=1,
        settings={"log.cleaner.dedupe.buffer.size": str((1 << 20) + 1)},
    ),
    "many-keys": Question(
        "10,000,000 keys, each twice, and a map of 128 MiB",
        "one run, 10,000,000 records stay",
        ask_many,
        brokers=1,
        settings={"log.cleaner.dedupe.buffer.size": str(128 << 20)},
    ),
    "lag": Question(
        "max.compaction.lag.ms of a minute, on a silent topic", "within 10 s", ask_lag, brokers=1
    ),
}
