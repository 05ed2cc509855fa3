"""A transactional producer of one connection, request by request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from odradek.broker.composition import Broker
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.produce import (
    ProduceRequest,
)
from odradek.storage.log import Log
from tests.broker.live import Client, until
from tests.support.requests import producing

PRODUCE, OLD_PRODUCE, VERIFIED_PRODUCE = 12, 10, 11
END, OLD_END = 5, 3


@dataclass
class Transactor:
    """A producer: its id, epoch and sequences, as the broker's answers have them."""

    client: Client
    name: str = "payments"
    timeout_ms: int = 60_000
    producer_id: int = -1
    epoch: int = -1
    sequences: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))

    async def init(self, *, version: int = 5) -> ErrorCode:
        """Begin again."""
        answer = await self.client.ask(
            InitProducerIdRequest(
                transactional_id=self.name, transaction_timeout_ms=self.timeout_ms
            ),
            version=version,
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()
        return ErrorCode(answer.error_code)  # type: ignore[call-arg]

    async def add(self, topic: str, *partitions: int) -> list[int]:
        """Add partitions as a client does."""
        answer = await self.client.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
                ],
            ),
            version=3,
        )
        return [
            one.partition_error_code
            for result in answer.results_by_topic_v3_and_below
            for one in result.results_by_partition
        ]

    def request(
        self, topic: str, values: Mapping[int, Sequence[bytes]], *, acks: int = -1
    ) -> ProduceRequest:
        """Make the next batches of some partitions, as one request."""
        batches = {}
        for partition, texts in values.items():
            batches[partition] = encode_batch(
                [Record(at, 1_000, b"k", text) for at, text in enumerate(texts)],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=self.sequences[partition],
                transactional=True,
            )
            self.sequences[partition] += len(texts)
        return producing(topic, batches, acks=acks, transactional_id=self.name)

    async def produce(
        self, topic: str, partition: int, *values: bytes, version: int = PRODUCE
    ) -> int:
        """Write to a partition; return the error code."""
        answer = await self.client.ask(
            self.request(topic, {partition: values}), version=version
        )
        code: int = answer.responses[0].partition_responses[0].error_code
        return code

    async def end(self, *, commit: bool, version: int = END) -> int:
        """End the transaction; return the error code."""
        answer = await self.client.ask(
            EndTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
            version=version,
        )
        if version >= END and not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        code: int = answer.error_code
        return code


async def settled(broker: Broker, name: str = "payments") -> Any:
    """Wait until a transaction that is about to end has ended; return its description."""
    await until(
        lambda: not broker.transactions.describe(name).transaction_state.startswith("Prepare")
    )
    return broker.transactions.describe(name)


def kinds(log: Log) -> list[str]:
    """Return what a log holds, in order: "data" for batches, and the markers' kinds."""
    from odradek.protocol.batch_records import decode_records
    from odradek.protocol.control import decode_control

    return [
        decode_control(decode_records(data)[0]).type.name.lower() if header.is_control else "data"
        for header, data in log.batches(0)
    ]
