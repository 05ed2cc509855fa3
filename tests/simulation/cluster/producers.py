"""Producers of a simulated cluster: plain ones, idempotent ones, and those with transactions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.histories.history import (
    Append,
    OffsetCommit,
    Outcome,
    Place,
    Transaction,
    key_of,
)
from tests.simulation.cluster.clients import (
    GROUP,
    RETRIABLE,
    TRANSACTION,
    Client,
    Unanswered,
)
from tests.support.requests import producing

_PAUSE_S = 0.1
_PRODUCE_OLD, _PRODUCE = 11, 12
_END_OLD, _END = 3, 5
_OFFSETS_OLD, _OFFSETS = 3, 5
_NO_COMMIT_SHARE = 0.2


class Ended(Exception):
    """The broker has ended the producer's transaction, or fenced the producer."""


class PlainProducer:
    """Sends each batch once: without a producer id, a retry could repeat it."""

    def __init__(self, client: Client, places: Sequence[Place]) -> None:
        self.client, self._places = client, places
        self._number = 0
        self.producer_id = self.epoch = -1
        self._sequences: defaultdict[Place, int] = defaultdict(int)

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Produce until it is over."""
        while not is_over():
            await self.produce(self.client.source.choice(self._places))
            await asyncio.sleep(_PAUSE_S * self.client.source.random())

    async def produce(self, place: Place) -> None:
        """Send a batch."""
        append = self._begin(place, is_plain=True)
        try:
            code, offset = await self._send(append, self._encode(append))
        except Unanswered:
            return
        append.offset = offset
        self.client.history.end(append, Outcome.UNKNOWN if code else Outcome.DONE)
        if code:
            await self.client.back_off()

    def _begin(
        self, place: Place, *, is_plain: bool = False, transaction: Transaction | None = None
    ) -> Append:
        first = self._number
        self._number += self.client.source.choice([1, 1, 2, 4])
        values = tuple(f"{self.client.name}-{at}" for at in range(first, self._number))
        made: Append = self.client.history.add(Append(
            self.client.name, place, values, is_plain=is_plain, transaction=transaction
        ))  # fmt: skip
        return made

    def _encode(self, append: Append) -> bytes:
        records = [
            Record(at, 1_000, key_of(one), one.encode()) for at, one in enumerate(append.values)
        ]
        if append.is_plain:
            return encode_batch(records)
        sequence = self._sequences[append.place]
        self._sequences[append.place] += len(records)
        return encode_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=append.transaction is not None,
        )

    async def _send(
        self, append: Append, data: bytes, version: int = _PRODUCE, name: str | None = None
    ) -> tuple[int, int]:
        topic, number = append.place
        asked = producing(topic, data, partition=number, transactional_id=name)
        answer = await self.client.ask_leader(append.place, asked, version)
        (found,) = answer.responses[0].partition_responses
        return found.error_code, found.base_offset

    def _refused(self, what: str, code: int) -> None:
        name = ErrorCode.of(code).name
        self.client.history.troubles.append(f"refused: {self.client.name}: {what}: {name}")


class IdempotentProducer(PlainProducer):
    """Sends each batch until it is acknowledged."""

    async def produce(self, place: Place) -> None:
        """Send a batch until it is acknowledged."""
        if self.producer_id < 0:
            await self._init()
        append = self._begin(place)
        data = self._encode(append)
        while True:
            try:
                code, append.offset = await self._send(append, data)
            except Unanswered:
                code = ErrorCode.NETWORK_EXCEPTION
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self.client.history.end(append, Outcome.DONE)
                return
            if code not in RETRIABLE:
                self._refused(f"batch for {place}", code)
                self.producer_id = -1
                return
            await self.client.back_off()

    async def _init(self) -> None:
        asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        while True:
            try:
                answer = await self.client.ask(self.client.any_broker(), asked, 4)
            except Unanswered:
                continue
            if not answer.error_code:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
                return
            await self.client.back_off()


class TransactionalProducer(PlainProducer):
    """Writes to several partitions in a transaction, and commits offsets of a group in some."""

    def __init__(
        self,
        client: Client,
        places: Sequence[Place],
        *,
        is_old: bool,
        timeout_ms: int,
        group_place: Place,
    ) -> None:
        """An old one adds partitions itself, and keeps its epoch (before KIP-890)."""
        super().__init__(client, places)
        self._is_old, self._timeout_ms = is_old, timeout_ms
        self.group, self._group_place = f"group-of-{client.name}", group_place
        self._transactions = 0
        self._offset = 0

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Run transactions until it is over; leave none open."""
        await super().run(is_over)
        if self.producer_id < 0:
            await self._init()

    async def produce(self, place: Place) -> None:
        """Run a transaction."""
        if self.producer_id < 0:
            await self._init()
        client = self.client
        transaction = client.history.add(Transaction(client.name, self._transactions))
        self._transactions += 1
        count = client.source.randint(1, min(4, len(self._places)))
        places = client.source.sample(self._places, count)
        try:
            for one in places:
                await self._append(one, transaction)
            commit = None
            if client.source.random() < 0.5:
                commit = await self._commit_offset(transaction)
            is_commit = client.source.random() >= _NO_COMMIT_SHARE
            if is_commit:
                transaction.commit_at = client.history.tick()
            await self._end(is_commit)
            client.history.end(transaction, Outcome.DONE if is_commit else Outcome.UNDONE)
            if commit is not None:
                commit.done_at = client.history.tick()
        except Ended:
            if transaction.commit_at is None:
                client.history.end(transaction, Outcome.UNDONE)
            self.producer_id = -1
            await client.back_off()

    async def _append(self, place: Place, transaction: Transaction) -> None:
        if self._is_old:
            await self._add(place)
        append = self._begin(place, transaction=transaction)
        data = self._encode(append)
        version = _PRODUCE_OLD if self._is_old else _PRODUCE

        async def send() -> int:
            code, append.offset = await self._send(append, data, version, self.client.name)
            return code

        await self._until_done(send)
        self.client.history.end(append, Outcome.DONE)

    async def _add(self, place: Place) -> None:
        topic, number = place
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.client.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[number])],
        )

        async def send() -> int:
            answer = await self._ask(asked, 3)
            (result,) = answer.results_by_topic_v3_and_below
            return int(result.results_by_partition[0].partition_error_code)

        await self._until_done(send)

    async def _commit_offset(self, transaction: Transaction) -> OffsetCommit:
        if self._is_old:
            await self._add_offsets()
        self._offset += 1
        topic, number = self._group_place
        commit: OffsetCommit = self.client.history.add(
            OffsetCommit(self.group, self._group_place, self._offset, transaction)
        )
        part = TxnOffsetCommitRequestPartition(
            partition_index=number, committed_offset=self._offset, committed_metadata=""
        )
        asked = TxnOffsetCommitRequest(
            transactional_id=self.client.name,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
        )
        version = _OFFSETS_OLD if self._is_old else _OFFSETS

        async def send() -> int:
            answer = await self.client.ask_coordinator(GROUP, self.group, asked, version)
            return int(answer.topics[0].partitions[0].error_code)

        await self._until_done(send)
        commit.outcome = Outcome.DONE
        return commit

    async def _add_offsets(self) -> None:
        from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

        asked = AddOffsetsToTxnRequest(
            transactional_id=self.client.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=self.group,
        )

        async def send() -> int:
            return int((await self._ask(asked, 3)).error_code)

        await self._until_done(send)

    async def _end(self, is_commit: bool) -> None:
        asked = EndTxnRequest(
            transactional_id=self.client.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=is_commit,
        )
        granted: Any = None

        async def send() -> int:
            nonlocal granted
            granted = await self._ask(asked, _END_OLD if self._is_old else _END)
            return int(granted.error_code)

        await self._until_done(send)
        if not self._is_old:
            if (granted.producer_id, granted.producer_epoch) != (self.producer_id, self.epoch):
                self._sequences.clear()
            self.producer_id, self.epoch = granted.producer_id, granted.producer_epoch

    async def _init(self) -> None:
        asked = InitProducerIdRequest(
            transactional_id=self.client.name, transaction_timeout_ms=self._timeout_ms
        )
        granted: Any = None

        async def send() -> int:
            nonlocal granted
            granted = await self._ask(asked, 4)
            return int(granted.error_code)

        while True:
            try:
                await self._until_done(send)
                break
            except Ended as ended:
                self.client.history.troubles.append(f"refused: {self.client.name}: {ended}")
                await self.client.back_off()
        self.producer_id, self.epoch = granted.producer_id, granted.producer_epoch
        self._sequences.clear()

    async def _ask(self, request: Any, version: int) -> Any:
        return await self.client.ask_coordinator(
            TRANSACTION, self.client.name, request, version
        )

    async def _until_done(self, send: Callable[[], Any]) -> None:
        """Send until it is done. Raises Ended for an error after which a producer begins again."""
        while True:
            try:
                code = await send()
            except Unanswered:
                code = ErrorCode.NETWORK_EXCEPTION
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                return
            if code not in RETRIABLE:
                if code not in _ENDS:
                    self._refused("transaction", code)
                raise Ended(ErrorCode.of(code).name)
            await self.client.back_off()


# Errors that a producer gets whose transaction has timed out, or was ended by a later one.
_ENDS = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
