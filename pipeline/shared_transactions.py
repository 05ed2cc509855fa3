"""Finds the last stable offset of a shared partition: the first that a transaction holds open.

The state of the producers at the end of the last segment is in the bucket. From there on batches
are read: at the first look all of them, later those parts of the log that have new ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from odradek.broker.shared.snapshot import SnapshotError
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segment_batches import Chunk, read_chunks, stop
from odradek.pipeline.segment_transactions import marker_fate
from odradek.pipeline.shared_bytes import read_piece
from odradek.pipeline.shared_segments import SharedLog
from odradek.protocol.batch_scan import ATTRIBUTES, BASE_OFFSET, COUNT, POSITION, PRODUCER_ID
from odradek.protocol.batches import CONTROL_BIT, TRANSACTIONAL_BIT
from odradek.storage.errors import CorruptFile
from odradek.storage.objects.store import ObjectStoreError
from odradek.storage.producer_snapshots import read_entries


class OpenTransactions:
    """The transactions of one partition that had not ended at an offset."""

    def __init__(self, log: SharedLog) -> None:
        """Begin with the producers in the bucket. Raises PipelineError."""
        self.offset = log.snapshot.producers_offset
        # By producer, the first offset of its transaction.
        self._first_offsets: dict[int, int] = {}
        piece = log.snapshot.producers
        if piece is None:
            return
        try:
            data = read_piece(log.place, piece)
            for entry in read_entries(Path(piece.key), data):
                if entry.transaction_first_offset >= 0:
                    self._first_offsets[entry.producer_id] = entry.transaction_first_offset
        except (SnapshotError, ObjectStoreError, CorruptFile) as error:
            raise PipelineError(f"the producers in {piece.key} cannot be read: {error}") from error

    def stable_offset(self, log: SharedLog) -> int:
        """Read the batches up to the high watermark; return the last stable offset.

        Raises PipelineError.
        """
        for segment in log.segments:
            if segment.read.end > self.offset:
                for chunk in read_chunks(segment, stop, checks_crc=False):
                    for producer_id, offset, is_end in _steps(chunk, self.offset):
                        if is_end:
                            self._first_offsets.pop(producer_id, None)
                        else:
                            self._first_offsets.setdefault(producer_id, offset)
        self.offset = log.snapshot.high_watermark
        return min([*self._first_offsets.values(), self.offset])


def _steps(chunk: Chunk, start_offset: int) -> Iterator[tuple[int, int, bool]]:
    """Yield producer and offset of each transactional batch, and whether it ends a transaction."""
    batches = chunk.batches
    is_step = batches[:, ATTRIBUTES] & TRANSACTIONAL_BIT != 0
    is_step &= batches[:, BASE_OFFSET] >= start_offset
    columns = [PRODUCER_ID, BASE_OFFSET, ATTRIBUTES, COUNT, POSITION]
    for producer_id, offset, attributes, count, position in batches[is_step][:, columns].tolist():
        if not attributes & CONTROL_BIT:
            yield producer_id, offset, False
        elif count and marker_fate(chunk, position) is not None:
            yield producer_id, offset, True
