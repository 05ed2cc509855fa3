"""Finds segments, wherever they are: files of Kafka's layout, or objects of shared topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek.pipeline import segment_files
from odradek.pipeline.segment_files import Segment
from odradek.pipeline.segment_selection import SegmentOptions, Selection

# Segments of shared topics are read together by a task, up to about so many bytes, as Spark's own
# sources of files do. For each task a Python worker of Spark reads the directories of its archives
# again, which may take longer than 64 MiB of records.
_TASK_BYTES = 128 << 20


def find_segments(options: SegmentOptions, selection: Selection) -> list[Segment]:
    """Find the segments of the partitions that a selection includes, in order.

    Raises PipelineError where nothing can be read.
    """
    if options.paths:
        return segment_files.find_segments(options, selection)
    from odradek.pipeline.shared_segments import find_shared_segments

    return find_shared_segments(options, selection)


def later_segments(segment: Segment) -> Iterator[Segment]:
    """Yield the segments with records behind one in the same partition now."""
    if segment.shared is None:
        return segment_files.later_segments(segment)
    from odradek.pipeline.shared_segments import later_shared_segments

    return later_shared_segments(segment)


def tasks_of(segments: Iterable[Segment]) -> list[tuple[Segment, ...]]:
    """Divide segments into tasks: a file each, and small ones that are in the same objects."""
    tasks: list[tuple[Segment, ...]] = []
    shared: list[Segment] = []
    for one in segments:
        if one.shared is None:
            tasks.append((one,))
        else:
            shared.append(one)
    together: list[Segment] = []
    size_bytes = 0
    for one in sorted(shared, key=_place):
        if together and size_bytes + one.size_bytes > _TASK_BYTES:
            tasks.append(_in_order(together))
            together, size_bytes = [], 0
        together.append(one)
        size_bytes += one.size_bytes
    if together:
        tasks.append(_in_order(together))
    return tasks


def _in_order(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Sort segments so that a task reads a partition by offsets."""
    return tuple(
        sorted(segments, key=lambda one: (one.topic, one.partition, one.base_offset))
    )


def _place(segment: Segment) -> tuple[str, int, int]:
    assert segment.shared is not None
    part = segment.shared.part
    return part.group, part.pieces[0].position, segment.base_offset
