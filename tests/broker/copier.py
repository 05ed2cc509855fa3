"""Copies a partition to another topic in transactions, exactly once; a process of its own.

    python -m tests.broker.copier BOOTSTRAP SOURCE TARGET PARTITION

Some messages at a time are written, and how far the source has been read with them, in one
transaction. After an error that aborts it goes back to what is committed; after another one, or
when nothing happens for a while, it ends, and whoever has started it starts another: librdkafka
2.16 may wait for good in send_offsets_to_transaction when the broker has come back.
"""

from __future__ import annotations

import faulthandler
import random
import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

_POLL_S = 0.5
_BEGIN_TIMEOUT_S = 60.0
_TIMEOUT_S = 5.0
_STUCK_S = 8.0
# As many messages in a transaction, and every so many-th one is aborted.
_MESSAGES_MAX = 7
_ABORTED_ONE_IN = 6


def main(bootstrap: str, source: str, target: str, partition: int) -> None:
    """Copy until killed."""
    name = f"{source}-{partition}"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "copiers",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 20_000,
        }
    )
    place = TopicPartition(source, partition)
    producer.init_transactions(_BEGIN_TIMEOUT_S)
    _go_back(consumer, place)
    print("began", flush=True)
    while True:
        faulthandler.dump_traceback_later(_STUCK_S, exit=True)
        messages = [one for one in consumer.consume(_MESSAGES_MAX, _POLL_S) if not one.error()]
        if not messages:
            continue
        try:
            _copy(consumer, producer, target, messages)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(_TIMEOUT_S)
            _go_back(consumer, place)


def _go_back(consumer: Consumer, place: TopicPartition) -> None:
    """Read on from what is committed."""
    (committed,) = consumer.committed([place], _TIMEOUT_S)
    offset = max(committed.offset, 0)
    consumer.assign([TopicPartition(place.topic, place.partition, offset)])


def _copy(
    consumer: Consumer, producer: Producer, target: str, messages: list[Message]
) -> None:
    last = messages[-1]
    producer.begin_transaction()
    for one in messages:
        producer.produce(target, one.value(), one.key(), partition=one.partition())
    producer.send_offsets_to_transaction(
        [TopicPartition(last.topic(), last.partition(), last.offset() + 1)],
        consumer.consumer_group_metadata(),
        _TIMEOUT_S,
    )
    if random.randrange(_ABORTED_ONE_IN):
        producer.commit_transaction(_TIMEOUT_S)
        print(f"copied {last.offset()}", flush=True)
        return
    producer.flush(_TIMEOUT_S)
    producer.abort_transaction(_TIMEOUT_S)
    _go_back(consumer, TopicPartition(last.topic(), last.partition()))


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
