"""A client of a soak as a process of its own; it ends after its standard input has.

    python -m tests.soak.load produce BOOTSTRAP RECORDS_A_SECOND
    python -m tests.soak.load transact BOOTSTRAP TRANSACTIONS_A_SECOND
    python -m tests.soak.load classic|consumer BOOTSTRAP

With a rate of 0, records are produced as fast as the brokers take them. Each prints the number of
records that it has written or read.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from tests.siege.load.client import PATIENCE_MS, SETTINGS
from tests.siege.load.consumers import PASSING
from tests.siege.load.producers import enqueue, until_done
from tests.soak.topics import EVENTS, KEYS, LOCAL, SHARES, STATE

_VALUE_BYTES = 1_000
_TURN_S = 0.01
_UNPACED_TURN = 1_000
_TRANSACTION_RECORDS = 10
_POLL_S = 0.2
_BATCH = 1_000
_TIMEOUT_S = 120.0


class Over(threading.Event):
    """Is set when the standard input ends."""

    def __init__(self) -> None:
        super().__init__()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        sys.stdin.read()
        self.set()


def _records(source: random.Random) -> Callable[[], tuple[str, bytes, bytes]]:
    """Return a function that draws a topic, a value and a key."""
    value = os.urandom(_VALUE_BYTES)
    topics, weights = list(SHARES), list(itertools.accumulate(SHARES.values()))

    def draw() -> tuple[str, bytes, bytes]:
        (topic,) = source.choices(topics, cum_weights=weights)
        key = int(source.random() * KEYS)
        return topic, value, key.to_bytes(4, "big")

    return draw


def produce(bootstrap: str, rate: float, over: Over) -> int:
    """Write so many records a second; return how many were acknowledged."""
    acknowledged = 0

    def done(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged
        if error is not None:
            raise KafkaException(error)
        acknowledged += 1

    own = {"enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": PATIENCE_MS}
    producer = Producer(_settings(bootstrap, own))
    draw = _records(random.Random(1))
    begun_s, sent = time.monotonic(), 0
    while not over.is_set():
        due = int((time.monotonic() - begun_s) * rate) - sent if rate else _UNPACED_TURN
        for _ in range(due):
            enqueue(producer, *draw(), on_delivery=done)
        sent += due
        producer.poll(0)
        if rate:
            over.wait(_TURN_S)
    if producer.flush(_TIMEOUT_S):
        raise SystemExit("records are not acknowledged")
    return acknowledged


def transact(bootstrap: str, rate: float, over: Over) -> int:
    """Write so many transactions a second; return how many records were committed."""
    producer = Producer(_settings(bootstrap, {"transactional.id": "soak"}))
    until_done(producer.init_transactions)
    draw, committed = _records(random.Random(2)), 0
    while not over.wait(1 / rate):
        producer.begin_transaction()
        for _ in range(_TRANSACTION_RECORDS):
            enqueue(producer, *draw())
        try:
            until_done(producer.commit_transaction)
            committed += _TRANSACTION_RECORDS
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            until_done(producer.abort_transaction)
    return committed


def consume(bootstrap: str, protocol: str, over: Over) -> int:
    """Read all topics as a member of a group; return the number of records."""
    own = {
        "group.id": f"soak-{protocol}",
        "group.protocol": protocol,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(_settings(bootstrap, own))
    consumer.subscribe([EVENTS, STATE, LOCAL])
    count = 0
    while not over.is_set():
        for one in consumer.consume(_BATCH, _POLL_S):
            error = one.error()
            if error is None:
                count += 1
            elif error.code() not in PASSING:
                raise KafkaException(error)
    consumer.close()
    return count


def _settings(bootstrap: str, more: Mapping[str, Any]) -> dict[str, Any]:
    return {**SETTINGS, "bootstrap.servers": bootstrap, **more}


def main() -> None:
    """Run a client."""
    kind, bootstrap, *rate = sys.argv[1:]
    over = Over()
    if kind == "produce":
        count = produce(bootstrap, float(rate[0]), over)
    elif kind == "transact":
        count = transact(bootstrap, float(rate[0]), over)
    else:
        count = consume(bootstrap, kind, over)
    print(count)


if __name__ == "__main__":
    main()
