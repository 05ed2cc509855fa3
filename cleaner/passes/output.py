"""Writes a cleaned segment: `.cleaned` files, which storage swaps for the files they replace.

    00000000000000000042.log.cleaned  .index.cleaned  .timeindex.cleaned  .txnindex.cleaned

Batches are written a chunk at a time. The indexes get the entries that Segment.append would
have given them, one for each index.interval.bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from odradek.cleaner.passes import emission
from odradek.protocol.kernel import Table
from odradek.storage.errors import CorruptFile
from odradek.storage.files import Buffer, File, FileSystem
from odradek.storage.index import OffsetIndex, TimeIndex
from odradek.storage.segment import (
    CLEANED,
    INDEX,
    LOG,
    NO_TIMESTAMP,
    SUFFIXES,
    TIME_INDEX,
    TXN_INDEX,
    Segment,
    file_name,
)
from odradek.storage.transactions import AbortedTransaction, pack_aborted

_COPY_BYTES = 4 << 20


class CleanedSegment:
    """A segment that is being written; owned by the thread that cleans.

    As long as its batches are exactly those of its source, in order, nothing is written: a
    segment in which nothing changes keeps its files.
    """

    def __init__(
        self, fs: FileSystem, source: Segment, index_interval_bytes: int, *, is_dry: bool
    ) -> None:
        """`source` is the first of the segments to replace.

        In a dry run nothing is ever written, and finish() returns no segment.
        """
        self._fs, self._source, self._is_dry = fs, source, is_dry
        self._directory, self._base_offset = source.directory, source.base_offset
        self._interval_bytes = index_interval_bytes
        self._log: File | None = None
        self.is_begun = False  # it differs from its source, and so has files of its own
        self._offset_index = OffsetIndex(fs, self._path(INDEX), source.base_offset)
        self._time_index = TimeIndex(fs, self._path(TIME_INDEX), source.base_offset)
        self._offset_index.entries.begin()
        self._time_index.entries.begin()
        self._unindexed_bytes = 0
        self._largest, self._offset_of_largest = NO_TIMESTAMP, source.base_offset
        self.size_bytes = 0

    def begin(self) -> int:
        """Begin the files with the batches passed over so far; return the bytes copied.

        They replace the files that an earlier attempt may have left.
        """
        if self.is_begun:
            return 0
        self.is_begun = True
        if self._is_dry:
            return self.size_bytes
        self.discard()
        self._log = self._fs.open(self._path(LOG), write=True)
        position = 0
        while position < self.size_bytes:
            data = self._source.log.read(
                position, min(_COPY_BYTES, self.size_bytes - position)
            )
            if not data:
                raise CorruptFile(self._source.path(LOG), position, "it ends too early")
            position += self._log.append(position, [data])
        return position

    def pass_over(self, survivors: Table) -> None:
        """Take over, unchanged, the next batches of the source."""
        assert not self.is_begun
        self._note(survivors)
        self.size_bytes += int(survivors[:, emission.OUT_SIZE].sum())

    def append(self, buffers: Sequence[Buffer], survivors: Table) -> None:
        """Write batches, whose sizes, offsets and timestamps are in the table."""
        assert self.is_begun
        self._note(survivors)
        if self._log is not None:
            self._log.append(self.size_bytes, buffers)
        self.size_bytes += int(survivors[:, emission.OUT_SIZE].sum())

    def _note(self, survivors: Table) -> None:
        entries = np.empty((len(survivors), emission.ENTRY_COLUMNS), np.int64)
        found, self._unindexed_bytes, self._largest, self._offset_of_largest = (
            emission.pick_index_entries(
                survivors,
                len(survivors),
                self.size_bytes,
                self._unindexed_bytes,
                self._largest,
                self._offset_of_largest,
                self._interval_bytes,
                entries,
            )
        )
        for last_offset, position, largest, offset_of_largest in entries[:found].tolist():
            self._offset_index.note(last_offset, position)
            self._time_index.note(largest, offset_of_largest)

    def finish(
        self, aborted: Sequence[AbortedTransaction], modified_ms: int
    ) -> Segment | None:
        """Make the segment durable, with its aborted transactions, and return it.

        It keeps the modification time of the replaced segments, which is the age of a segment
        without timestamps for retention.
        """
        if self._log is None:
            return None
        self._time_index.note(self._largest, self._offset_of_largest)
        if aborted:
            transactions = self._fs.open(self._path(TXN_INDEX), write=True)
            transactions.append(0, [pack_aborted(aborted)])
            transactions.sync()
        for entries in (self._offset_index.entries, self._time_index.entries):
            entries.write()
            entries.sync()
        self._log.sync()
        self._fs.set_modified_ms(self._path(LOG), modified_ms)
        return Segment(self._fs, self._directory, self._base_offset, suffix=CLEANED)

    def discard(self) -> None:
        """Remove the files, also those of an earlier attempt."""
        for kind in SUFFIXES if not self._is_dry else ():
            self._fs.remove(self._path(kind))

    def _path(self, kind: str) -> Path:
        return self._directory / (file_name(self._base_offset) + kind + CLEANED)
