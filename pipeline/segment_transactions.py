"""Finds the outcomes of the transactions whose batches are in a segment.

A producer has one transaction at a time in a partition, so a batch belongs to the transaction that
the producer's next marker ends: a control batch, in this segment or a later one. The .txnindex
files are not needed, and a copy without them can be read. Nothing is read twice where there are no
transactional batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from odradek.pipeline.segment_batches import Chunk, Damage, read_chunks
from odradek.pipeline.segment_bytes import Opener, open_bytes
from odradek.pipeline.segment_files import Segment
from odradek.pipeline.segment_finding import later_segments
from odradek.pipeline.segment_selection import INT64_END
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batch_scan import ATTRIBUTES, BASE_OFFSET, COUNT, POSITION, PRODUCER_ID
from odradek.protocol.batches import CONTROL_BIT, TRANSACTIONAL_BIT
from odradek.protocol.control import ControlType, decode_control
from odradek.protocol.errors import ProtocolError
from odradek.protocol.kernel import Table

Fates = npt.NDArray[np.int8]

# For each producer the offsets of its markers, and the fates of the transactions that they end.
Markers: TypeAlias = dict[int, list[tuple[int, int]]]

# The fate of a batch: STANDS also for a batch in no transaction.
STANDS, ABORTED, OPEN = range(3)

_FATES = {ControlType.COMMIT: STANDS, ControlType.ABORT: ABORTED}


class Outcomes:
    """The ends of transactions in and behind one segment, looked up at the first request."""

    def __init__(
        self,
        segment: Segment,
        start_offset: int,
        on_damage: Callable[[Damage], None],
        open_segment: Opener = open_bytes,
    ) -> None:
        self._segment, self._start_offset, self._on_damage = segment, start_offset, on_damage
        self._open_segment = open_segment
        self._markers: Markers | None = None

    def fates(self, batches: Table) -> Fates:
        """Return the fate of each batch; a marker has the fate of the transaction that it ends."""
        fates = np.full(len(batches), STANDS, np.int8)
        transactional = batches[:, ATTRIBUTES] & TRANSACTIONAL_BIT != 0
        if not transactional.any():
            return fates
        if self._markers is None:
            self._markers = self._find()
        for producer_id in np.unique(batches[transactional, PRODUCER_ID]).tolist():
            markers = self._markers.get(producer_id, [])
            offsets = np.array([offset for offset, _ in markers], np.int64)
            ends = np.array([*(fate for _, fate in markers), OPEN], np.int8)
            own = transactional & (batches[:, PRODUCER_ID] == producer_id)
            fates[own] = ends[np.searchsorted(offsets, batches[own, BASE_OFFSET])]
        return fates

    def _find(self) -> Markers:
        """Read the headers of the segment, and of later ones until all transactions have ended."""
        markers: Markers = {}
        last_offsets: dict[int, int] = {}
        # Damage in the segment itself is reported when its records are read.
        for chunk in self._headers(self._segment, lambda _: None):
            _note_markers(chunk, markers)
            _note_data(chunk, last_offsets)
        waiting = {
            producer_id
            for producer_id, offset in last_offsets.items()
            if producer_id not in markers or markers[producer_id][-1][0] < offset
        }
        for segment in later_segments(self._segment) if waiting else ():
            found: Markers = {}
            for chunk in self._headers(segment, self._on_damage):
                _note_markers(chunk, found, last_offsets, self._segment.high_watermark)
                if waiting <= found.keys():
                    break
            for producer_id in waiting & found.keys():
                markers.setdefault(producer_id, []).append(found[producer_id][0])
            waiting -= found.keys()
            if not waiting:
                break
        return markers

    def _headers(
        self, segment: Segment, on_damage: Callable[[Damage], None]
    ) -> Iterator[Chunk]:
        return read_chunks(
            segment,
            on_damage,
            open_segment=self._open_segment,
            start_offset=self._start_offset,
            checks_crc=False,
        )


def _note_markers(
    chunk: Chunk, markers: Markers, after: Mapping[int, int] = {}, before: int = INT64_END
) -> None:
    """Add the markers in a chunk to the markers of their producers.

    Those up to an offset of their producers, and those from an offset on, are left out.
    """
    batches = chunk.batches
    kind = batches[:, ATTRIBUTES] & (CONTROL_BIT | TRANSACTIONAL_BIT)
    # A marker whose record was cleaned away ends no transaction with remaining records.
    is_marker = (kind == CONTROL_BIT | TRANSACTIONAL_BIT) & (batches[:, COUNT] > 0)
    rows = batches[is_marker][:, [POSITION, BASE_OFFSET, PRODUCER_ID]].tolist()
    for position, offset, producer_id in rows:
        if not after.get(producer_id, offset - 1) < offset < before:
            continue
        fate = marker_fate(chunk, position)
        if fate is not None:
            markers.setdefault(producer_id, []).append((offset, fate))


def marker_fate(chunk: Chunk, position: int) -> int | None:
    """Return the fate of the transaction that a control batch ends, None if it ends none."""
    try:
        control = decode_control(decode_records(chunk.data, position)[0])
    except ProtocolError:
        return None  # readers skip control records that they do not know
    return _FATES.get(control.type)


def _note_data(chunk: Chunk, last_offsets: dict[int, int]) -> None:
    """Note the base offset of each producer's last transactional batch, except markers."""
    batches = chunk.batches
    kind = batches[:, ATTRIBUTES] & (CONTROL_BIT | TRANSACTIONAL_BIT)
    last_offsets.update(batches[kind == TRANSACTIONAL_BIT][:, [PRODUCER_ID, BASE_OFFSET]].tolist())
