"""Finds the segment files of Kafka's layout, and leaves out files without selected records.

    data/                            a folder of log.dirs
      orders-0/                      a partition: topic, dash, number
        00000000000000000000.log     a segment; the name is its base offset
        00000000000000000042.log
      orders-1.b9d6…-delete/         not read, nor are folders that end in -future and -stray

A segment has the offsets from its base offset to before the next segment's. Files that end in
.cleaned, .swap or .deleted are no segments: the first two are a cleaning's output that is not in
its place yet, the last is out of use. While a .swap exists, segments that it replaces may be gone
already, so nothing is read then. Source: UnifiedLog and LogSegment of Kafka 4.3.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from odradek.dataclass import dataclass
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segment_selection import INT64_END, SegmentOptions, Selection, Span

if TYPE_CHECKING:
    from odradek.broker.shared.snapshot import LogPart, SharedLogs

_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d{1,10})")
_SEGMENT = re.compile(r"(\d{20})\.log")
_SWAP = ".swap"
_OUT_OF_USE = ("-delete", "-future", "-stray")

# A cleaner exchanges files within milliseconds; after a crash they stay half exchanged.
_LOOKS = 20
_BETWEEN_LOOKS_S = 0.1

_TIME_ENTRY = struct.Struct(">qi")
_NAMES_SHOWN = 10


class SharedPart(NamedTuple):
    """A segment's bytes, if an object store and the catalog have them, and not a file."""

    logs: SharedLogs
    part: LogPart


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment as it was found. The last file of a partition may still be written to."""

    path: str
    topic: str
    partition: int
    base_offset: int
    next_base_offset: int | None  # of the segment after it, None for the last
    size_bytes: int
    # The offsets that its readers may see: it may have batches before them.
    read: Span = field(default_factory=Span)
    # The partition's later segments may have more, which does not count.
    high_watermark: int = INT64_END
    shared: SharedPart | None = None

    @property
    def offsets(self) -> Span:
        """The offsets that its records can have."""
        # Its indexes keep offsets as 32 bits, less the base offset.
        end = self.base_offset + 2**31
        return Span(self.base_offset, min(end, self.next_base_offset or end))


def find_segments(options: SegmentOptions, selection: Selection) -> list[Segment]:
    """Find the segments of the partitions that a selection includes, in order.

    Raises PipelineError for a path that does not exist or holds no segments, for a topic or
    partition of the options that does not exist, and while files are exchanged.
    """
    found = list(dict.fromkeys(one for path in options.paths for one in _partitions(Path(path))))
    there = (partition_name(folder) for folder, _ in found)
    require_partitions(there, options.selection, ", ".join(options.paths))
    segments: dict[Path, Segment] = {}
    for folder, only in found:
        if selection.includes_partition(*partition_name(folder)):
            for one in list_segments(folder):
                if only in (None, Path(one.path)):
                    segments.setdefault(Path(one.path).resolve(), one)
    return sorted(
        segments.values(), key=lambda one: (one.topic, one.partition, one.base_offset, one.path)
    )


def prune(segments: Iterable[Segment], selection: Selection) -> list[Segment]:
    """Leave out segments that are known to hold no record with a selected offset or time.

    Of times, only the latest one in a sealed segment is known, from the end of its .timeindex.
    """
    return [
        one
        for one in segments
        if one.size_bytes
        and one.offsets.start < selection.offsets.end
        and selection.offsets.start < one.offsets.end
        and not _ends_before(one, selection.timestamps.start)
    ]


def list_segments(folder: Path) -> list[Segment]:
    """List the segments of a partition's folder, by their base offsets.

    Raises PipelineError when files are being exchanged there, or the folder is gone.
    """
    topic, partition = partition_name(folder)
    names = _settled_names(folder)
    bases = [int(name[1]) for name in map(_SEGMENT.fullmatch, names) if name]
    segments = []
    for base, following in pairwise([*sorted(bases), None]):
        assert base is not None
        path = folder / f"{base:020d}.log"
        with errors_in_one_line(path):
            size_bytes = path.stat().st_size
        segments.append(Segment(str(path), topic, partition, base, following, size_bytes))
    return segments


def later_segments(segment: Segment) -> Iterator[Segment]:
    """Yield the segments that follow one in the same partition now."""
    for one in list_segments(Path(segment.path).parent):
        if one.base_offset > segment.base_offset:
            yield one


def partition_name(folder: Path) -> tuple[str, int]:
    """Return the topic and the partition in a folder's name; raises PipelineError."""
    found = _PARTITION.fullmatch(folder.absolute().name)
    if found is None:
        raise PipelineError(f"{folder} is not named TOPIC-PARTITION, as in orders-0")
    return found[1], int(found[2])


