"""A broker in the test's own loop whose cleaner has something to do, and what becomes of it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from odradek.broker.clock import Clock
from odradek.broker.composition import Broker
from odradek.broker.metadata.store import ResourceType
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.errors import ErrorCode
from odradek.storage.files import FileSystem
from odradek.storage.log import Log
from tests.broker.live import Client, client, create, live, until
from tests.support.requests import altering

# Threads look every 10 ms; whatever is dirty is cleaned, and three or four batches fill a segment.
QUICK = {
    "log.cleaner.backoff.ms": "10",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "10",
    "internal.segment.bytes": "300",
}
COMPACT = {"cleanup.policy": "compact"}


class MovedClock:
    """The machine's clock, which a test may move on."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


@asynccontextmanager
async def cleaning(
    path: Path,
    settings: Mapping[str, str] | None = None,
    *,
    clock: Clock | None = None,
    fs: FileSystem | None = None,
) -> AsyncIterator[tuple[Broker, Client]]:
    """Run a broker with a quick cleaner, and a client of it."""
    values = QUICK | dict(settings or {})
    async with live(path, values, clock=clock, fs=fs) as broker, client(broker) as one:
        yield broker, one


async def new_log(broker: Broker, name: str, configs: Mapping[str, str] = COMPACT) -> Log:
    """Create a topic of one partition; return its log."""
    topic = await create(broker, name, configs=configs)
    log = topic.log(0)
    assert log is not None
    return log


async def alter(one: Client, kind: int, name: str, settings: Mapping[str, str]) -> int:
    """Change settings as a client does; return the error code."""
    (answer,) = (await one.ask(altering(name, settings, kind), version=1)).responses
    return int(answer.error_code)


async def alter_topic(one: Client, name: str, settings: Mapping[str, str]) -> None:
    """Change a topic's settings."""
    assert await alter(one, ResourceType.TOPIC, name, settings) == ErrorCode.NONE


async def alter_broker(one: Client, settings: Mapping[str, str]) -> None:
    """Change settings of all brokers."""
    assert await alter(one, ResourceType.BROKER, "", settings) == ErrorCode.NONE


def put(log: Log, text: str, *, timestamp: int | None = None) -> None:
    """Append "a:1 b:-" as records, each a batch of its own; - is a tombstone."""
    now_ms = time.time_ns() // 1_000_000
    for word in text.split():
        key, value = word.split(":")
        record = Record(
            0,
            now_ms if timestamp is None else timestamp,
            key.encode(),
            None if value == "-" else value.encode(),
        )
        log.append(bytearray(encode_batch([record])), now_ms=now_ms)


def numbered(start: int, end: int, keys: int = 2) -> str:
    """Return records of a few keys whose values count up, for put()."""
    return " ".join(f"k{at % keys}:{at}" for at in range(start, end))


def records(log: Log, *, sealed: bool = False) -> list[Record]:
    """Read all records from the log's start; only those of sealed segments if wanted."""
    found: list[Record] = []
    for segment in log.segments[:-1] if sealed else log.segments:
        for _, header, data in segment.batches():
            if not header.is_control:
                found += decode_records(data)
    return [record for record in found if record.offset >= log.log_start_offset]


def latest(log: Log) -> dict[bytes, bytes | None]:
    """Return what a reader from the start ends up with."""
    return {record.key or b"": record.value for record in records(log)}


def is_compacted(log: Log) -> bool:
    """Return whether no key occurs twice in the sealed segments."""
    keys = [record.key for record in records(log, sealed=True)]
    return len(keys) == len(set(keys))


async def settled(broker: Broker) -> None:
    """Let the cleaner look at all logs until there is nothing left to clean, then retention."""
    scheduler = broker.cleaner.scheduler
    start_ms = broker.clock.now_ms()
    await until(
        lambda: scheduler.last_choice.at_ms > start_ms
        and not scheduler.last_choice.cleanable_count
    )
    await broker.cleaner.deleter.check_all()


async def looked(broker: Broker) -> None:
    """Let a thread that may rest for long look at all logs once."""
    start_ms = broker.clock.now_ms()
    await until(lambda: broker.clock.now_ms() > start_ms)
    broker.cleaner.wake()
    await until(lambda: broker.cleaner.scheduler.last_choice.at_ms > start_ms)
