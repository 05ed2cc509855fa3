"""Compares a segment's indexes with its log, as kafka-dump-log's checks of indexes do.

Source: DumpLogSegments.dumpIndex and dumpTimeIndex of Kafka 4.3. Indexes only save reading:
a wrong one may be deleted while the broker is stopped; the broker builds it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from odradek.storage.errors import CorruptFile
from odradek.storage.exchange import base_offset_of
from odradek.storage.files import FileSystem
from odradek.storage.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from odradek.storage.scan import Batches, Place
from odradek.storage.segment import INDEX, LOG, TIME_INDEX


def check_offset_index(fs: FileSystem, path: Path) -> Iterator[CorruptFile]:
    """Yield each entry that is not the last offset and the position of a batch."""
    base = max(base_offset_of(path.name), 0)
    batches = _batches_beside(fs, path, INDEX)
    if batches is None:
        yield _without_log(path)
        return
    for at, (offset, position) in enumerate(
        zip(*OffsetIndex(fs, path, base).entries.load(), strict=True)
    ):
        offset += base
        place = _batch_at(batches, position)
        if place is None:
            cause = f"offset {offset} at position {position}, where the log has no batch"
        elif place[2] != offset:
            cause = f"offset {offset} at position {position}, where the batch ends at {place[2]}"
        else:
            continue
        yield CorruptFile(path, at * OFFSET_ENTRY.size, cause, offset=offset)


def check_time_index(fs: FileSystem, path: Path) -> Iterator[CorruptFile]:
    """Yield each entry whose timestamp is not the largest of the batch with its offset."""
    base = max(base_offset_of(path.name), 0)
    batches = _batches_beside(fs, path, TIME_INDEX)
    if batches is None:
        yield _without_log(path)
        return
    places = _intact(batches)
    place = next(places, None)
    for at, (timestamp, offset) in enumerate(
        zip(*TimeIndex(fs, path, base).entries.load(), strict=True)
    ):
        offset += base
        while place is not None and place[2] < offset:
            place = next(places, None)
        if place is None:
            cause = f"offset {offset}, which the log does not have"
        elif place[3] != timestamp:
            cause = f"timestamp {timestamp} at offset {offset}, where the batch has {place[3]}"
        else:
            continue
        yield CorruptFile(path, at * TIME_ENTRY.size, cause, offset=offset)


def _batches_beside(fs: FileSystem, path: Path, suffix: str) -> Batches | None:
    """Return the batches of an index's log; both may end in .cleaned, .swap or .deleted."""
    log = path.with_name(path.name.replace(suffix, LOG, 1))
    if not fs.exists(log):
        return None
    file = fs.open(log)
    return Batches(file, log, file.size())


def _without_log(path: Path) -> CorruptFile:
    return CorruptFile(path, 0, "there is no log beside it to compare it with")


def _batch_at(batches: Batches, position: int) -> Place | None:
    if not 0 <= position < batches.size_bytes:
        return None
    try:
        return next(batches.walk(position), None)
    except CorruptFile:
        return None


def _intact(batches: Batches) -> Iterator[Place]:
    try:
        yield from batches.walk(0)
    except CorruptFile:
        return  # the log's own dump reports it
