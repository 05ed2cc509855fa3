"""Producers of a siege: plain ones, idempotent ones, and those with transactions."""

from __future__ import annotations

import contextlib
import faulthandler
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.histories.history import Place, key_of
from tests.siege.load.client import PATIENCE_MS, Client

_PAUSE_S = 0.01
_TOMBSTONE_SHARE = 0.1
_TIMEOUT_S = 60.0
_TRANSACTION_TIMEOUT_MS = 20_000
_RECORDS_MAX = 10
_ABORTED_SHARE = 0.2
# What was waiting for a partition fits into one of its small segments.
_BATCH_BYTES = 5_000
_IDEMPOTENT = {"enable.idempotence": True}
# Without an answer, the record may be there, or come later.
_UNKNOWN = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)


def enqueue(producer: Producer, *record: Any, **options: Any) -> None:
    """Give a producer a record, as to its produce(), once there is room in its queue."""
    while True:
        try:
            producer.produce(*record, **options)
            return
        except BufferError:
            producer.poll(0.1)


class Sender:
    """Sends numbered records, and notes where each is."""

    def __init__(self, client: Client, compacted: set[str]) -> None:
        """Of `compacted` topics some records delete their keys."""
        self._client, self._compacted = client, compacted
        self._number = 0

    def send(
        self,
        producer: Producer,
        place: Place,
        *,
        delivery: str = "idempotent",
        transaction: int | None = None,
    ) -> None:
        """Send a record; its outcome is noted once it is known."""
        client, name = self._client, f"{self._client.name}-{self._number}"
        self._number += 1
        is_tombstone = (
            place[0] in self._compacted and client.source.random() < _TOMBSTONE_SHARE
        )
        members: dict[str, object] = {"tombstones": [name]} if is_tombstone else {}
        if transaction is not None:
            members["transaction"] = transaction
        number = client.begin(
            "append",
            topic=place[0],
            partition=place[1],
            values=[name],
            delivery=delivery,
            **members,
        )
        delivered = partial(self._delivered, number, is_transactional=transaction is not None)
        enqueue(
            producer,
            place[0],
            None if is_tombstone else name,
            key_of(name),
            place[1],
            on_delivery=delivered,
            headers=[("name", name)] if is_tombstone else None,
        )

    def _delivered(
        self, number: int, error: KafkaError | None, message: Message, *, is_transactional: bool
    ) -> None:
        if error is None:
            self._client.end(number, offset=message.offset())
        elif error.code() not in _UNKNOWN and not is_transactional:
            self._client.refused(f"a record for {message.topic()}-{message.partition()}", error)


def produce_plainly(client: Client, compacted: set[str]) -> None:
    """Produce without idempotence.

    Some records are written twice: after an error of a leader that has moved, librdkafka sends
    them again even without retries, and the former leader's WAL may have them.
    """
    _produce(client, compacted, client.places, "retried", {"acks": "all"})


def produce_in_turn(client: Client, compacted: set[str]) -> None:
    """Produce with idempotence, one request after the other.

    With several under way, librdkafka may write records twice. When one partition's request has
    failed, and the next one comes out of order, it begins another epoch for all partitions, also
    for a batch that another partition has, and whose answer was lost (its issue 4953).
    """
    in_turn = {"max.in.flight.requests.per.connection": 1}
    _produce(client, compacted, client.places, "idempotent", {**_IDEMPOTENT, **in_turn})


def produce_ahead(client: Client, compacted: set[str]) -> None:
    """Produce with idempotence and several requests under way, to one partition."""
    _produce(client, compacted, client.places[:1], "idempotent", _IDEMPOTENT)


def _produce(
    client: Client,
    compacted: set[str],
    places: Sequence[Place],
    delivery: str,
    settings: Mapping[str, str | int | bool],
) -> None:
    """Produce until it is over, each record until it is acknowledged."""
    own = client.settings(
        message_timeout_ms=PATIENCE_MS, linger_ms=5, batch_size=_BATCH_BYTES
    )
    producer = Producer({**own, **settings})
    sender = Sender(client, compacted)
    while not client.is_over(_PAUSE_S):
        sender.send(producer, client.source.choice(places), delivery=delivery)
        producer.poll(0)
    faulthandler.cancel_dump_traceback_later()
    if producer.flush(PATIENCE_MS / 1000):
        client.begin("problem", text="stuck: records were never answered")


class Transactions:
    """Writes to several partitions in a transaction, and aborts some."""

    def __init__(self, client: Client, compacted: set[str]) -> None:
        self._client, self._sender = client, Sender(client, compacted)
        self._number = 0
        self._producer = start(client)

    def run(self) -> None:
        """Run transactions until it is over; leave none open."""
        while not self._client.is_over():
            self._run_one()

    def _run_one(self) -> None:
        client, producer = self._client, self._producer
        transaction = client.begin("transaction", producer=client.name, number=self._number)
        self._number += 1
        try:
            producer.begin_transaction()
            for _ in range(client.source.randint(1, _RECORDS_MAX)):
                place = client.source.choice(client.places)
                self._sender.send(producer, place, transaction=transaction)
                producer.poll(_PAUSE_S)
            if client.source.random() < _ABORTED_SHARE:
                abort(client, producer, transaction)
                return
            asked = client.begin("commit", transaction=transaction)
            until_done(producer.commit_transaction)
            client.end(asked)
        except KafkaException as error:
            self._producer = give_up(client, producer, transaction, error.args[0])


def start(client: Client) -> Producer:
    """Return a producer with transactions; it ends the open one of a former producer."""
    while True:
        made = Producer(
            client.settings(
                transactional_id=client.name,
                transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
                batch_size=_BATCH_BYTES,
            )
        )
        try:
            until_done(made.init_transactions)
            return made
        except KafkaException as error:
            client.refused("init_transactions", error.args[0])


def abort(client: Client, producer: Producer, transaction: int) -> None:
    """Abort a transaction. Raises KafkaException."""
    asked = client.begin("abort", transaction=transaction)
    until_done(producer.abort_transaction)
    client.end(asked)


def give_up(
    client: Client, producer: Producer, transaction: int, error: KafkaError
) -> Producer:
    """End a transaction that has failed; return the producer for the next one."""
    if error.txn_requires_abort():
        with contextlib.suppress(KafkaException):
            abort(client, producer, transaction)
            return producer
    return start(client)


def until_done(step: Callable[[float], None]) -> None:
    """Do a step of a transaction, again as long as its error says so. Raises KafkaException."""
    while True:
        try:
            step(_TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return
