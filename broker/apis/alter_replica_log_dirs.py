"""AlterReplicaLogDirs (34): move the logs of partitions to other log directories (KIP-113).

The answer says that a move has begun, or that none is needed; DescribeLogDirs reports its
progress. A request for the directory that a log is in stops its move.

Versions 1 to 2. v2: flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.broker.context import RequestContext
from odradek.broker.errors import EXPLAINED, Refusal, code_of
from odradek.broker.orders.scala import grouped_order
from odradek.broker.security.authorization import AclOperation
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from odradek.protocol.pacing import paced
from odradek.storage.cache_directory import CacheDirectory
from odradek.storage.errors import DirectoryOffline
from odradek.storage.partition_directories import has_name_for_future


async def handle(
    services: Services, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Begin the moves, partition by partition; for a partition named twice the last one counts."""
    if not context.may_to_cluster(AclOperation.ALTER):
        return _denied(request)
    wanted = {
        (topic.name, number): directory.path
        for directory in paced(request.dirs)
        for topic in paced(directory.topics)
        for number in paced(topic.partitions)
    }
    codes: dict[tuple[str, int], int] = {}
    for one, path in paced(wanted.items()):
        codes[one] = ErrorCode.NONE
        try:
            await _move(services, *one, path)
        except EXPLAINED as error:
            codes[one] = code_of(error)
    return AlterReplicaLogDirsResponse(
        throttle_time_ms=0,
        results=[
            _result(topic, [(number, codes[topic, number]) for number in numbers])
            for topic, numbers in paced(grouped_order(codes))
        ],
    )


def _denied(request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return AlterReplicaLogDirsResponse(
        throttle_time_ms=0,
        results=[
            _result(topic.name, [(number, denied) for number in topic.partitions])
            for directory in paced(request.dirs)
            for topic in paced(directory.topics)
        ],
    )


def _result(topic: str, codes: Sequence[tuple[int, int]]) -> AlterReplicaLogDirTopicResult:
    return AlterReplicaLogDirTopicResult(
        topic_name=topic,
        partitions=[
            AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code)
            for number, code in paced(codes)
        ],
    )


async def _move(services: Services, name: str, number: int, path: str) -> None:
    """Begin one move (ReplicaManager.alterReplicaLogDirs)."""
    if not has_name_for_future(name, number):
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
    partitions = services.partitions
    found = (one for one in partitions.directories if str(one.path.absolute()) == path)
    home = next(found, None)
    if home is None:
        if any(str(one.absolute()) == path for one in partitions.offline_directories):
            raise DirectoryOffline(f"Log directory {path} is offline")
        raise Refusal(ErrorCode.LOG_DIR_NOT_FOUND)
    topic = services.topics.get(name)
    log = topic.log(number) if topic else None
    if log is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if isinstance(home, CacheDirectory) or log.is_shared:
        raise Refusal(ErrorCode.LOG_DIR_NOT_FOUND, "A shared partition is in no log directory.")
    if partitions.offline_directories and log.directory.parent != home.path:
        # The offline directory may already hold a copy.
        raise DirectoryOffline("a log directory is offline: nothing can be moved until it is back")
    await services.moves.begin(log, home)
