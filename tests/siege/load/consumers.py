"""Consumers of a siege: readers that choose their partitions, and members of groups."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.histories.history import Place, key_of
from tests.siege.load.client import PATIENCE_MS, Client
from tests.siege.load.producers import enqueue, give_up, start, until_done

_POLL_S = 0.2
_TIMEOUT_S = 10.0
_BATCH = 50
_REST_S = 0.2
# Errors of a poll that pass by themselves.
PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
    }
)


def name_of(message: Message) -> str:
    """Return the name of a record: its value, or a header of a tombstone."""
    value = message.value()
    if value is None:
        ((_, value),) = message.headers() or []
    text: str = value.decode()
    return text


def place_of(message: Message) -> Place:
    """Return the partition of a record."""
    return message.topic() or "", message.partition() or 0


def entry_of(message: Message) -> list[object]:
    """Return a record as an entry of the history."""
    epoch = message.leader_epoch()
    return [message.offset(), -1 if epoch is None else epoch, name_of(message)]


def note_reads(
    client: Client, consumer: Consumer, messages: Sequence[Message], *, is_committed: bool
) -> None:
    """Note the records that a client has read, and the high watermarks of its last answers."""
    records: defaultdict[Place, list[object]] = defaultdict(list)
    for one in messages:
        records[place_of(one)].append(entry_of(one))
    for (topic, number), some in records.items():
        begun = client.begin("read", topic=topic, partition=number, committed=is_committed)
        client.end(begun, records=some, **_watermark(consumer, (topic, number)))


def _watermark(consumer: Consumer, place: Place) -> dict[str, Any]:
    """Return the high watermark of the last answer; librdkafka keeps it from leader to leader."""
    _, high = consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
    return {"high_watermark": high} if high >= 0 else {}


def _is_record(client: Client, message: Message | None) -> bool:
    if message is None:
        return False
    error = message.error()
    if error is not None and error.code() not in PASSING:
        client.refused("a fetch", error)
    return error is None


def _consumer(client: Client, *, is_committed: bool, **more: str | bool) -> Consumer:
    """Return a consumer that commits nothing by itself, with a group of its own by default."""
    own: dict[str, str | bool] = {
        "group_id": client.name,
        "isolation_level": "read_committed" if is_committed else "read_uncommitted",
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
    }
    return Consumer(client.settings(**(own | more)))


def read(client: Client, *, is_committed: bool) -> None:
    """Read all partitions from their begin until it is over."""
    consumer = _consumer(client, is_committed=is_committed)
    consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in client.places])
    while not client.is_over():
        found = consumer.consume(_BATCH, _POLL_S)
        some = [one for one in found if _is_record(client, one)]
        note_reads(client, consumer, some, is_committed=is_committed)
    consumer.close()


def scan(
    client: Client,
    place: Place,
    *,
    is_committed: bool,
    is_final: bool = False,
    leaves_out: bool = True,
    patience_s: float = _TIMEOUT_S,
) -> bool:
    """Read a partition from its start to its end, and note that; return whether it succeeded.

    With `leaves_out` the records of aborted transactions are left out.
    """
    topic, number = place
    begun = client.begin(
        "scan", topic=topic, partition=number, committed=is_committed, final=is_final
    )
    consumer = _consumer(client, is_committed=leaves_out, enable_partition_eof=True)
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING)])
        records = []
        while (message := consumer.poll(patience_s)) is not None:
            error = message.error()
            if error is None:
                records.append(entry_of(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                # Asked for last: retention may have taken records that the scan has missed.
                start, _ = consumer.get_watermark_offsets(
                    TopicPartition(topic, number), patience_s
                )
                client.end(begun, records=records, log_start=start, log_end=message.offset())
                return True
    except KafkaException:
        pass
    finally:
        consumer.close()
    return False


def scan_again(client: Client) -> None:
    """Read partitions from their starts to their ends, one after the other, until it is over."""
    while not client.is_over(_REST_S):
        scan(client, client.source.choice(client.places), is_committed=True)


class Member:
    """A member of a group: it commits what it has read."""

    def __init__(self, client: Client, group: str, **settings: str) -> None:
        self.client, self.group = client, group
        self.consumer = _consumer(client, is_committed=True, group_id=group, **settings)
        topics = sorted({topic for topic, _ in client.places})
        self.consumer.subscribe(topics, on_assign=self._assigned)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Note the committed offsets, from which the member goes on."""
        begun = {
            (one.topic, one.partition): self.client.begin(
                "fetch_offset", group=self.group, topic=one.topic, partition=one.partition
            )
            for one in partitions
        }
        with contextlib.suppress(KafkaException):
            for one in consumer.committed(partitions, _TIMEOUT_S):
                if one.error is None:
                    self.client.end(begun[one.topic, one.partition], offset=max(one.offset, -1))

    def read(self) -> list[Message]:
        """Read some records."""
        found = self.consumer.consume(_BATCH, _POLL_S)
        some = [one for one in found if _is_record(self.client, one)]
        note_reads(self.client, self.consumer, some, is_committed=True)
        return some

    def run(self) -> None:
        """Read and commit until it is over."""
        while not self.client.is_over():
            if positions := _positions(self.read()):
                self._commit(positions)
        self.consumer.close()

    def begin_commits(self, positions: Mapping[Place, int], **members: object) -> dict[Place, int]:
        """Note that offsets are committed; return the ids of the operations."""
        return {
            place: self.client.begin(
                "commit_offset",
                group=self.group,
                topic=place[0],
                partition=place[1],
                offset=offset,
                position=True,
                **members,
            )
            for place, offset in positions.items()
        }

    def _commit(self, positions: Mapping[Place, int]) -> None:
        begun = self.begin_commits(positions)
        try:
            found = self.consumer.commit(offsets=_offsets(positions), asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in PASSING:
                self.client.refused("a commit", error.args[0])
            return
        for one in found or []:
            if one.error is None:
                self.client.end(begun[one.topic, one.partition])


def _offsets(positions: Mapping[Place, int]) -> list[TopicPartition]:
    return [TopicPartition(*place, offset) for place, offset in positions.items()]


def _positions(messages: Sequence[Message]) -> dict[Place, int]:
    return {place_of(one): (one.offset() or 0) + 1 for one in messages}


class Copier(Member):
    """Reads, writes each record to another topic and commits, in a transaction.

    The copy of a record is "<source partition>-<offset>": it is there twice if it was processed
    twice, and lost if its transaction committed an offset alone.
    """

    def __init__(self, client: Client, group: str, output: str) -> None:
        super().__init__(client, group)
        self._output, self._number = output, 0
        self._producer = start(client)

    def run(self) -> None:
        """Copy until it is over; leave no transaction open."""
        while not self.client.is_over():
            if messages := self.read():
                self._copy(messages)
        self.consumer.close()

    def _copy(self, messages: Sequence[Message]) -> None:
        client, producer = self.client, self._producer
        transaction = client.begin("transaction", producer=client.name, number=self._number)
        self._number += 1
        positions = _positions(messages)
        try:
            producer.begin_transaction()
            appends = [self._write(producer, one, transaction) for one in messages]
            commits = self.begin_commits(positions, transaction=transaction)
            metadata, wanted = self.consumer.consumer_group_metadata(), _offsets(positions)
            until_done(
                lambda wait_s: producer.send_offsets_to_transaction(wanted, metadata, wait_s)
            )
            asked = client.begin("commit", transaction=transaction)
            until_done(producer.commit_transaction)
        except KafkaException as error:
            self._producer = give_up(client, producer, transaction, error.args[0])
            self._go_back()
            return
        for number in (*appends, *commits.values(), asked):
            client.end(number)

    def _write(self, producer: Producer, message: Message, transaction: int) -> int:
        source, number = f"{message.topic()}:{message.partition()}", message.partition() or 0
        name = f"{source}-{message.offset()}"
        begun = self.client.begin(
            "append",
            topic=self._output,
            partition=number,
            values=[name],
            transaction=transaction,
        )
        enqueue(producer, self._output, name, key_of(name), number)
        return begun

    def _go_back(self) -> None:
        """Seek to the committed offsets; nothing of the transaction is open any more."""
        while not self.client.is_over():
            try:
                partitions = self.consumer.committed(self.consumer.assignment(), _TIMEOUT_S)
                for one in partitions:
                    if one.offset < 0:
                        one.offset = OFFSET_BEGINNING
                    self.consumer.seek(one)
            except KafkaException:
                continue
            return


def run_member(client: Client, group: str, protocol: str) -> None:
    """Run a member of a group of the classic protocol, or of KIP-848's (consumer)."""
    own = {"session_timeout_ms": "10000"} if protocol == "classic" else {}
    patience_ms = str(PATIENCE_MS)
    Member(
        client, group, group_protocol=protocol, max_poll_interval_ms=patience_ms, **own
    ).run()
