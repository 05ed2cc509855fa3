"""A data directory with all that a broker writes, what clients see of it, and its damage."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import OdradekProcess
from odradek.protocol.batches import iterate_batches
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.broker.live import Client
from tests.support.forking import ForkedOdradek
from tests.support.waiting import until, wait_until

SETTINGS = {
    "internal.segment.bytes": "3000",
    "log.index.interval.bytes": "200",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "1500",
    "log.segment.delete.delay.ms": "0",
}
# What runs in the background must not change what is compared.
QUIET = {**SETTINGS, "log.cleaner.threads": "0"}
EAGER = {**SETTINGS, "log.cleaner.backoff.ms": "50", "log.cleaner.min.cleanable.ratio": "0.01"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = {
    "orders": (2, {"retention.ms": "-1"}),
    "table": (1, {"cleanup.policy": "compact"}),
    "trimmed": (1, {"max.message.bytes": "5000"}),
}
GROUPS = ("one-group", "another-group", "a-third-group")
TRIMMED = 7
FIRST_COMMIT, LAST_COMMIT = 3, 11
_WAIT_S = 60

Commits = dict[tuple[str, str, int], int]
Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as a fetch returns it."""

    base_offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Seen:
    """What clients see of a broker."""

    cluster_id: str
    topics: Mapping[str, tuple[bytes, int, Mapping[str, str]]]
    ends: Mapping[Partition, tuple[int, int]]
    batches: Mapping[Partition, tuple[Batch, ...]]
    commits: Commits


def build(path: Path) -> tuple[Path, Path]:
    """Run a broker; return what it leaves after a clean stop, and what when it is killed later."""
    broker = ForkedOdradek(path, EAGER)
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = [NewTopic(name, count, 1, config=c) for name, (count, c) in TOPICS.items()]
    for made in admin.create_topics(wanted).values():
        made.result()
    _write(broker)
    (trimmed,) = admin.delete_records([TopicPartition("trimmed", 0, TRIMMED)]).values()
    trimmed.result()
    _wait_until_cleaned(broker)
    broker.stop()
    stopped = path / "stopped"
    shutil.copytree(broker.data, stopped)
    broker.start()
    _write(broker)
    broker.kill()
    return stopped, broker.data


def _write(broker: OdradekProcess) -> None:
    source = random.Random(3)
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "compression.type": codec,
                "enable.idempotence": True,
            }
        )
        for number in range(12):
            for topic, partition in (("orders", 0), ("orders", 1), ("table", 0), ("trimmed", 0)):
                value = f"{codec}{number}" * source.randrange(1, 20)
                producer.produce(topic, value, f"key{number % 3}", partition)
            producer.flush(_WAIT_S)
    for group in GROUPS:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        for offset in range(FIRST_COMMIT, LAST_COMMIT + 1):
            places = [TopicPartition("orders", number, offset) for number in range(2)]
            consumer.commit(offsets=places, asynchronous=False)
        consumer.close()


def _wait_until_cleaned(broker: OdradekProcess) -> None:
    checkpoint = broker.data / "cleaner-offset-checkpoint"
    wait_until(
        lambda: checkpoint.exists() and "table 0" in checkpoint.read_text(), "the table is cleaned"
    )


async def see(broker: Any, client: Client) -> Seen:
    """Look at all that a broker serves: whole logs, from their start to their end."""
    topics = {
        topic.name: (topic.topic_id, len(topic.partitions), dict(topic.overrides))
        for topic in broker.topics
    }
    ends, batches = {}, {}
    for topic in broker.topics:
        for log in topic.partitions:
            key = topic.name, log.partition
            ends[key] = log.log_start_offset, log.log_end_offset
            batches[key] = await _read(client, topic.topic_id, log)
    return Seen(broker.cluster_id, topics, ends, batches, await commits(client))


async def _read(client: Client, topic_id: bytes, log: Any) -> tuple[Batch, ...]:
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        (answer,) = await fetch(client, topic_id, log.partition, [offset], size_max=1 << 20)
        assert isinstance(answer, bytes), answer
        if not answer:  # compacted up to the end
            break
        for position, header in iterate_batches(memoryview(answer)):
            data = answer[position : position + header.size_bytes]
            found.append(Batch(header.base_offset, data))
            offset = header.last_offset + 1
    return tuple(found)


async def fetch(
    client: Client, topic_id: bytes, partition: int, offsets: list[int], *, size_max: int = 1
) -> list[bytes | int]:
    """Fetch at several offsets; each is answered with bytes, or an error code."""
    for offset in offsets:
        wanted = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=size_max
        )
        topics = [FetchTopic(topic_id=topic_id, partitions=[wanted])]
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=topics, forgotten_topics_data=[]
        )
        client.send(request, version=13)
    answers: list[bytes | int] = []
    for _ in offsets:
        _, response = await client.receive()
        ((part,),) = [topic.partitions for topic in response.responses]
        answers.append(part.error_code or bytes(part.records or b""))
    return answers


async def commits(client: Client) -> Commits:
    """Return what the groups have committed, once they are loaded."""
    wanted = OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 1])
    groups = [OffsetFetchRequestGroup(group_id=group, topics=[wanted]) for group in GROUPS]
    request = OffsetFetchRequest(groups=groups, require_stable=False)

    async def loaded() -> Any:
        response = await client.ask(request, version=8)
        return None if any(group.error_code for group in response.groups) else response

    response = await until(loaded, "the groups are loaded")
    return {
        (group.group_id, topic.name, part.partition_index): part.committed_offset
        for group in response.groups
        for topic in group.topics
        for part in topic.partitions
    }


# --- damage -----------------------------------------------------------------------------------


def kind_of(path: Path) -> str:
    """Return what kind of file one is: its suffix, or its name."""
    return path.suffix if path.name[:1].isdigit() else path.name


def files_of(data: Path) -> Iterator[Path]:
    """Iterate over the files of a data directory that a start reads, by relative paths."""
    for path in sorted(data.rglob("*")):
        if path.is_file() and path.stat().st_size and path.suffix != ".deleted":
            yield path.relative_to(data)


def damage(path: Path, source: random.Random) -> set[int]:
    """Damage a file at a random place, mostly by one bit; return the positions that differ."""
    whole = path.read_bytes()
    data = bytearray(whole)
    at = source.randrange(len(data))
    way = source.choice(["bit", "bit", "bit", "bits", "zeros", "cut"])
    if way in ("bit", "bits"):
        for _ in range(1 if way == "bit" else 3):
            data[at] ^= 1 << source.randrange(8)
            at = source.randrange(len(data))
    elif way == "zeros":
        at = at // 512 * 512
        data[at : at + 512] = bytes(len(data[at : at + 512]))
    else:
        del data[at:]
    path.write_bytes(data)
    differing = {n for n, (a, b) in enumerate(zip(data, whole, strict=False)) if a != b}
    return differing | set(range(len(data), len(whole)))
