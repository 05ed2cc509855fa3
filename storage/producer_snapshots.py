"""Snapshots of a log's producers, which save reading the whole log.

    00000000000000000042.snapshot     the state before offset 42

    | version i16 = 1 | crc32c u32 of all that follows | count i32 | entries |
    an entry: producer id i64, epoch i16, last sequence i32, last offset i64, offset delta i32,
    timestamp i64, coordinator epoch i32, first offset of the open transaction i64 (-1: none)

A producer has an entry for each batch that is remembered, oldest first. Kafka writes only the
last one, and reads only the last of several. So when a client repeats all five of its batches
after a restart, they are recognised here, and refused by Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from odradek.protocol.checksum import crc32c
from odradek.storage.errors import CorruptFile
from odradek.storage.files import Buffer, FileSystem

_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1
_CRC_START = 6


class SnapshotEntry(NamedTuple):
    """An entry, field by field as drawn above."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


def pack_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    """Return the contents of a snapshot file; the CRC reveals a damaged one."""
    body = b"".join(_ENTRY.pack(*entry) for entry in entries)
    data = bytearray(_HEAD.pack(_VERSION, 0, len(body) // _ENTRY.size) + body)
    data[2:_CRC_START] = crc32c(data[_CRC_START:]).to_bytes(4, "big")
    return bytes(data)


def unpack_snapshot(fs: FileSystem, path: Path) -> Iterator[SnapshotEntry]:
    """Read a snapshot file whole, and iterate over its entries; see `read_entries`."""
    return read_entries(path, fs.read_bytes(path))


def read_entries(path: Path, data: Buffer) -> Iterator[SnapshotEntry]:
    """Iterate over the entries of a snapshot.

    Raises CorruptFile if its CRC, version or size is wrong, before the first entry.
    """
    if len(data) < _HEAD.size:
        raise CorruptFile(path, 0, "shorter than its head")
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptFile(path, 0, f"version {version}, expected {_VERSION}")
    if crc != crc32c(data[_CRC_START:]):
        raise CorruptFile(path, 2, "the CRC does not match")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptFile(path, _CRC_START, f"{count} entries do not fill the file")
    return map(SnapshotEntry._make, _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :]))
