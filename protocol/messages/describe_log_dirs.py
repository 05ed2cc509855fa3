"""DescribeLogDirs (35): the log directories, and how much of partitions they hold (KIP-113).

Version notes: 2 is flexible; 3 has an error code for all; 4 adds the size of the volume
(KIP-827); 5 marks the directories that take no new partitions.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int16, int32, int64, string


@struct
class DescribableLogDirTopic:
    """Partitions of a topic to look for."""

    topic: string
    partitions: list[int32]


@message(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    """Partitions to look for, or null for all partitions."""

    topics: list[DescribableLogDirTopic] | None


@struct
class DescribeLogDirsPartition:
    """One log: the partition's own, or a future one (is_future_key) that will replace it."""

    partition_index: int32
    partition_size: int64
    offset_lag: int64
    is_future_key: boolean


@struct
class DescribeLogDirsTopic:
    """The logs of a topic in one directory."""

    name: string
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsResult:
    """One log directory."""

    error_code: int16 = field()
    log_dir: string
    topics: list[DescribeLogDirsTopic]
    total_bytes: int64 = field("4+", default=-1)
    usable_bytes: int64 = field("4+", default=-1)
    is_cordoned: boolean = field("5+", default=False)


@message(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    """All log directories, with or without the logs that the request looks for."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field("3+")
    results: list[DescribeLogDirsResult]