def changed(path: Path | str, how: str) -> str:
    """Return the message that a file has changed since the reading was planned."""
    return (
        f"{path} {how} since the reading was planned: a broker cleans or deletes there; "
        "run it again, or on a copy"
    )


@contextmanager
def errors_in_one_line(path: Path | str) -> Iterator[None]:
    """Turn an error of the file system into a PipelineError that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise PipelineError(changed(path, "was removed or renamed")) from None
    except OSError as error:
        raise PipelineError(f"{path} cannot be read: {error.strerror or error}") from None


def open_regular(path: Path | str) -> FileIO:
    """Open a regular file for reading; raises OSError for anything else.

    A FIFO would make its reader wait, and a device may never end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    file = FileIO(descriptor, "r")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file")
    return file


def _partitions(path: Path) -> Iterator[tuple[Path, Path | None]]:
    """Yield the partitions' folders in a path, each with the only file to read in it, if any."""
    if not path.exists():
        raise PipelineError(f"{path} does not exist: change option path")
    if path.is_file():
        if _SEGMENT.fullmatch(path.name) is None:
            raise PipelineError(f"{path} is not a segment: its name is not 20 digits and .log")
        yield path.parent, path
        return
    if path.absolute().name.endswith(_OUT_OF_USE):
        raise PipelineError(f"{path} is out of use: folders with such an ending are not read")
    with errors_in_one_line(path):
        names = sorted(os.listdir(path))  # noqa: PTH208 - only names are needed
    if any(map(_SEGMENT.fullmatch, names)):
        partition_name(path)
        yield path, None
        return
    folders = [path / name for name in names if _PARTITION.fullmatch(name)]
    if not folders:
        raise PipelineError(
            f"{path} holds no segments: name a folder of log.dirs, or one such as orders-0"
        )
    yield from ((folder, None) for folder in folders)


def require_partitions(
    there: Iterable[tuple[str, int]], selection: Selection, where: str
) -> None:
    """Raise PipelineError unless every topic and partition of a selection exists there."""
    there = set(there)
    topics = selection.topics
    if topics is not None and (missing := sorted(topics - {topic for topic, _ in there})):
        names = sorted({topic for topic, _ in there})
        others = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
        raise PipelineError(f"topic {missing[0]} is not in {where}: there are {others or 'none'}")
    numbers = {number for topic, number in there if topics is None or topic in topics}
    wanted = selection.partitions
    if wanted is not None and (absent := sorted(wanted - numbers)):
        raise PipelineError(f"no topic read from {where} has a partition {absent[0]}")


def _settled_names(folder: Path) -> list[str]:
    """List a partition's files once nothing is being exchanged: the same twice, and no .swap."""
    before: list[str] | None = None
    for _ in range(_LOOKS):
        with errors_in_one_line(folder):
            everything = os.listdir(folder)  # noqa: PTH208 - only names are needed
        names = sorted(name for name in everything if name.endswith((".log", _SWAP)))
        if names == before:
            if not any(name.endswith(_SWAP) for name in names):
                return names
            time.sleep(_BETWEEN_LOOKS_S)
        before = names
    raise PipelineError(
        f"{folder} has files that end in .swap: a broker exchanges segments there, or ended while "
        "it did; run it again, or on a copy on which a broker was started and stopped"
    )


def _ends_before(segment: Segment, timestamp: int) -> bool:
    """Return whether all records of a segment are known to be older than a time (ms)."""
    # The last segment's index lags behind the appended records.
    if timestamp <= 0 or segment.next_base_offset is None:
        return False
    latest = _latest_timestamp(segment)
    return latest is not None and latest < timestamp


def _latest_timestamp(segment: Segment) -> int | None:
    """Return the largest timestamp (ms) in a sealed segment, None where its index lacks it.

    An entry of a .timeindex is the largest timestamp so far, 64 bits, and an offset less the
    base offset, 32 bits. The last one is written when the segment is sealed.
    """
    if segment.shared is not None:
        return segment.shared.part.max_timestamp
    try:
        with open_regular(Path(segment.path).with_suffix(".timeindex")) as file:
            size_bytes = file.seek(0, os.SEEK_END)
            if size_bytes == 0 or size_bytes % _TIME_ENTRY.size:
                return None
            file.seek(-_TIME_ENTRY.size, os.SEEK_END)
            timestamp, relative_offset = _TIME_ENTRY.unpack(file.read(_TIME_ENTRY.size))
    except (OSError, struct.error):
        return None
    # A Kafka index that was copied before it was sealed ends in zeros.
    if timestamp <= 0 or segment.base_offset + relative_offset not in segment.offsets:
        return None
    return int(timestamp)
