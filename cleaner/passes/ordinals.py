"""The ordinals of records: their numbers in the order in which a cleaning reads them.

Both passes number the records of a segment alike, so that a mark which the first pass sets for an
ordinal is found by the second.
"""

from __future__ import annotations

import numpy as np

from odradek.cleaner.rules.verdicts import NO_ORDINAL
from odradek.dataclass import dataclass
from odradek.protocol.batch_scan import COUNT, LAST_OFFSET
from odradek.protocol.kernel import Table


@dataclass(frozen=True, slots=True)
class Numbering:
    """The ordinals of a segment's numbered records, which are its clean or its dirty ones."""

    first: int
    after: int


class Ordinals:
    """Numbers the records of batches as they come."""

    def __init__(self, first_dirty_offset: int, start: int) -> None:
        self._first_dirty_offset = first_dirty_offset
        self.next = start

    def number(self, batches: Table, *, dirty: bool) -> Table:
        """Return each batch's first ordinal, NO_ORDINAL for batches on the other side."""
        counts = batches[:, COUNT]
        # Offsets grow, so nearly always all batches are on the same side.
        edges = batches[[0, -1], LAST_OFFSET].tolist()
        is_dirty = [offset >= self._first_dirty_offset for offset in edges]
        if is_dirty == [not dirty, not dirty]:
            return np.full(len(batches), NO_ORDINAL)
        counted = None
        if is_dirty != [dirty, dirty]:
            counted = (batches[:, LAST_OFFSET] >= self._first_dirty_offset) == dirty
            counts = np.where(counted, counts, 0)
        ends = np.cumsum(counts)
        ends += self.next
        self.next = int(ends[-1])
        ends -= counts
        return ends if counted is None else np.where(counted, ends, NO_ORDINAL)
