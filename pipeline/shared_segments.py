"""Finds the segments of shared topics by the catalog, without a broker.

Records that only the WAL has are segments of their own, at the end of a partition. So the segments
have all records up to the high watermark, and none behind it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from odradek.broker.shared.snapshot import (
    LogPart,
    LogSnapshot,
    SharedLogs,
    Snapshot,
    SnapshotError,
    read_snapshot,
    read_topic_config,
    shared_logs,
)
from odradek.config.errors import ConfigError
from odradek.config.topic import TopicConfig
from odradek.dataclass import dataclass
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segment_files import Segment, SharedPart, require_partitions
from odradek.pipeline.segment_selection import CONFIG, SegmentOptions, Selection, Span


@dataclass(frozen=True, slots=True)
class SharedLog:
    """A shared partition up to its high watermark: its snapshot, and its segments in order."""

    place: SharedLogs
    snapshot: LogSnapshot
    segments: list[Segment]


def find_shared_segments(options: SegmentOptions, selection: Selection) -> list[Segment]:
    """Find the segments of the shared partitions that a selection includes, in order.

    Raises PipelineError as `find_shared_logs` does.
    """
    logs = find_shared_logs(options, selection)
    return [segment for log in logs for segment in log.segments]


def find_shared_logs(options: SegmentOptions, selection: Selection) -> list[SharedLog]:
    """Find the shared partitions that a selection includes, by topic and number.

    Raises PipelineError for a catalog that cannot be read, and for a topic or partition of the
    options that is not there, or not shared.
    """
    logs, _ = place_of(options)
    snapshot = _snapshot(logs, selection)
    for topic in sorted(snapshot.local_topics & (options.selection.topics or set())):
        raise PipelineError(
            f"topic {topic} is not shared: its segments are files of its brokers; read them with "
            "option path"
        )
    require_partitions(snapshot.partitions, options.selection, "the catalog")
    return [SharedLog(logs, log, list(_segments(logs, log))) for log in snapshot.logs]


def shared_topic_config(options: SegmentOptions, topic: str) -> TopicConfig:
    """Return the config of a topic that exists. Raises PipelineError."""
    logs, file = place_of(options)
    try:
        return read_topic_config(logs, topic, os.environ, file)
    except (ConfigError, SnapshotError) as error:
        raise PipelineError(str(error)) from error


def place_of(options: SegmentOptions) -> tuple[SharedLogs, Path | None]:
    """Return the shared logs, and the file that the options name. Raises PipelineError."""
    settings = dict(options.shared)
    name = settings.pop(CONFIG, None)
    file = Path(name) if name else None
    try:
        return shared_logs(os.environ, settings, file), file
    except ConfigError as error:
        raise PipelineError(str(error)) from error


def later_shared_segments(segment: Segment) -> Iterator[Segment]:
    """Yield the segments that have records behind one in the same partition now.

    The cleaner may have merged segments since, so they may have records of this one, too. It
    removes a marker delete.retention.ms after the records of its transaction.
    """
    assert segment.shared is not None
    here = Selection(frozenset([segment.topic]), frozenset([segment.partition]))
    for log in _snapshot(segment.shared.logs, here).logs:
        for one in _segments(segment.shared.logs, log):
            if segment.read.end < one.read.end and one.base_offset < segment.high_watermark:
                yield one


def _snapshot(logs: SharedLogs, selection: Selection) -> Snapshot:
    try:
        return read_snapshot(logs, selection.includes_partition)
    except SnapshotError as error:
        raise PipelineError(str(error)) from error


def _segments(logs: SharedLogs, log: LogSnapshot) -> Iterator[Segment]:
    for part in log.parts:
        yield Segment(
            path=_path(logs, log, part),
            topic=log.topic,
            partition=log.number,
            base_offset=part.base_offset,
            next_base_offset=part.next_offset,
            size_bytes=part.size_bytes,
            read=Span(part.first_offset, part.next_offset),
            high_watermark=log.high_watermark,
            shared=SharedPart(logs, part),
        )


def _path(logs: SharedLogs, log: LogSnapshot, part: LogPart) -> str:
    first = part.pieces[0]
    if len(part.pieces) == 1 and first.key:
        return f"{logs.store_url}/{first.key}@{first.position}"
    return f"{logs.store_url}/wal/{log.topic}-{log.number}@{part.base_offset}"
