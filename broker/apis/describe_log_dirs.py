"""DescribeLogDirs (35): the log directories, and the sizes of the logs in them (KIP-113).

A growing copy of another host's partition is listed as Kafka lists a growing replica: it is not
behind its own high watermark (ReplicaManager.getLogEndOffsetLag).

Versions 1 to 5. v2: flexible. v3: an error for all. v4: the size of the volume (KIP-827). v5:
whether a directory takes new partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from odradek.broker.context import RequestContext
from odradek.broker.orders.hash_map import concurrent_places
from odradek.broker.orders.java import partition_hash, place_order, string_hash
from odradek.broker.orders.scala import trie_order
from odradek.broker.security.authorization import AclOperation
from odradek.broker.services import Services
from odradek.broker.topics.registry import Topics
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from odradek.protocol.pacing import paced
from odradek.storage.checkpoints import TopicPartition
from odradek.storage.directory import LogDirectory
from odradek.storage.errors import DiskFailure
from odradek.storage.moving import Copy

if TYPE_CHECKING:
    from odradek.storage.copied_log import CopiedLog
    from odradek.storage.log import Log

T = TypeVar("T")

_Wanted = Callable[[TopicPartition], bool]

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def handle(
    services: Services, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Describe every log directory, with the requested logs in it."""
    if not context.may_to_cluster(AclOperation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=_DENIED, results=[])
    is_wanted = _filter(services.topics, request.topics)
    partitions = services.partitions
    copies = list(services.moves.copies())
    replicas = [] if services.copies is None else list(services.copies.copied())
    # Listed before the first await: directories may come back meanwhile.
    offline = [_offline(path) for path in partitions.offline_directories]
    results = []
    for home in list(partitions.directories):
        growing = {(topic.name, at): copy for topic, at, copy in replicas if copy.home is home}
        result = _describe(services, home, {**growing, **home.logs}, copies, is_wanted)
        try:
            result.total_bytes, result.usable_bytes = await asyncio.to_thread(home.space)
        except DiskFailure:
            result = _offline(home.path)
        results.append(result)
    return DescribeLogDirsResponse(
        throttle_time_ms=0, error_code=0, results=[*results, *offline]
    )


def _filter(topics: Topics, asked: list[DescribableLogDirTopic] | None) -> _Wanted:
    if asked is None:
        return lambda key: True
    keys: set[TopicPartition] = set()
    for one in paced(asked):
        topic = topics.get(one.topic)
        count = 0 if topic is None else len(topic.partitions)
        keys.update((one.topic, number) for number in paced(one.partitions) if 0 <= number < count)
    return lambda key: key in keys


def _describe(
    services: Services,
    home: LogDirectory,
    present: Mapping[TopicPartition, Log | CopiedLog],
    copies: list[Copy],
    is_wanted: _Wanted,
) -> DescribeLogDirsResult:
    logs = [(key, log) for key, log in paced(list(present.items())) if is_wanted(key)]
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    log_count = sum(len(one.logs) for one in services.partitions.directories)
    for (topic, number), log in paced(_in_order(logs, log_count)):
        topics.setdefault(topic, []).append(
            DescribeLogDirsPartition(
                partition_index=number,
                partition_size=log.size_bytes,
                offset_lag=0,  # from the high watermark to the log's end: none on one node
                is_future_key=False,
            )
        )
    under_way = [
        ((copy.log.topic, copy.log.partition), copy)
        for copy in copies
        if copy.home is home and copy.log.directory.parent != home.path
    ]
    for (topic, number), copy in _in_order(under_way, len(copies)):
        if is_wanted((topic, number)):
            topics.setdefault(topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=number,
                    partition_size=copy.size_bytes,
                    offset_lag=copy.log.log_end_offset - copy.end_offset,
                    is_future_key=True,
                )
            )
    return DescribeLogDirsResult(
        error_code=0,
        log_dir=str(home.path.absolute()),
        topics=[
            DescribeLogDirsTopic(name=name, partitions=topics[name])
            for name in _topics_in_order(services, present, topics)
        ],
    )


def _in_order(
    logs: Iterable[tuple[TopicPartition, T]], count: int
) -> list[tuple[TopicPartition, T]]:
    """Return some of `count` logs in the order of the ConcurrentHashMap that has them in Kafka."""
    logs = list(logs)
    names = {topic for (topic, _), _ in paced(logs)}
    hashes = {topic: string_hash(topic) for topic in paced(names)}
    return place_order(
        logs,
        lambda one: partition_hash(hashes[one[0][0]], one[0][1]),
        concurrent_places(count),
        paced,
    )


def _topics_in_order(
    services: Services, logs: Iterable[TopicPartition], topics: Collection[str]
) -> list[str]:
    """Return topics in the order of the trie of all topics that have logs in a directory."""
    if len(topics) < 2:
        return list(topics)
    every = services.topics.order.grouped()
    present = {topic for topic, _ in paced(list(logs))}
    if present != set(every):
        every = trie_order(present, string_hash)
    of_home = [name for name in paced(every) if name in topics]
    return of_home + [name for name in paced(topics) if name not in present]


def _offline(path: Path) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path.absolute()), topics=[]
    )
