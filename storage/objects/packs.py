"""Packs: objects that hold the files of segments, byte for byte.

A pack has one or several segments, of one or several partitions:

    files     those of one segment back to back, then those of the next one
    index     for each segment a header, and a row for each of its files; in the order of the files
    footer    size of all files, size of the index, CRC-32C of the index, magic

The header of a segment:

    offset  size
         0    16  topic id
        16     4  partition
        20     8  base offset
        28     8  next offset: one past the last
        36     4  number of files

The row of a file; the rows of a segment are its file table:

    offset  size
         0     1  kind: its place in KINDS
         1     4  size in bytes
         5     4  CRC-32C of the file

A file begins where the file before it ends. The catalog has the position of each segment and its
file table, which saves reading the index. Index and footer serve readers that have only the
bucket. All numbers are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping

from crc32c import crc32c

from odradek.dataclass import dataclass
from odradek.storage.errors import CorruptFile
from odradek.storage.files import Buffer, File
from odradek.storage.objects.store import ObjectDamaged, ObjectStore
from odradek.storage.segment import INDEX, KEYS, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX

EPOCHS = ".epochs"  # the text of leader-epoch-checkpoint as it is at the segment's end
# A pack has the places in this tuple: a new kind is added at its end.
KINDS = (LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT, KEYS, EPOCHS)

_HEADER = struct.Struct(">16siqqI")
_ROW = struct.Struct(">BII")
_FOOTER = struct.Struct(">QII8s")
_MAGIC = b"OdrPack\1"
_CHUNK_BYTES = 1 << 20
# The end of an object that is read first: the index of a pack of a hundred segments.
_END_BYTES = 16 << 10


class DamagedPack(ObjectDamaged):
    """The bytes of a pack are not those that were stored; the message names object and offsets."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """The first bytes of a file, which may grow meanwhile."""

    file: File
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A file in a pack; `position` counts from the begin of the object."""

    position: int
    size_bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class PackedSegment:
    """A segment in a pack: its files by kind, in the order of their positions."""

    partition: tuple[bytes, int]
    base_offset: int
    next_offset: int
    files: Mapping[str, PackedFile]

    @classmethod
    def of_table(
        cls,
        partition: tuple[bytes, int],
        base_offset: int,
        next_offset: int,
        position: int,
        table: Buffer,
    ) -> PackedSegment:
        """Return a segment by its file table and the position of its first file.

        Raises DamagedPack.
        """
        found = cls(partition, base_offset, next_offset, {})
        if not table or len(table) % _ROW.size:
            raise DamagedPack(f"{found}: their file table has {len(table)} bytes")
        files: dict[str, PackedFile] = {}
        for kind, size, crc in _ROW.iter_unpack(table):
            if kind >= len(KINDS) or KINDS[kind] in files:
                raise DamagedPack(f"{found}: their file table names a file of kind {kind}")
            files[KINDS[kind]] = PackedFile(position, size, crc)
            position += size
        return cls(partition, base_offset, next_offset, files)

    @property
    def position(self) -> int:
        """The position of the first file."""
        return min(one.position for one in self.files.values())

    @property
    def end(self) -> int:
        """The position after the last file."""
        return max(one.position + one.size_bytes for one in self.files.values())

    def table(self) -> bytes:
        """Return the file table, as the catalog keeps it."""
        return b"".join(
            _ROW.pack(KINDS.index(kind), one.size_bytes, one.crc)
            for kind, one in self.files.items()
        )

    def __str__(self) -> str:
        topic_id, number = self.partition
        return (
            f"offsets {self.base_offset} to {self.next_offset - 1} of partition {number} of "
            f"the topic with id {topic_id.hex()}"
        )


