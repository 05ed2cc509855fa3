"""DescribeLogDirs (35): the log directories, and how much of partitions they hold (KIP-113)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from broker.authorized_operations import Operation
from broker.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from protocol.pacing import paced
from storage.checkpoints import TopicPartition
from storage.directory import LogDirectory
from storage.errors import DiskFailure
from storage.moving import Copy

_Wanted = Callable[[TopicPartition], bool]

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def handle(
    context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Describe every log directory, with those of its logs that were asked for."""
    if not context.may_to_cluster(Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=_DENIED, results=[])
    is_wanted = _filter(request.topics)
    partitions = context.broker.partitions
    copies = list(context.broker.moves.copies())
    # Noted before anything is awaited: directories may come back meanwhile.
    offline = [_offline(path) for path in partitions.offline_directories]
    results = []
    for home in list(partitions.directories):
        result = _describe(home, copies, is_wanted)
        try:
            result.total_bytes, result.usable_bytes = await asyncio.to_thread(home.space)
        except DiskFailure:
            result = _offline(home.path)
        results.append(result)
    return DescribeLogDirsResponse(
        throttle_time_ms=0, error_code=0, results=[*results, *offline]
    )


def _filter(asked: list[DescribableLogDirTopic] | None) -> _Wanted:
    if asked is None:
        return lambda key: True
    keys = {(one.topic, number) for one in paced(asked) for number in paced(one.partitions)}
    return lambda key: key in keys


def _describe(
    home: LogDirectory, copies: list[Copy], is_wanted: _Wanted
) -> DescribeLogDirsResult:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for (topic, number), log in paced(list(home.logs.items())):
        if is_wanted((topic, number)):
            topics.setdefault(topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=number,
                    partition_size=log.size_bytes,
                    offset_lag=0,  # of the log's end behind the high watermark: on one node none
                    is_future_key=False,
                )
            )
    for copy in copies:
        log = copy.log
        is_under_way = log.directory.parent != home.path
        if copy.home is home and is_under_way and is_wanted((log.topic, log.partition)):
            topics.setdefault(log.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=log.partition,
                    partition_size=copy.size_bytes,
                    offset_lag=log.log_end_offset - copy.end_offset,
                    is_future_key=True,
                )
            )
    return _result(home.path, topics)


def _result(
    path: Path, topics: Mapping[str, list[DescribeLogDirsPartition]]
) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        error_code=0,
        log_dir=str(path.absolute()),
        topics=[
            DescribeLogDirsTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def _offline(path: Path) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path.absolute()), topics=[]
    )
