"""Counts the groups in __consumer_offsets, to show them before a broker reads the topic.

Every key begins with an int16 for its kind, and the name of a group follows in all kinds:

    0, 1  an offset    2  a classic group    3  a consumer group    11  a share group
    17  a streams group                                  (Kafka's CoordinatorRecordType)

The newest value of a key counts; null removes the key. Transactional commits are counted even if
their transaction was aborted.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from struct import Struct

from odradek.broker.adoption.survey import segment_files
from odradek.dataclass import dataclass
from odradek.protocol.batch_records import iterate_records
from odradek.protocol.compiler import decode_prefix
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages.group_metadata import GroupMetadataKey
from odradek.storage.files import FileSystem
from odradek.storage.scan import Batches

_UNPACKED_RATIO_MAX = 100
_UNPACKED_FREE_BYTES = 64 << 10
_INT16 = Struct(">h")
_OFFSET_KINDS = (0, 1)
_GROUP_KINDS = {2: "classic", 3: "consumer", 11: "share", 17: "streams"}


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """The numbers of offsets and of groups that have some, and the names of groups by type."""

    offsets: int
    groups_with_offsets: int
    by_type: dict[str, tuple[str, ...]]


def count_groups(fs: FileSystem, partitions: Iterable[Path]) -> GroupCounts:
    """Read all partitions of __consumer_offsets. Raises StorageError."""
    offsets: Counter[str] = Counter()
    groups: dict[str, list[str]] = {}
    for partition in partitions:
        for kind, group in _live_keys(fs, partition):
            if kind in _OFFSET_KINDS:
                offsets[group] += 1
            else:
                groups.setdefault(_GROUP_KINDS[kind], []).append(group)
    by_type = {kind: tuple(sorted(names)) for kind, names in groups.items()}
    return GroupCounts(offsets.total(), len(offsets), by_type)


def _live_keys(fs: FileSystem, partition: Path) -> list[tuple[int, str]]:
    live: dict[bytes, tuple[int, str]] = {}
    for path in segment_files(fs, partition):
        file = fs.open(path)
        for _, header, data in Batches(file, path, file.size()).read():
            if header.is_control:
                continue
            # Batches of coordinators unpack to far less; a batch that is made to unpack to more
            # is not worth the time.
            limit = max(_UNPACKED_RATIO_MAX * header.size_bytes, _UNPACKED_FREE_BYTES)
            with contextlib.suppress(ProtocolError):  # the broker logs it when it reads the batch
                for record in iterate_records(data, 0, limit, headers_max=0):
                    named = _named(record.key or b"")
                    if named is None:
                        continue
                    assert record.key is not None
                    if record.value is None:
                        live.pop(record.key, None)
                    else:
                        live[record.key] = named
    return list(live.values())


def _named(key: bytes) -> tuple[int, str] | None:
    """Return the kind and the group of a key, None for a key of another kind."""
    if len(key) < _INT16.size:
        return None
    kind: int = _INT16.unpack_from(key)[0]
    if kind not in _OFFSET_KINDS and kind not in _GROUP_KINDS:
        return None
    try:
        group, _ = decode_prefix(GroupMetadataKey, 2, memoryview(key), _INT16.size)
    except ProtocolError:
        return None
    return kind, group.group
