"""odradek perf consume: reads a topic at full speed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.answer import print_json
from odradek.cli.client import Connection, broker_options, json_option
from odradek.cli.perf_figures import LiveLine, Workers, print_pairs, rate_rows, rates
from odradek.cli.perf_produce import RECORDS_DEFAULT, fill
from odradek.cli.perf_scratch import Place, topic_options
from odradek.cli.positions import BEGINNING, END, Partition, Position, PositionType, resolve
from odradek.cli.reading import is_passing
from odradek.cli.refusals import Act, refused
from odradek.dataclass import dataclass

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_BATCH_COUNT = 10_000
_POLL_S = 0.1


@dataclass
class Received:
    """Counts of one consumer; owned by its thread, read by the thread that reports."""

    records: int = 0
    size_bytes: int = 0
    first_s: float | None = None


@click.command()
@topic_options
@click.option("--records", type=click.IntRange(1), help="Stop after this number of "
              "records; several consumers may read a few thousand more.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(0, min_open=True),
              help="Stop after this number of seconds.")  # fmt: skip
@click.option("--from", "start", type=PositionType(), default=BEGINNING, metavar="POSITION",
              help="As for odradek consume. [default: beginning]")  # fmt: skip
@click.option("--consumers", type=click.IntRange(1, 64), default=1, show_default=True,
              help="The number of concurrent consumers; each reads its share of the "
              "partitions.")  # fmt: skip
@json_option
@broker_options
def consume(
    place: Place,
    records: int | None,
    seconds: float | None,
    start: Position,
    consumers: int,
    as_json: bool,
    connection: Connection,
) -> None:
    """Read a topic at full speed.

    It stops at the end that the topic had at the start, or earlier. A topic that is created for
    the measurement is filled before it, with --records of 100 bytes or 100,000.

    Example: odradek perf consume --topic prices
    """
    admin = connection.admin()
    with place.topic(admin) as topic:
        if place.name is None:
            fill(connection, topic, records or RECORDS_DEFAULT)
        known = {topic: sorted(admin.require_topic(topic, for_records=True).partitions)}
        starts, stops = resolve(admin, known, start), resolve(admin, known, END)
        todo = {one: (at, stops[one]) for one, at in starts.items() if at < stops[one]}
        shares = [dict(list(todo.items())[at::consumers]) for at in range(consumers)]
        received = [Received() for _ in shares]

        def wanted() -> int:
            left = _BATCH_COUNT if records is None else records - sum(r.records for r in received)
            return min(left, _BATCH_COUNT)

        readings = [
            _Receiving(connection, share, one, wanted)
            for share, one in zip(shares, received, strict=True)
            if share
        ]
        workers = Workers([one.run for one in readings])
        started_s = time.monotonic()
        interrupted = False
        with LiveLine("consuming", records or sum(end - at for at, end in todo.values())) as line:

            def tick() -> None:
                if seconds is not None and time.monotonic() - started_s >= seconds:
                    workers.stop.set()
                line.show(sum(r.records for r in received), sum(r.size_bytes for r in received))

            try:
                workers.wait(tick)
            except KeyboardInterrupt:
                interrupted = True
            span_s = time.monotonic() - started_s
        found = _document(topic, received, started_s, span_s)
    if as_json:
        print_json(found)
    else:
        first_ms = found["first_record_ms"]
        first = "-" if first_ms is None else f"{first_ms:,.0f} ms"
        print_pairs([*rate_rows(found), ("First record after", first)])
    if interrupted:
        raise KeyboardInterrupt


class _Receiving:
    """One consumer's part: partitions with the offsets to begin and end at."""

    def __init__(
        self,
        connection: Connection,
        todo: Mapping[Partition, tuple[int, int]],
        received: Received,
        wanted: Callable[[], int],
    ) -> None:
        self.connection, self.todo, self.received = connection, todo, received
        self.wanted = wanted
        self.left = set(todo)

    def run(self, stop: threading.Event) -> None:
        """Read until the share is done, the count is reached, or `stop` is set."""
        from confluent_kafka import TopicPartition

        consumer = self.connection.consumer(
            {
                "group.id": "odradek-perf",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "queued.min.messages": 500_000,
            }
        )
        try:
            assigned = [TopicPartition(*one, at) for one, (at, _) in self.todo.items()]
            consumer.assign(assigned)
            while self.left and not stop.is_set() and (count := self.wanted()) > 0:
                self._take(consumer, count)
        finally:
            consumer.close()

    def _take(self, consumer: Consumer, count: int) -> None:
        received, stops = self.received, self.todo
        records = size_bytes = 0
        for message in consumer.consume(count, _POLL_S):
            partition = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is not None:
                if error.name() == "_PARTITION_EOF":
                    self.left.discard(partition)
                elif not is_passing(error, None):
                    act = Act(f"read {partition[0]}", f"READ on topic {partition[0]}")
                    raise refused(error, act, self.connection.reason)
                continue
            offset, end = message.offset() or 0, stops[partition][1]
            if offset + 1 >= end:
                self.left.discard(partition)
            if offset < end:
                records += 1
                size_bytes += len(message)
        if records and received.first_s is None:
            received.first_s = time.monotonic()
        received.records += records
        received.size_bytes += size_bytes


def _document(
    topic: str, received: list[Received], started_s: float, span_s: float
) -> dict[str, Any]:
    firsts_s = [one.first_s for one in received if one.first_s is not None]
    return {
        "topic": topic,
        **rates(
            sum(one.records for one in received), sum(one.size_bytes for one in received), span_s
        ),
        "first_record_ms": round((min(firsts_s) - started_s) * 1000, 1) if firsts_s else None,
    }
