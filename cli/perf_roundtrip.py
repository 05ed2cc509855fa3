"""odradek perf roundtrip: measures the time of each record from a producer to a consumer."""

from __future__ import annotations

import struct
import sys
import threading
import time
import uuid
from typing import Any

import click
import numpy as np

from odradek.cli.answer import print_json
from odradek.cli.client import Connection, broker_options, json_option
from odradek.cli.perf_figures import (
    Latencies,
    LiveLine,
    Workers,
    latency_rows,
    print_pairs,
    rate_rows,
    rates,
)
from odradek.cli.perf_load import Distribution, Load, Records
from odradek.cli.perf_produce import producer_options, producer_properties
from odradek.cli.perf_scratch import Place, topic_options
from odradek.cli.positions import END, Partition, resolve
from odradek.cli.reading import is_passing
from odradek.cli.refusals import Act, CommandError, explain, refused

# A value begins with its sender, so that others may write to the topic, its number and its time.
_STAMP = struct.Struct(">16sqd")
# The number of the records that are sent before the measurement, one to each partition.
_FIRST = -1
_LATE_S = 10.0
_POLL_S = 0.01
# Two threads take turns; Python's 5 ms would be most of the measured time.
_SWITCH_S = 0.0002


@click.command()
@topic_options
@click.option("--records", type=click.IntRange(1), help="The number of records. [default: 10,000 "
              "unless --seconds is given]")  # fmt: skip
@click.option("--size", "size_bytes", type=click.IntRange(_STAMP.size, 10_000_000), default=100,
              show_default=True, help="The size of each value in bytes.")  # fmt: skip
@click.option("--rate", type=click.FloatRange(0, min_open=True), default=1000.0,
              show_default=True, help="The largest number of records a second.")  # fmt: skip
@producer_options
@json_option
@broker_options
def roundtrip(
    place: Place,
    records: int | None,
    seconds: float | None,
    size_bytes: int,
    keys: int,
    distribution: Distribution,
    rate: float,
    seed: int,
    as_json: bool,
    connection: Connection,
    **how: Any,
) -> None:
    """Measure how long records take from a producer to a consumer.

    Producer and consumer are in this process. Records are sent one at a time, at a rate, and
    without linger unless --linger-ms is given. One record to each partition goes ahead, and is
    not counted: connections and the producer's id take half a second.

    Example: odradek perf roundtrip --records 2000
    """
    load = Load(keys, distribution, size_bytes)
    load.require_drawable()
    admin = connection.admin()
    properties = producer_properties(how["acks"], how["compression"], how["linger_ms"] or 0.0)
    total = records if records or seconds else 10_000
    with place.topic(admin) as topic:
        known = admin.require_topic(topic, for_records=True)
        ends = resolve(admin, {topic: sorted(known.partitions)}, END)
        made = Records(load, np.random.SeedSequence(seed))
        trip = _Trip(connection, topic, ends, made, properties)
        switch_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        try:
            interrupted = trip.measure(total, seconds, rate)
        finally:
            sys.setswitchinterval(switch_s)
    found = {
        "topic": topic,
        **rates(trip.latencies.count, trip.latencies.count * size_bytes, trip.span_s),
        "missing": trip.sent - trip.latencies.count,
        "latency_ms": trip.latencies.document(),
        "seed": seed,
    }
    if as_json:
        print_json(found)
    else:
        print_pairs([*rate_rows(found), *latency_rows(trip.latencies.document(), "Round trip")])
    if interrupted:
        raise KeyboardInterrupt
    if trip.error is not None:
        raise CommandError(f"could not write to {topic}: {trip.error}")
    if found["missing"]:
        raise CommandError(f"{found['missing']:,} of {trip.sent:,} records did not come back")


