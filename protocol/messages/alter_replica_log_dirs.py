"""AlterReplicaLogDirs (34): move the logs of partitions to other log directories (KIP-113).

Version notes: 2 is flexible.
"""

from __future__ import annotations

from protocol.schema import field, message, struct
from protocol.wire import int16, int32, string


@struct
class AlterReplicaLogDirTopic:
    """Partitions of a topic that a directory shall hold."""

    name: string
    partitions: list[int32]


@struct
class AlterReplicaLogDir:
    """A log directory, by its absolute path, and what shall be in it."""

    path: string
    topics: list[AlterReplicaLogDirTopic]


@message(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    """Where partitions shall be."""

    dirs: list[AlterReplicaLogDir]


@struct
class AlterReplicaLogDirPartitionResult:
    """Whether one partition is there or on its way."""

    partition_index: int32
    error_code: int16


@struct
class AlterReplicaLogDirTopicResult:
    """What became of the partitions of one topic."""

    topic_name: string
    partitions: list[AlterReplicaLogDirPartitionResult]


@message(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """What became of each partition; the moves themselves go on in the background."""

    throttle_time_ms: int32 = field()
    results: list[AlterReplicaLogDirTopicResult]
