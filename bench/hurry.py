"""The cost and gain of a waiting fetch that gives way: odradek.fetch.hurry on and off.

    python -m bench.hurry [--rounds N] [--seconds N] [--rate N] [--only NAME]

Each round starts a fresh Odradek with the option on, then one with it off, and runs on each:

    multiplexed   one connection, like a client that has one for everything (Sarama): it fetches
                  with fetch.min.bytes=64 KiB and fetch.max.wait.ms=500 while it writes --rate
                  records of 100 B a second and commits every second
    librdkafka    the same with librdkafka's own consumer and producer, which have a connection
                  each, and another for the group
    ahead         one connection, like Java's consumer under Spark: a fetch waits at the end of a
                  topic, and ListOffsets, Metadata and OffsetCommit are sent behind it
    plain         librdkafka's consumer with its defaults, which only reads

The broker counts fetches. Figures are medians of the rounds. Only the broker's setting differs
between on and off; compare only figures of the same row.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError

import uvloop
from confluent_kafka import Consumer, KafkaException, Producer

from bench.clients import create_topic
from bench.hurry_client import (
    GROUP,
    MAX_WAIT_MS,
    TOPIC,
    VALUE_BYTES,
    Connection,
    committed,
    connect,
    fetch,
    latest,
    metadata,
    produce,
)
from bench.pairs import quantile
from bench.processes import OdradekProcess
from bench.watch import cpu_s
from odradek.protocol.batches import iterate_batches

MIN_BYTES = 64 * 1024
_COMMIT_EVERY_S = 1.0
_ASK_EVERY_S = 0.1
# The time before counting begins: the handlers are imported when they are first needed.
_WARM_UP_S = 1.0
_POLL_S, _PATIENCE_S = 0.1, 30.0
_COUNTED = re.compile(
    r'^kafka_network_requestmetrics_requests_total\{request="Fetch"[^}]*\} (\S+)$', re.MULTILINE
)

Figures = Mapping[str, float]
Scenario = Callable[[OdradekProcess, argparse.Namespace], Figures]


def multiplexed(broker: OdradekProcess, options: argparse.Namespace) -> Figures:
    """Fetch, write and commit on one connection."""
    return uvloop.run(_multiplex(broker, options))


async def _multiplex(broker: OdradekProcess, options: argparse.Namespace) -> Figures:
    connection = await connect(broker)
    offset = (await connection.ask(latest())).topics[0].partitions[0].offset
    trips_s: list[float] = []
    jobs = [
        asyncio.ensure_future(_write(connection, options.rate, trips_s)),
        asyncio.ensure_future(_commit(connection)),
    ]
    await asyncio.sleep(_WARM_UP_S)
    reading = _Reading(broker)
    trips_s.clear()
    end_s = time.perf_counter() + options.seconds
    while time.perf_counter() < end_s:
        answer = await connection.ask(fetch(offset, MIN_BYTES))
        part = answer.responses[0].partitions[0]
        for _, header in iterate_batches(bytes(part.records or b"")):
            reading.records += header.last_offset - header.base_offset + 1
            offset = header.last_offset + 1
    figures = {**reading.figures(), **_times("Produce", trips_s)}
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
    connection.transport.abort()
    return figures


async def _write(connection: Connection, rate: float, trips_s: list[float]) -> None:
    """Write records at a rate, and note the seconds until each answer."""
    start_s = time.perf_counter()
    for number in itertools.count():
        await asyncio.sleep(max(start_s + number / rate - time.perf_counter(), 0))
        answer, sent_s = connection.ask(produce()), time.perf_counter()
        answer.add_done_callback(
            lambda _, sent_s=sent_s: trips_s.append(time.perf_counter() - sent_s)  # type: ignore[misc]
        )
        _forget(answer)


async def _commit(connection: Connection) -> None:
    while True:
        await asyncio.sleep(_COMMIT_EVERY_S)
        _forget(connection.ask(committed()))


def _forget(answer: asyncio.Future[Any]) -> None:
    """Ignore an answer, also an error when the connection is closed."""
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())


def librdkafka(broker: OdradekProcess, options: argparse.Namespace) -> Figures:
    """Let librdkafka read with a minimum, write and commit."""
    properties = {"fetch.min.bytes": MIN_BYTES, "fetch.wait.max.ms": MAX_WAIT_MS}
    return _consume(broker, options, properties, commits=True)


def plain(broker: OdradekProcess, options: argparse.Namespace) -> Figures:
    """Let librdkafka read with its defaults."""
    return _consume(broker, options, {}, commits=False)


def _consume(
    broker: OdradekProcess,
    options: argparse.Namespace,
    properties: Mapping[str, str | int],
    *,
    commits: bool,
) -> Figures:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "acks": "1", "log_level": 3}
    )
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
            "log_level": 3,
            **properties,
        }
    )
    consumer.subscribe([TOPIC])
    written, start_s = 0, time.perf_counter()
    begin_s, reading = start_s + 3 * _WARM_UP_S, None
    commit_s = begin_s
    while (now_s := time.perf_counter()) < begin_s + options.seconds:
        if reading is None and now_s >= begin_s:
            reading = _Reading(broker)
        due = int((now_s - start_s) * options.rate)
        for _ in range(due - written):
            producer.produce(TOPIC, bytes(VALUE_BYTES))
        written = due
        producer.poll(0)
        read = consumer.consume(10_000, 1 / options.rate)
        if reading is not None:
            reading.records += len(read)
        if commits and now_s >= commit_s:
            commit_s += _COMMIT_EVERY_S
            with suppress(KafkaException):  # raised when nothing has been read yet
                consumer.commit(asynchronous=True)
    assert reading is not None
    figures = reading.figures()
    consumer.close()
    producer.flush(10)
    return figures


def ahead(broker: OdradekProcess, options: argparse.Namespace) -> Figures:
    """Send other requests behind a fetch that waits."""
    return uvloop.run(_ask_behind(broker, options))


async def _ask_behind(broker: OdradekProcess, options: argparse.Namespace) -> Figures:
    connection = await connect(broker)
    offset = (await connection.ask(latest())).topics[0].partitions[0].offset
    questions = {"ListOffsets": latest, "Metadata": metadata, "OffsetCommit": committed}
    for question in questions.values():
        await connection.ask(question())
    trips_s: dict[str, list[float]] = defaultdict(list)
    reading = _Reading(broker)
    end_s = time.perf_counter() + options.seconds
    while time.perf_counter() < end_s:
        for name, question in questions.items():
            fetched = connection.ask(fetch(offset, 1))
            await asyncio.sleep(_ASK_EVERY_S)
            began_s = time.perf_counter()
            await connection.ask(question())
            trips_s[name].append(time.perf_counter() - began_s)
            await fetched
    figures = reading.figures()
    connection.transport.abort()
    times: dict[str, float] = {}
    for name, trips in trips_s.items():
        times.update(_times(name, trips))
    return {**times, "broker CPU %": figures["broker CPU %"]}


class _Reading:
    """A measurement that a scenario has begun."""

    def __init__(self, broker: OdradekProcess) -> None:
        self._broker = broker
        self.records = 0
        self._fetches, self._cpu_s = _fetch_count(broker), cpu_s(broker)
        self._start_s = time.perf_counter()

    def figures(self) -> Figures:
        """Return the figures since the beginning."""
        duration_s = time.perf_counter() - self._start_s
        used_s = cpu_s(self._broker) - self._cpu_s
        fetches = _fetch_count(self._broker) - self._fetches
        return {
            "fetches/s": fetches / duration_s,
            "records/fetch": self.records / max(fetches, 1),
            "broker CPU %": 100 * used_s / duration_s,
        }


def _fetch_count(broker: OdradekProcess) -> float:
    return sum(map(float, _COUNTED.findall(broker.metrics())))


def _times(name: str, trips_s: list[float]) -> Figures:
    shares = {"p50": 0.5, "p99": 0.99}
    return {f"{name} {title} ms": quantile(trips_s, one) * 1000 for title, one in shares.items()}


def _wait_for_metrics(broker: OdradekProcess) -> None:
    """Wait for the HTTP listener, which a broker opens after it accepts clients."""
    end_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            _fetch_count(broker)
        except URLError:
            assert time.monotonic() < end_s, f"no answer from {broker.http}/metrics"
            time.sleep(_POLL_S)
        else:
            return


_SCENARIOS: Mapping[str, Scenario] = {
    "multiplexed": multiplexed,
    "librdkafka": librdkafka,
    "ahead": ahead,
    "plain": plain,
}


def _run(name: str, hurry: str, options: argparse.Namespace) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        broker = OdradekProcess(Path(folder) / "broker", {"odradek.fetch.hurry": hurry})
        broker.start()
        try:
            create_topic(broker, TOPIC)
            _wait_for_metrics(broker)
            return _SCENARIOS[name](broker, options)
        finally:
            broker.stop()


def main() -> int:
    """Run the rounds, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="of each scenario")
    parser.add_argument("--rate", type=float, default=200, help="records written a second")
    parser.add_argument("--only", choices=_SCENARIOS, help="one scenario; all by default")
    options = parser.parse_args()
    names = [options.only] if options.only else list(_SCENARIOS)
    found: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    for _ in range(options.rounds):
        for name in names:
            for hurry in ("true", "false"):
                found[name, hurry].append(_run(name, hurry, options))
    print(f"{'':36}{'on':>12}{'off':>12}")
    for name in names:
        for title in found[name, "true"][0]:
            on, off = (
                statistics.median(figures[title] for figures in found[name, hurry])
                for hurry in ("true", "false")
            )
            print(f"{name:12}{title:24}{on:12.2f}{off:12.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
