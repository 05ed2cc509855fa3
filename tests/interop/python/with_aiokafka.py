"""aiokafka in transactions."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.interop.python.lines import tell

BATCH = 20


async def transact(bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
    """Carry out each line's request, and answer it."""
    producer = _producer(bootstrap, transactional_id, timeout_ms)
    await producer.start()
    try:
        while line := await asyncio.to_thread(sys.stdin.readline):
            try:
                await _answer(producer, json.loads(line))
            except KafkaError as error:
                tell({"error": f"{type(error).__name__}: {error}"})
            else:
                tell({"answer": None})
    finally:
        await producer.stop()


async def copy(
    bootstrap: str, group: str, source: str, target: str, transactional_id: str
) -> None:
    """Copy a topic, records and offsets in one transaction, until the input ends."""
    producer = _producer(bootstrap, transactional_id, 10_000)
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        max_poll_records=BATCH,
    )
    await producer.start()
    await consumer.start()
    ended = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    try:
        while not ended.done():
            records = await consumer.getmany(timeout_ms=500)
            if records:
                await _copy_once(producer, group, records, target)
    finally:
        await consumer.stop()
        await producer.stop()


async def _copy_once(
    producer: Any, group: str, records: dict[TopicPartition, list[Any]], target: str
) -> None:
    async with producer.transaction():
        for partition, some in records.items():
            for one in some:
                await producer.send(target, one.value, one.key, partition.partition)
        next_offsets = {partition: some[-1].offset + 1 for partition, some in records.items()}
        await producer.send_offsets_to_transaction(next_offsets, group)
    tell({"copied": sum(len(some) for some in records.values())})


async def _answer(producer: Any, request: list[Any]) -> None:
    match request:
        case ["begin"]:
            await producer.begin_transaction()
        case ["send", topic, partition, key, value]:
            await producer.send_and_wait(topic, value.encode(), key.encode(), partition)
        case ["commit"]:
            await producer.commit_transaction()
        case ["abort"]:
            await producer.abort_transaction()


def _producer(bootstrap: str, transactional_id: str, timeout_ms: int) -> Any:
    return AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
    )


def main(arguments: list[str]) -> None:
    """Run a verb."""
    match arguments:
        case ["transact", bootstrap, transactional_id, timeout_ms]:
            asyncio.run(transact(bootstrap, transactional_id, int(timeout_ms)))
        case ["copy", bootstrap, group, source, target, transactional_id]:
            asyncio.run(copy(bootstrap, group, source, target, transactional_id))
        case _:
            raise SystemExit(f"not understood: {arguments}")


if __name__ == "__main__":
    main(sys.argv[1:])
