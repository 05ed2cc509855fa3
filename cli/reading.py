"""Reads records with a consumer and writes them, until there is a reason to stop."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import IO, TYPE_CHECKING, Any

from odradek.cli.interruption import Interruption
from odradek.cli.positions import Partition
from odradek.cli.records import Consumed, Write
from odradek.cli.refusals import Act, refused
from odradek.dataclass import dataclass

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

    from odradek.cli.client import Connection

_BATCH_COUNT = 500
_POLL_S = 0.2
# Consumers of librdkafka have a group even where they assign partitions themselves; nothing is
# committed for it.
_NO_GROUP = "odradek-consume"
_PASSING = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "_MAX_POLL_EXCEEDED")
_TIMESTAMP_TYPES = ("none", "create_time", "log_append_time")


@dataclass(frozen=True)
class Reading:
    """The records to read, and where to stop: at offsets, at the current end, after a count."""

    topic: str
    isolation: str
    group: str | None = None
    starts: Mapping[Partition, int] = field(default_factory=dict)
    stops: Mapping[Partition, int] | None = None
    begins_at_end: bool = False
    stops_at_end: bool = False
    count_max: int | None = None
    has_key: Callable[[bytes | None], bool] | None = None


def read(connection: Connection, reading: Reading, write: Write, output: IO[bytes]) -> None:
    """Read and write records until a stop; a closed pipe at the output is one."""
    consumer = connection.consumer(
        {
            "group.id": reading.group or _NO_GROUP,
            "isolation.level": reading.isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": reading.group is not None,
            # A record counts as read once it is written.
            "enable.auto.offset.store": False,
            "auto.offset.reset": "latest" if reading.begins_at_end else "earliest",
        }
    )
    try:
        # A record is both written and noted as read, or neither.
        with Interruption() as interruption:
            _Loop(connection, consumer, reading, write, output).run(interruption)
    except BrokenPipeError:
        # Otherwise the interpreter flushes the rest at its exit, and prints an error.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        consumer.close()
    if interruption.is_asked:
        raise KeyboardInterrupt


def is_passing(error: KafkaError, group: str | None) -> bool:
    """Return whether a consumer continues by itself; without a group, group errors are ignored."""
    is_of_no_group = group is None and error.name().startswith("GROUP_")
    return is_of_no_group or error.name() in _PASSING or error.retriable()


class _Loop:
    def __init__(
        self,
        connection: Connection,
        consumer: Consumer,
        reading: Reading,
        write: Write,
        output: IO[bytes],
    ) -> None:
        self.connection, self.consumer, self.reading = connection, consumer, reading
        self.write, self.output = write, output
        self.count = 0
        self.ended: set[Partition] = set()
        self.assigned: set[Partition] | None = None

    def run(self, interruption: Interruption) -> None:
        self._begin()
        while not (self._is_done() or interruption.is_asked):
            messages = self.consumer.consume(_BATCH_COUNT, _POLL_S)
            for message in messages:
                error = message.error()
                if error is not None:
                    self._handle(error, message)
                elif self._take(message) or interruption.is_asked:
                    break
            self.output.flush()
            if not messages and _reader_is_gone(self.output):
                raise BrokenPipeError

    def _begin(self) -> None:
        from confluent_kafka import TopicPartition

        if self.reading.group is not None:
            self.consumer.subscribe(
                [self.reading.topic], on_assign=self._on_assign, on_revoke=self._on_revoke
            )
            return
        stops = self.reading.stops
        todo = {
            one: at
            for one, at in self.reading.starts.items()
            if stops is None or at < stops[one]
        }
        self.assigned = set(todo)
        self.consumer.assign([TopicPartition(*one, at) for one, at in todo.items()])

    def _on_assign(self, consumer: Consumer, partitions: list[Any]) -> None:
        self.assigned = (self.assigned or set()) | {(p.topic, p.partition) for p in partitions}

    def _on_revoke(self, consumer: Consumer, partitions: list[Any]) -> None:
        gone = {(p.topic, p.partition) for p in partitions}
        self.assigned = (self.assigned or set()) - gone
        self.ended -= gone

    def _is_done(self) -> bool:
        if self.reading.count_max is not None and self.count >= self.reading.count_max:
            return True
        return (
            self.reading.stops_at_end
            and self.assigned is not None
            and self.assigned <= self.ended
        )

    def _take(self, message: Message) -> bool:
        """Write a record, unless it is past a stop; return whether reading is done."""
        partition = (message.topic() or "", _number(message.partition()))
        offset, stops = _number(message.offset()), self.reading.stops
        if stops is not None:
            if offset + 1 >= stops[partition]:
                self.ended.add(partition)
            if offset >= stops[partition]:
                return False
        record = _consumed(message, *partition, offset)
        if self.reading.has_key is None or self.reading.has_key(record.key):
            self.output.write(self.write(record))
            self.count += 1
        if self.reading.group is not None:
            self.consumer.store_offsets(message)
        return self._is_done()

    def _handle(self, error: KafkaError, message: Message) -> None:
        topic, group = self.reading.topic, self.reading.group
        if error.name() == "_PARTITION_EOF":
            self.ended.add((message.topic() or "", _number(message.partition())))
        elif not is_passing(error, group):
            right = f"READ on group {group}" if error.name().startswith("GROUP_") else ""
            act = Act(f"read {topic}", right or f"READ on topic {topic}")
            raise refused(error, act, self.connection.reason)


def _consumed(message: Message, topic: str, partition: int, offset: int) -> Consumed:
    kind, timestamp_ms = message.timestamp()
    headers: Any = message.headers() or ()
    key: Any = message.key()
    value: Any = message.value()
    return Consumed(
        topic,
        partition,
        offset,
        timestamp_ms,
        _TIMESTAMP_TYPES[kind],
        key,
        value,
        tuple(headers),
    )


def _reader_is_gone(output: IO[bytes]) -> bool:
    """Return whether a pipe is closed at its other end; writes nothing to find out."""
    try:
        descriptor = output.fileno()
    except (OSError, ValueError):
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _number(number: int | None) -> int:
    assert number is not None
    return number
