"""Writes a cleaned segment: `.cleaned` files that storage swaps in for those they replace.

    00000000000000000042.log.cleaned  .index.cleaned  .timeindex.cleaned  .txnindex.cleaned

Batches are written a chunk at a time. The indexes get the entries that Segment.append would
have given them, one for each index.interval.bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cleaner import emission
from protocol.records import Table
from storage.files import Buffer, FileSystem
from storage.index import OffsetIndex, TimeIndex
from storage.segment import (
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
from storage.transactions import AbortedTransaction, pack_aborted


class CleanedSegment:
    """A segment in the making; owned by the thread that cleans."""

    def __init__(
        self, fs: FileSystem, directory: Path, base_offset: int, index_interval_bytes: int
    ) -> None:
        """Begin the files, in the place of any that an earlier attempt has left."""
        self._fs, self._directory, self._base_offset = fs, directory, base_offset
        self._interval_bytes = index_interval_bytes
        self.discard()
        self._log = fs.open(self._path(LOG), write=True)
        self._offset_index = OffsetIndex(fs, self._path(INDEX), base_offset)
        self._time_index = TimeIndex(fs, self._path(TIME_INDEX), base_offset)
        self._offset_index.entries.begin()
        self._time_index.entries.begin()
        self._unindexed_bytes = 0
        self._largest, self._offset_of_largest = NO_TIMESTAMP, base_offset
        self.size_bytes = 0

    def append(self, buffers: Sequence[Buffer], survivors: Table) -> None:
        """Write batches, whose sizes, offsets and timestamps are in the table."""
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
        self.size_bytes += self._log.append(self.size_bytes, buffers)
        for last_offset, position, largest, offset_of_largest in entries[:found].tolist():
            self._offset_index.note(last_offset, position)
            self._time_index.note(largest, offset_of_largest)

    def finish(self, aborted: Sequence[AbortedTransaction], modified_ms: int) -> Segment:
        """Make the segment durable, with its aborted transactions, and return it.

        It keeps the modification time of what it replaces, by which retention ages a segment
        without timestamps.
        """
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
        """Remove the files."""
        for kind in SUFFIXES:
            self._fs.remove(self._path(kind))

    def _path(self, kind: str) -> Path:
        return self._directory / (file_name(self._base_offset) + kind + CLEANED)