class _Trip:
    """Sends stamped records in one thread, and receives them in another."""

    def __init__(
        self,
        connection: Connection,
        topic: str,
        ends: dict[Partition, int],
        records: Records,
        properties: dict[str, object],
    ) -> None:
        self.connection, self.topic, self.ends = connection, topic, ends
        self.records, self.properties = records, properties
        self.sender = uuid.uuid4().bytes
        self.latencies = Latencies()
        self.sent = 0
        self.received = 0
        self.first_s = self.last_s = 0.0
        self.error: str | None = None
        # Partitions that are not fetched yet, and those whose first record has not come back.
        self.waiting, self.unproved = set(ends), set(ends)
        self.is_sent = threading.Event()
        self.is_listening, self.is_proved = threading.Event(), threading.Event()
        self._fresh_s: list[float] = []

    @property
    def span_s(self) -> float:
        """The seconds from the first record sent to the last record received."""
        return max(0.0, self.last_s - self.first_s)

    def measure(self, total: int | None, seconds: float | None, rate: float) -> bool:
        """Run both threads; return whether Ctrl-C ended them."""
        workers = Workers([lambda stop: self._send(stop, total, seconds, rate), self._receive])
        interrupted = False
        with LiveLine("there and back", total) as line:

            def tick() -> None:
                self.latencies.take(self._fresh_s)
                count = self.latencies.count
                line.show(count, 0, self.latencies.quantile_ms(0.99))

            try:
                workers.wait(tick)
            except KeyboardInterrupt:
                interrupted = True
            tick()
        return interrupted

    def _send(
        self, stop: threading.Event, total: int | None, seconds: float | None, rate: float
    ) -> None:
        producer = self.connection.producer(self.properties)
        try:
            producer.list_topics(timeout=_LATE_S)  # connects before the measurement begins
            self.is_listening.wait(_LATE_S)
            self._send_ahead(producer, stop)
            started_s = time.monotonic()
            self.first_s = self.last_s = time.perf_counter()
            while not stop.is_set() and (total is None or self.sent < total):
                span_s = time.monotonic() - started_s
                if seconds is not None and span_s >= seconds:
                    break
                early_s = self.sent / rate - span_s
                if early_s > 0:
                    producer.poll(min(early_s, 0.1))
                    continue
                self._send_one(producer)
            producer.flush(_LATE_S)
        finally:
            self.is_sent.set()

    def _send_ahead(self, producer: Any, stop: threading.Event) -> None:
        """Send a record to each partition, and wait until the consumer has all of them.

        An idempotent producer of librdkafka asks for its id once a connection is up, which it
        looks at every 500 ms; records wait for that, and for connections to the leaders.
        """
        for _, partition in sorted(self.unproved):
            key, value = self._make(_FIRST)
            producer.produce(self.topic, value, key, partition, on_delivery=self._note)
            producer.poll(0)
        end_s = time.monotonic() + _LATE_S
        while not (stop.is_set() or self.error or self.is_proved.is_set()):
            producer.poll(_POLL_S)
            if time.monotonic() > end_s:
                break

    def _make(self, number: int) -> tuple[bytes | None, bytes]:
        ((key, value),) = self.records.make(1)
        stamp = _STAMP.pack(self.sender, number, time.perf_counter())
        return key, stamp + (value or b"")[_STAMP.size :]

    def _send_one(self, producer: Any) -> None:
        key, value = self._make(self.sent)
        try:
            producer.produce(self.topic, value, key, on_delivery=self._note)
        except BufferError:
            producer.poll(0.01)
            return
        self.sent += 1
        producer.poll(0)

    def _note(self, error: Any, message: Any) -> None:
        if error is not None and self.error is None:
            self.error = explain(error, f"WRITE on topic {self.topic}", self.connection.reason)

    def _receive(self, stop: threading.Event) -> None:
        from confluent_kafka import TopicPartition

        consumer = self.connection.consumer(
            {
                "group.id": "odradek-perf",
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "enable.partition.eof": True,
            }
        )
        try:
            consumer.assign([TopicPartition(*one, at) for one, at in self.ends.items()])
            deadline_s: float | None = None
            while not (self.is_sent.is_set() and (stop.is_set() or self.received >= self.sent)):
                message = consumer.poll(0.1)
                if message is not None:
                    self._take(message)
                elif self.is_sent.is_set():
                    deadline_s = deadline_s or time.monotonic() + _LATE_S
                    if time.monotonic() > deadline_s or self.error is not None:
                        break
        finally:
            consumer.close()

    def _note_end(self, partition: Partition) -> None:
        """Let the sender begin once all partitions are being fetched."""
        self.waiting.discard(partition)
        if not self.waiting:
            self.is_listening.set()

    def _take(self, message: Any) -> None:
        now_s = time.perf_counter()
        error = message.error()
        if error is not None:
            if error.name() == "_PARTITION_EOF":
                self._note_end((message.topic(), message.partition()))
            elif not is_passing(error, None):
                act = Act(f"read {self.topic}", f"READ on topic {self.topic}")
                raise refused(error, act, self.connection.reason)
            return
        value = message.value() or b""
        if len(value) >= _STAMP.size:
            sender, number, sent_s = _STAMP.unpack_from(value)
            if sender == self.sender and number == _FIRST:
                self.unproved.discard((message.topic(), message.partition()))
                if not self.unproved:
                    self.is_proved.set()
            elif sender == self.sender:
                self._fresh_s.append(now_s - sent_s)
                self.received += 1
                self.last_s = now_s
