"""Packs parts of shared logs into objects, and finds their files there again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from odradek.broker.catalog.segment_rows import SegmentRow
from odradek.broker.ids import Partition
from odradek.cleaner.rules.policy import SegmentSizes
from odradek.dataclass import dataclass
from odradek.storage.files import Buffer, FileSystem
from odradek.storage.log import Log
from odradek.storage.objects.cached_files import CachedFiles
from odradek.storage.objects.packs import (
    EPOCHS,
    FilePart,
    OpenPack,
    PackedFile,
    PackedSegment,
    read_packed_file,
)
from odradek.storage.objects.remote_files import RemoteFile
from odradek.storage.objects.store import ObjectStore
from odradek.storage.segment import INDEX, KEYS, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, Segment

NO_TIMESTAMP = -1
INDEXES = (INDEX, TIME_INDEX, TXN_INDEX, KEYS)


@dataclass(frozen=True, slots=True)
class Part:
    """A segment of a log, or its begin up to an offset, and the log's epochs.

    With a sealed segment go the producers and epochs at its end, with another one those at its
    begin: its batches are appended again.
    """

    key: Partition
    log: Log
    segment: Segment
    next_offset: int
    epochs: Sequence[tuple[int, int]]
    is_open: bool


def pack(
    store: ObjectStore, fs: FileSystem, key: str, parts: Sequence[Part], now_ms: int
) -> list[SegmentRow]:
    """Upload parts as one object; return their rows. It waits: call it in a thread.

    Raises ObjectStoreError and StorageError.
    """
    made = OpenPack()
    rows = []
    for part in parts:
        segment = part.segment
        packed = made.add(
            part.key, segment.base_offset, part.next_offset, _sources(fs, part)
        )
        rows.append(
            SegmentRow(
                partition=part.key,
                base_offset=segment.base_offset,
                next_offset=part.next_offset,
                key=key,
                position=packed.position,
                files=packed.table(),
                size_bytes=packed.files[LOG].size_bytes,
                max_timestamp=NO_TIMESTAMP if part.is_open else segment.max_timestamp,
                first_timestamp=_first_timestamp(segment),
                created_ms=now_ms,
                is_open=part.is_open,
            )
        )
    store.create(key, made.object())
    return rows


def _first_timestamp(segment: Segment) -> int:
    found = segment.first_timestamp()
    return NO_TIMESTAMP if found is None else found


def pack_cleaned(
    store: ObjectStore,
    fs: FileSystem,
    key: str,
    segment: Segment,
    replaced: Sequence[SegmentRow],
) -> SegmentRow:
    """Upload a segment that is to replace rows, apart from its log; return its row.

    It has the producers and epochs at the end of the last row, and the age of that.
    Raises ObjectStoreError and StorageError.
    """
    last = replaced[-1]
    sources = _own_files(fs, segment, segment.size_bytes, INDEXES)
    before = packed_segment(last)
    for kind in (SNAPSHOT, EPOCHS):
        if kind in before.files:
            sources[kind] = read_packed_file(store, last.key, before, kind)
    made = OpenPack()
    packed = made.add(last.partition, segment.base_offset, last.next_offset, sources)
    store.create(key, made.object())
    return SegmentRow(
        partition=last.partition,
        base_offset=segment.base_offset,
        next_offset=last.next_offset,
        key=key,
        position=packed.position,
        files=packed.table(),
        size_bytes=packed.files[LOG].size_bytes,
        max_timestamp=segment.max_timestamp,
        first_timestamp=_first_timestamp(segment),
        created_ms=last.created_ms,
        is_open=False,
    )


def add_remotes(
    files: CachedFiles, store: ObjectStore, row: SegmentRow, path: Path, suffix: str = ""
) -> None:
    """Give the files of a stored segment names, which begin with a path."""
    packed = packed_segment(row).files
    for kind in (LOG, *INDEXES):
        if kind in packed:
            remote = _remote(store, row, packed[kind])
            files.add_remote(path.with_name(path.name + kind + suffix), remote)


def _own_files(
    fs: FileSystem, segment: Segment, size: int, kinds: Iterable[str]
) -> dict[str, Buffer | FilePart]:
    found: dict[str, Buffer | FilePart] = {LOG: FilePart(segment.log.hold(), size)}
    for kind in kinds:
        path = segment.path(kind)
        if fs.exists(path):
            found[kind] = fs.read_bytes(path)
    return found


def _sources(fs: FileSystem, part: Part) -> dict[str, Buffer | FilePart]:
    segment = part.segment
    size = segment.position_of(part.next_offset) if part.is_open else segment.size_bytes
    found = _own_files(fs, segment, size, () if part.is_open else INDEXES)
    place = segment.base_offset if part.is_open else part.next_offset
    snapshot = part.log.producers.snapshot_path(place)
    if fs.exists(snapshot):
        found[SNAPSHOT] = fs.read_bytes(snapshot)
    epochs = [f"{epoch} {start}" for epoch, start in part.epochs if start < place]
    found[EPOCHS] = "\n".join(["0", str(len(epochs)), *epochs, ""]).encode()
    return found


def packed_segment(row: SegmentRow) -> PackedSegment:
    """Return the files of a row. Raises DamagedPack."""
    return PackedSegment.of_table(
        row.partition, row.base_offset, row.next_offset, row.position, row.files
    )


def segment_sizes(row: SegmentRow) -> SegmentSizes:
    """Return the sizes of a row's files by which segments are grouped."""
    files = packed_segment(row).files
    indexes = (files[kind].size_bytes if kind in files else 0 for kind in (INDEX, TIME_INDEX))
    return SegmentSizes(row.base_offset, row.size_bytes, *indexes)


def remote_log(store: ObjectStore, row: SegmentRow) -> RemoteFile:
    """Return the place of a segment's batches."""
    return _remote(store, row, packed_segment(row).files[LOG])


def _remote(store: ObjectStore, row: SegmentRow, file: PackedFile) -> RemoteFile:
    return RemoteFile(store, row.key, file.position, file.size_bytes, file.crc, row.created_ms)
