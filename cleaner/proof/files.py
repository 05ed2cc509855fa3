"""The expected indexes of a cleaned segment, computed from its batches alone.

The entries are those that Segment.append would have given the batches, one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from odradek.cleaner.errors import VerificationFailed
from odradek.cleaner.proof.stored import Stored
from odradek.config.values import INT64_MAX
from odradek.storage.errors import CorruptFile
from odradek.storage.files import FileSystem
from odradek.storage.index import OFFSET_ENTRY, TIME_ENTRY
from odradek.storage.segment import INDEX, NO_TIMESTAMP, TIME_INDEX, TXN_INDEX, Segment
from odradek.storage.transactions import AbortedTransaction, parse_aborted


class ExpectedIndexes:
    """The two indexes of one segment; built while its batches are read."""

    def __init__(self, segment: Segment, interval_bytes: int) -> None:
        self._segment, self._interval_bytes = segment, interval_bytes
        self._offsets, self._times = bytearray(), bytearray()
        self._unindexed_bytes = 0
        self._largest = (NO_TIMESTAMP, segment.base_offset)
        self._indexed_largest = NO_TIMESTAMP

    def note(self, batch: Stored) -> None:
        """Add the next batch."""
        header = batch.header
        if header.max_timestamp > self._largest[0]:
            self._largest = (header.max_timestamp, header.last_offset)
        if self._unindexed_bytes > self._interval_bytes:
            relative = header.last_offset - self._segment.base_offset
            self._offsets += OFFSET_ENTRY.pack(relative, batch.position)
            self._note_time()
            self._unindexed_bytes = 0
        self._unindexed_bytes += len(batch.data)

    def check(self, fs: FileSystem) -> None:
        """Raise VerificationFailed unless the files have these entries, and no others."""
        self._note_time()  # a sealed segment's last entry
        for kind, layout, expected in (
            (INDEX, OFFSET_ENTRY, self._offsets),
            (TIME_INDEX, TIME_ENTRY, self._times),
        ):
            path = self._segment.path(kind)
            there = fs.read_bytes(path) if fs.exists(path) else b""
            if there == expected:
                continue
            damage = CorruptFile.differing(path, there, bytes(expected), "")
            at = damage.position - damage.position % layout.size
            is_there, wanted = _entry(layout, there, at), _entry(layout, expected, at)
            cause = f"{is_there} is in it, expected {wanted}"
            raise VerificationFailed(path, at, self._segment.base_offset, cause)

    def _note_time(self) -> None:
        timestamp, offset = self._largest
        if timestamp > self._indexed_largest:
            self._times += TIME_ENTRY.pack(timestamp, offset - self._segment.base_offset)
            self._indexed_largest = timestamp


def check_aborted(
    fs: FileSystem,
    new: Sequence[Segment],
    expected: Sequence[AbortedTransaction],
    *,
    is_kept: bool,
) -> None:
    """Raise VerificationFailed unless the transaction indexes name the expected transactions.

    An index that was kept unchanged may name transactions of which only the marker is left.
    """
    ends = [*(one.base_offset for one in new[1:]), INT64_MAX]
    for segment, end in zip(new, ends, strict=False):  # `new` is empty when no record is left
        path = segment.path(TXN_INDEX)
        try:
            there = parse_aborted(fs.read_bytes(path), path) if fs.exists(path) else []
        except CorruptFile as damage:
            raise VerificationFailed(
                path, damage.position, segment.base_offset, damage.cause
            ) from damage
        wanted = [
            one for one in expected if segment.base_offset <= one.last_offset < end
        ]
        differing = set(wanted) - set(there) if is_kept else set(wanted) ^ set(there)
        if differing:
            first = min(differing, key=lambda one: one.last_offset)
            does = "does not name" if first in wanted else "names"
            cause = (
                f"it {does} the aborted transaction of producer {first.producer_id} "
                f"from {first.first_offset} to {first.last_offset}"
            )
            raise VerificationFailed(path, 0, first.last_offset, cause)


def _entry(layout: struct.Struct, data: bytes | bytearray, at: int) -> str:
    if at + layout.size > len(data):
        return "no entry" if at >= len(data) else "part of an entry"
    return f"the entry {layout.unpack_from(data, at)}"
