"""A member of a group that says what it does, for tests/compat/storm.py: confluent-kafka."""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition


def say(what: str, *numbers: int, at: int | None = None) -> None:
    """Tell of something that happened, at a time or now."""
    print(what, time.monotonic_ns() if at is None else at, *numbers, flush=True)


class Member:
    """Consumes until it is told to end; commits what it has read, and waits for that."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, protocol: str, session_ms: str, instance: str
    ) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            # Partitions are kept over a restart of the broker, however long that takes.
            "reconnect.backoff.max.ms": 500,
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": int(session_ms), "heartbeat.interval.ms": 500}
            settings["partition.assignment.strategy"] = "cooperative-sticky"
        if instance:
            settings["group.instance.id"] = instance
        self._consumer = Consumer(settings)
        self._topic = topic
        self._is_ending = False
        # What it has processed and could not commit yet: the offset to go on from, by partition.
        self._uncommitted: dict[int, int] = {}

    def end(self, *_: object) -> None:
        """Leave soon."""
        self._is_ending = True

    def run(self) -> None:
        """Be a member."""
        self._consumer.subscribe(
            [self._topic], on_assign=self._gain, on_revoke=self._lose, on_lost=self._lose
        )
        while not self._is_ending:
            self._process(self._consumer.consume(100, 0.1))
        self._consumer.close()

    def _gain(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        at = time.monotonic_ns()
        for one in self._committed(consumer, partitions):
            one.offset = max(one.offset, 0)
            say("own", one.partition, one.offset, at=at)
            consumer.incremental_assign([one])

    def _committed(
        self, consumer: Consumer, partitions: list[TopicPartition]
    ) -> list[TopicPartition]:
        # librdkafka answers nobody who asks while it closes; what it is given then is not read.
        while partitions and not self._is_ending:
            try:
                found: list[TopicPartition] = consumer.committed(partitions, 5)
            except KafkaException:
                continue  # the broker is away
            if not any(one.error for one in found):
                return found
        return []

    def _lose(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_unassign(partitions)
        for one in partitions:
            self._uncommitted.pop(one.partition, None)
            say("lost", one.partition)

    def _process(self, messages: list[Any]) -> None:
        offsets: dict[int, list[int]] = {}
        for message in messages:
            if message.error() is None:
                offsets.setdefault(message.partition(), []).append(message.offset())
        for partition, read in offsets.items():
            say("read", partition, read[0], read[-1] + 1)
            self._uncommitted[partition] = read[-1] + 1
        for partition, offset in list(self._uncommitted.items()):
            self._commit(partition, offset)

    def _commit(self, partition: int, offset: int) -> None:
        try:
            at = TopicPartition(self._topic, partition, offset)
            (stored,) = self._consumer.commit(offsets=[at], asynchronous=False)
        except KafkaException:
            return  # the group is about to change, or the broker is away: after the next poll
        if stored.error is None:
            self._uncommitted.pop(partition, None)
            say("done", partition, offset)


if __name__ == "__main__":
    member = Member(*sys.argv[1:])
    signal.signal(signal.SIGTERM, member.end)
    member.run()
