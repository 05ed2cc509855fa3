"""The action that writes a record.

    POST /api/records/produce
        {"topic", "partition", "key" or "key_base64", "value" or "value_base64", "headers": {}}

Without a value the record is a tombstone. Without a partition, it goes where Kafka's Java clients
would send its key.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Sequence

from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.topics.topic import Topic
from odradek.broker.web.console.actor import Actor
from odradek.broker.web.console.asking import Asker, ConsoleServices, require
from odradek.broker.web.console.body import Body
from odradek.broker.web.console.plan import Action, Plan
from odradek.broker.web.requests import Problem, require_partition
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.partitioning import partition_of_key

_TIMEOUT_MS = 30_000
_ALL = -1
# A record has as many bytes as a request over HTTP may have, as base64 if need be.
_BODY_BYTES_MAX = 1 << 20
_HEADERS_MAX = 1_000
_MEMBERS = (
    "topic", "partition", "key", "key_base64", "value", "value_base64", "headers",
)  # fmt: skip


def make(broker: ConsoleServices, asker: Asker) -> Sequence[Action]:
    """Return the actions on records."""
    return (Action("produce", _MEMBERS, RecordActions(broker, asker).produce, _BODY_BYTES_MAX),)


class RecordActions:
    """Plans actions on records."""

    def __init__(self, broker: ConsoleServices, asker: Asker) -> None:
        self._broker, self._asker = broker, asker

    async def produce(self, actor: Actor, body: Body) -> Plan:
        """Write a record."""
        name = body.text("topic")
        topic = self._asker.topic(name)
        if topic.is_internal:
            raise Problem(409, f"{name} is an internal topic: only the broker writes to it")
        key, value = _data(body, "key"), _data(body, "value")
        if key is None and topic.config.compact:
            raise Problem(400, f"{name} is compacted: its records need a key")
        number = _partition(topic, body, key)
        self._asker.require_right(actor, AclOperation.WRITE, ResourceKind.TOPIC, name)
        named = body.named_texts("headers")
        if len(named) > _HEADERS_MAX:
            raise Problem(400, f"there are {len(named):,} headers: give {_HEADERS_MAX:,} at most")
        headers = tuple((one, text.encode()) for one, text in named.items())
        record = Record(0, self._broker.clock.now_ms(), key, value, headers)

        async def carry_out() -> Sequence[str]:
            offset = await self._write(actor, topic, number, encode_batch([record]))
            return [f"The record is in partition {number} of {name}, at offset {offset:,}."]

        kind = "a tombstone" if value is None else f"a record of {len(value):,} bytes"
        will = [f"Write {kind} to partition {number} of {name}."]
        if value is None and key is not None:
            will.append("Compaction removes the key's former records, and later the tombstone.")
        return Plan(will, carry_out)

    async def _write(self, actor: Actor, topic: Topic, number: int, batch: bytes) -> int:
        request = ProduceRequest(
            acks=_ALL,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(
                    topic_id=topic.topic_id,
                    partition_data=[PartitionProduceData(index=number, records=memoryview(batch))],
                )
            ],
        )
        (leader,) = self._asker.leaders(topic, [number])
        answer = await self._asker.ask(actor, request, ProduceResponse, leader)
        result = answer.responses[0].partition_responses[0]
        require(result.error_code, result.error_message, f"{topic.name}-{number}")
        return result.base_offset


def _data(body: Body, name: str) -> bytes | None:
    text, encoded = body.optional_text(name), body.optional_text(f"{name}_base64")
    if encoded is None:
        return None if text is None else text.encode()
    if text is not None:
        raise Problem(400, f"give {name} or {name}_base64, not both")
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise Problem(400, f"{name}_base64 is not base64: {error}") from error


def _partition(topic: Topic, body: Body, key: bytes | None) -> int:
    count = len(topic.partitions)
    number = body.number("partition")
    if number is None:
        return secrets.randbelow(count) if key is None else partition_of_key(key, count)
    require_partition(topic, number)
    return number
