"""confluent-kafka, which is librdkafka, in transactions."""

from __future__ import annotations

import sys
import threading
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.interop.python.lines import serve, tell, when_input_ends

TIMEOUT_S = 60.0
BATCH = 20


class Transacting:
    """A transactional producer."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": timeout_ms,
            }
        )
        self.producer.init_transactions(TIMEOUT_S)

    def answer(self, request: list[Any]) -> None:
        """Carry out a request."""
        match request:
            case ["begin"]:
                self.producer.begin_transaction()
            case ["send", topic, partition, key, value]:
                # Without a delivery callback: what is refused fails the whole transaction.
                self.producer.produce(topic, value, key, partition)
                self.producer.flush(TIMEOUT_S)
            case ["commit"]:
                self.producer.commit_transaction(TIMEOUT_S)
            case ["abort"]:
                self.producer.abort_transaction(TIMEOUT_S)


def copy(bootstrap: str, group: str, source: str, target: str, transactional_id: str) -> None:
    """Copy a topic, records and offsets in one transaction, until the input ends."""
    producer = Transacting(bootstrap, transactional_id, 10_000).producer
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
        }
    )
    consumer.subscribe([source])
    ended = threading.Event()
    when_input_ends(ended.set)
    while not ended.is_set():
        messages = [m for m in consumer.consume(BATCH, 0.5) if _is_record(m)]
        if not messages:
            continue
        producer.begin_transaction()
        for one in messages:
            producer.produce(target, one.value(), one.key(), _partition(one))
        next_offsets = {_partition(m): m.offset() + 1 for m in messages}
        offsets = [TopicPartition(source, p, at) for p, at in next_offsets.items()]
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(offsets, metadata, TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)
        tell({"copied": len(messages)})
    consumer.close()


def _partition(message: Message) -> int:
    partition = message.partition()
    assert partition is not None
    return partition


def _is_record(message: Message) -> bool:
    error = message.error()
    if error is not None and not error.retriable() and error.fatal():
        raise KafkaException(error)
    return error is None


def main(arguments: list[str]) -> None:
    """Run a verb."""
    match arguments:
        case ["transact", bootstrap, transactional_id, timeout_ms]:
            transacting = Transacting(bootstrap, transactional_id, int(timeout_ms))
            serve(transacting.answer, KafkaException)
        case ["copy", bootstrap, group, source, target, transactional_id]:
            copy(bootstrap, group, source, target, transactional_id)
        case _:
            raise SystemExit(f"not understood: {arguments}")


if __name__ == "__main__":
    main(sys.argv[1:])