class OpenPack:
    """A pack that still takes segments. It refers to their memory, which must not change."""

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []
        self.segments: list[PackedSegment] = []
        self.size_bytes = 0  # of the files

    def add(
        self,
        partition: tuple[bytes, int],
        base_offset: int,
        next_offset: int,
        sources: Mapping[str, Buffer | FilePart],
    ) -> PackedSegment:
        """Add a segment by its files, at least one; return it as it is in the pack.

        Parts of files are read in chunks of 1 MiB and kept. Raises CorruptFile for a file that is
        too short; the pack is as before then.
        """
        assert sources, "a segment has files"
        buffers: list[Buffer] = []
        files, position = {}, self.size_bytes
        for kind, source in sources.items():
            size = crc = 0
            for one in _chunks(source):
                crc = crc32c(one, crc)
                size += len(one)
                buffers.append(one)
            files[kind] = PackedFile(position, size, crc)
            position += size
        segment = PackedSegment(partition, base_offset, next_offset, files)
        self._buffers += buffers
        self.segments.append(segment)
        self.size_bytes = position
        return segment

    def object(self) -> list[Buffer]:
        """Return the buffers of the object."""
        index = b"".join(
            _HEADER.pack(*one.partition, one.base_offset, one.next_offset, len(one.files))
            + one.table()
            for one in self.segments
        )
        footer = _FOOTER.pack(self.size_bytes, len(index), crc32c(index), _MAGIC)
        return [*self._buffers, index, footer]


def _chunks(source: Buffer | FilePart) -> Iterator[Buffer]:
    if not isinstance(source, FilePart):
        yield memoryview(source).cast("B")
        return
    position = 0
    while position < source.size_bytes:
        chunk = source.file.read(position, min(_CHUNK_BYTES, source.size_bytes - position))
        if not chunk:
            raise CorruptFile(
                source.file.path, position, f"it should have {source.size_bytes} bytes"
            )
        yield chunk
        position += len(chunk)


def least_size(segments: Iterable[PackedSegment]) -> int:
    """Return the bytes that a pack with these segments has at least; exactly, if they are all."""
    end, index_bytes = 0, 0
    for one in segments:
        end = max(end, one.end)
        index_bytes += _HEADER.size + len(one.files) * _ROW.size
    return end + index_bytes + _FOOTER.size


def read_packed_file(
    store: ObjectStore, key: str, segment: PackedSegment, kind: str
) -> Buffer:
    """Read a file of a segment from the pack with a key.

    Raises DamagedPack, KeyError for a kind that the segment does not have, and the other errors of
    the store.
    """
    one = segment.files[kind]
    damage = f"the file {kind} of {segment} is damaged in {key}"
    try:
        found = store.read_range(key, one.position, one.size_bytes)
    except ObjectDamaged as error:
        raise DamagedPack(f"{damage}: {error}") from error
    if len(found) != one.size_bytes or crc32c(found) != one.crc:
        raise DamagedPack(damage)
    return found


def read_pack_index(store: ObjectStore, key: str) -> list[PackedSegment]:
    """Return the segments of a pack by the object alone.

    Raises DamagedPack, and the other errors of the store.
    """
    size = store.size(key)
    end = memoryview(store.read_range(key, max(size - _END_BYTES, 0), min(size, _END_BYTES)))
    if size < _FOOTER.size:
        raise DamagedPack(f"{key} has {size} bytes, and is no pack")
    files_bytes, index_bytes, crc, magic = _FOOTER.unpack(end[-_FOOTER.size :])
    if magic != _MAGIC or files_bytes + index_bytes + _FOOTER.size != size:
        raise DamagedPack(f"{key} does not end as a pack of {size} bytes does")
    if index_bytes + _FOOTER.size > len(end):
        index = memoryview(store.read_range(key, files_bytes, index_bytes))
    else:
        index = end[len(end) - _FOOTER.size - index_bytes : -_FOOTER.size]
    if crc32c(index) != crc:
        raise DamagedPack(f"the index of {key} is damaged")
    try:
        segments = list(_segments(index))
    except struct.error as error:
        raise DamagedPack(f"the index of {key} ends within a segment") from error
    if files_bytes != (segments[-1].end if segments else 0):
        raise DamagedPack(f"the index of {key} is not that of its files")
    return segments


def _segments(index: memoryview) -> Iterator[PackedSegment]:
    place = position = 0
    while place < len(index):
        topic_id, number, base, after, count = _HEADER.unpack_from(index, place)
        place += _HEADER.size
        table = index[place : place + count * _ROW.size]
        place += count * _ROW.size
        segment = PackedSegment.of_table((topic_id, number), base, after, position, table)
        yield segment
        position = segment.end
