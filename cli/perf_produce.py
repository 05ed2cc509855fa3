"""odradek perf produce: sends generated records with random keys, at full speed or at a rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar

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
from odradek.cli.perf_load import Distribution, DistributionType, Load, Records
from odradek.cli.perf_scratch import Place, topic_options
from odradek.cli.produce import ACKS, CODECS, PARTITIONER
from odradek.cli.refusals import CommandError, explain
from odradek.dataclass import dataclass

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

F = TypeVar("F", bound=Callable[..., None])
RECORDS_DEFAULT = 100_000
_CHUNK = 1_000
_QUEUE_RECORDS = 500_000
_SETTLE_S = 60.0


def producer_options(command: F) -> F:
    """Add the options for producers, which roundtrip has, too."""
    for option in (
        click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
                     help="The same seed draws the same keys."),
        click.option("--linger-ms", type=click.FloatRange(0),
                     help="The time to wait for more records in a batch."),
        click.option("--compression", type=click.Choice(CODECS), default="none",
                     show_default=True, help="The codec of batches."),
        click.option("--acks", type=click.Choice(ACKS), default="all", show_default=True,
                     help="The acknowledgements to wait for."),
        click.option("--distribution", type=DistributionType(), default="uniform",
                     show_default=True, metavar="uniform|zipf[:S]|sequential",
                     help="The frequencies of keys."),
        click.option("--keys", type=click.IntRange(0), default=10_000, show_default=True,
                     help="The number of different keys; 0 sends records without keys."),
        click.option("--seconds", type=click.FloatRange(0, min_open=True),
                     help="Stop after this number of seconds."),
    ):  # fmt: skip
        command = option(command)
    return command


def producer_properties(
    acks: str, compression: str, linger_ms: float, **more: object
) -> dict[str, object]:
    """Return the properties of a load's producers."""
    return {
        "partitioner": PARTITIONER,
        "acks": acks,
        "enable.idempotence": acks == "all",
        "compression.type": compression,
        "linger.ms": linger_ms,
        **more,
    }


@dataclass
class Sent:
    """Counts of one producer; owned by its thread, read by the thread that reports."""

    records: int = 0
    size_bytes: int = 0
    tombstones: int = 0
    delivered: int = 0
    refused: int = 0
    first_error: KafkaError | None = None
    latencies_s: list[float] = field(default_factory=list)


@click.command()
@topic_options
@click.option("--records", type=click.IntRange(1), help="The number of records. [default: "
              f"{RECORDS_DEFAULT:,} unless --seconds is given]")  # fmt: skip
@click.option("--size", "size_bytes", type=click.IntRange(0, 10_000_000), default=100,
              show_default=True, help="The size of each value in bytes.")  # fmt: skip
@click.option("--tombstones", type=click.FloatRange(0, 1), default=0.0, show_default=True,
              help="The share of records without a value.")  # fmt: skip
@click.option("--rate", type=click.FloatRange(0, min_open=True),
              help="The largest number of records a second.")  # fmt: skip
@click.option("--producers", type=click.IntRange(1, 64), default=1, show_default=True,
              help="The number of concurrent producers, each with its own thread and "
              "connection.")  # fmt: skip
