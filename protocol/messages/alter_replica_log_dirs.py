"""AlterReplicaLogDirs (34): move the logs of partitions to other log directories (KIP-113).

Version notes: 2 is flexible.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, string


@struct
class AlterReplicaLogDirTopic:
    """Partitions of a topic that a directory will hold."""

    name: string
    partitions: list[int32]


@struct
class AlterReplicaLogDir:
    """A log directory, by its absolute path, and the partitions to move there."""

    path: string
    topics: list[AlterReplicaLogDirTopic]


@message(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    """The new places of partitions."""

    dirs: list[AlterReplicaLogDir]


@struct
class AlterReplicaLogDirPartitionResult:
    """Whether one partition is in the directory or on its way there."""

    partition_index: int32
    error_code: int16


@struct
class AlterReplicaLogDirTopicResult:
    """The result for the partitions of one topic."""

    topic_name: string
    partitions: list[AlterReplicaLogDirPartitionResult]


@message(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """The result for each partition; the moves themselves continue in the background."""

    throttle_time_ms: int32 = field()
    results: list[AlterReplicaLogDirTopicResult]