@click.option("--batch-size", type=click.IntRange(1), help="The largest size of a batch in bytes.")
@producer_options
@json_option
@broker_options
def produce(
    place: Place,
    records: int | None,
    seconds: float | None,
    size_bytes: int,
    keys: int,
    distribution: Distribution,
    tombstones: float,
    seed: int,
    as_json: bool,
    connection: Connection,
    **how: Any,
) -> None:
    """Send generated records with random keys.

    Latency is the time from the call that sends a record to the broker's answer, including
    linger.

    Example: odradek perf produce --records 20000 --keys 1000 --distribution zipf:1.1
    """
    load = Load(keys, distribution, size_bytes, tombstones)
    load.require_drawable()
    linger_ms = 5.0 if how["linger_ms"] is None else how["linger_ms"]
    more: dict[str, object] = {"queue.buffering.max.messages": _QUEUE_RECORDS}
    if how["batch_size"]:
        more["batch.size"] = how["batch_size"]
    properties = producer_properties(how["acks"], how["compression"], linger_ms, **more)
    total = records if records or seconds else RECORDS_DEFAULT
    count, rate = how["producers"], how["rate"]
    shares = [None if total is None else (total + at) // count for at in range(count)]
    seeds = np.random.SeedSequence(seed).spawn(count)
    with place.topic(connection.admin()) as topic:
        sent = [Sent() for _ in range(count)]
        sending = [
            Sending(connection.producer(properties), topic, Records(load, seeds[at]), shares[at],
                     seconds, rate / count if rate else None, sent[at])
            for at in range(count)
        ]  # fmt: skip
        span_s, latencies, interrupted = _measure(sending, total)
        found = _document(topic, sent, span_s, latencies, seed)
        if as_json:
            print_json(found)
        else:
            _show(found)
        _require_all(found["refused"], sent, topic, connection)
        if interrupted:
            raise KeyboardInterrupt


class Sending:
    """One producer's share of the records."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        records: Records,
        total: int | None,
        seconds: float | None,
        rate: float | None,
        sent: Sent,
    ) -> None:
        self.producer, self.topic, self.records = producer, topic, records
        self.total, self.seconds, self.rate, self.sent = total, seconds, rate, sent

    def run(self, stop: threading.Event) -> None:
        """Send until the count or time is reached, or `stop` is set, and wait for the answers."""
        started_s = time.monotonic()
        # With a rate, chunks are small: 50 a second, so that the rate is even.
        chunk = _CHUNK if self.rate is None else max(1, min(_CHUNK, int(self.rate / 50)))
        while not stop.is_set():
            span_s = time.monotonic() - started_s
            if self.seconds is not None and span_s >= self.seconds:
                break
            left = chunk if self.total is None else min(chunk, self.total - self.sent.records)
            if left <= 0:
                break
            if self.rate is not None and (early_s := self.sent.records / self.rate - span_s) > 0:
                # A latency ends when its callback runs: only poll() may sleep here.
                self.producer.poll(min(early_s, 0.1))
                continue
            self._send(left, stop)
        left_s = _SETTLE_S
        while self.producer.flush(0.2) and (left_s := left_s - 0.2) > 0:
            pass
        self.sent.refused += len(self.producer)

    def _send(self, count: int, stop: threading.Event) -> None:
        produce, topic, note, sent = self.producer.produce, self.topic, self._note, self.sent
        tombstones = 0
        for key, value in self.records.make(count):
            while True:
                try:
                    produce(topic, value, key, on_delivery=note)
                    break
                except BufferError:
                    self.producer.poll(0.01)
            tombstones += value is None
        self.producer.poll(0)
        sent.records += count
        sent.tombstones += tombstones

    def _note(self, error: KafkaError | None, message: Message) -> None:
        sent = self.sent
        if error is None:
            sent.delivered += 1
            sent.size_bytes += len(message) + len(message.key() or b"")
            sent.latencies_s.append(message.latency() or 0.0)
            return
        sent.refused += 1
        if sent.first_error is None:
            sent.first_error = error


def fill(connection: Connection, topic: str, count: int) -> None:
    """Send a number of records with random keys. Raises CommandError when some are refused."""
    more = {"queue.buffering.max.messages": _QUEUE_RECORDS}
    producer = connection.producer(producer_properties("all", "none", 5.0, **more))
    load, sent = Load(10_000, Distribution("uniform"), 100), Sent()
    made = Records(load, np.random.SeedSequence(0))
    Sending(producer, topic, made, count, None, None, sent).run(threading.Event())
    _require_all(sent.refused, [sent], topic, connection)


def _require_all(
    refused: int, sent: Sequence[Sent], topic: str, connection: Connection
) -> None:
    """Raise CommandError unless all records were delivered."""
    if refused:
        error = next((one.first_error for one in sent if one.first_error is not None), None)
        why = "there was no answer in time"
        if error is not None:
            why = explain(error, f"WRITE on topic {topic}", connection.reason)
        raise CommandError(f"{refused:,} records were not delivered: {why}")


def _measure(sending: list[Sending], total: int | None) -> tuple[float, Latencies, bool]:
    """Run all producers; return the seconds taken, the latencies, and whether Ctrl-C ended it."""
    latencies = Latencies()
    workers = Workers([one.run for one in sending])
    started_s = time.monotonic()
    interrupted = False
    with LiveLine("producing", total) as line:

        def tick() -> None:
            for one in sending:
                latencies.take(one.sent.latencies_s)
            delivered = sum(one.sent.delivered for one in sending)
            size_bytes = sum(one.sent.size_bytes for one in sending)
            line.show(delivered, size_bytes, latencies.quantile_ms(0.99))

        try:
            workers.wait(tick)
        except KeyboardInterrupt:
            interrupted = True
        span_s = time.monotonic() - started_s
        tick()
    return span_s, latencies, interrupted


def _document(
    topic: str, sent: list[Sent], span_s: float, latencies: Latencies, seed: int
) -> dict[str, Any]:
    delivered = sum(one.delivered for one in sent)
    size_bytes = sum(one.size_bytes for one in sent)
    return {
        "topic": topic,
        **rates(delivered, size_bytes, span_s),
        "tombstones": sum(one.tombstones for one in sent),
        "refused": sum(one.refused for one in sent),
        "latency_ms": latencies.document(),
        "seed": seed,
    }


def _show(found: dict[str, Any]) -> None:
    rows = rate_rows(found)
    if found["tombstones"]:
        rows.insert(1, ("Tombstones", f"{found['tombstones']:,}"))
    print_pairs([*rows, *latency_rows(found["latency_ms"], "Latency")])
