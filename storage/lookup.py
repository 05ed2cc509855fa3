"""The two indexes of a segment, checked against the batches that they point to.

An index saves reading, and may be wrong: after a crash, or after a bit flipped. So each entry
that is used is compared with the batch that it names. If they differ, both indexes are rebuilt
from the log, with a warning that names the file, the position and the cause.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import partial
from itertools import chain

from odradek.storage.errors import CorruptFile, DiskFailure, NotCached
from odradek.storage.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from odradek.storage.scan import Batches, Place

logger = logging.getLogger(__name__)

NO_TIMESTAMP = -1
# Kafka's default for index.interval.bytes, for an index that is rebuilt while it is read.
_INTERVAL_BYTES = 4096
_BEYOND_ALL_OFFSETS = 1 << 63
RELATIVE_OFFSET_MAX = 2**31 - 1


class Lookup:
    """Finds batches by offset and by time. Its segment owns it, and appends."""

    def __init__(
        self, batches: Batches, base_offset: int, offsets: OffsetIndex, times: TimeIndex
    ) -> None:
        self._batches, self._base_offset = batches, base_offset
        self._offsets, self._times = offsets, times
        self._bytes_since_entry = 0
        # The largest timestamp and the last offset of the batch that has it, once they are known.
        self._largest = None if batches.size_bytes else (NO_TIMESTAMP, base_offset)

    @property
    def offset_max(self) -> int:
        """The largest offset possible here: indexes have 32 bits for the distance."""
        return self._base_offset + RELATIVE_OFFSET_MAX

    @property
    def largest(self) -> tuple[int, int]:
        """The largest timestamp (-1 for none) and the last offset of the batch that has it."""
        if self._largest is None:
            self._largest = self._find_largest()
        return self._largest

    # --- looking up -----------------------------------------------------------------------

    def from_offset(self, offset: int, *, may_wait: bool = True) -> Iterator[Place]:
        """Walk the batches from the last indexed one that ends at or before an offset.

        Raises NotCached when it would have to wait for the disk and may not.
        """
        entries = self._offsets.entries
        if not may_wait and not entries.is_loaded:
            raise NotCached(entries.load)
        entry = self._offsets.at_or_before(offset)
        damage = self._offsets.entries.damage
        if damage is None:
            if entry is None:
                return self._batches.walk(0, may_wait=may_wait)
            places = self._batches.walk(entry[1], may_wait=may_wait)
            try:
                first = next(places, None)
            except CorruptFile:
                first = None
            # Kafka gave the batches of one request one entry: the position of the first, with
            # the offset of the last. All before that position is older all the same.
            if first is not None and first[2] <= entry[0]:
                return chain((first,), places)
            damage = self._offset_lie(entry[0])
        if not may_wait and self._batches.file.is_fixed:
            raise NotCached(partial(self.rebuild, damage))  # no append can come in between
        self.rebuild(damage)
        return self._batches.walk(self._offsets.lookup(offset))

    def from_timestamp(self, timestamp: int, start_offset: int) -> Iterator[Place]:
        """Walk the batches; all records before the first one are older, or before the offset."""
        self._load_times()
        older = self._times.before(timestamp)
        if older is not None and older[1] >= start_offset and not self._is_true(*older):
            older = self._times.before(timestamp)
        return self.from_offset(max(older[1] if older else self._base_offset, start_offset))

    def _find_largest(self) -> tuple[int, int]:
        # A sealed segment's last time index entry is its largest timestamp. An active segment has
        # grown since its last entry, by at most an index interval.
        self._load_times()
        found = self._times.last()
        if found is not None and not self._is_true(*found):
            found = self._times.last()
        largest = found or (NO_TIMESTAMP, self._base_offset)
        start = self._last_place() if found else 0
        for _, _, last_offset, max_timestamp in self._batches.walk_intact(start):
            if max_timestamp > largest[0]:
                largest = (max_timestamp, last_offset)
        return largest

    def next_offset(self) -> int:
        """Return the offset after the last intact batch, the base offset when there is none."""
        next_offset = self._base_offset
        for _, _, last_offset, _ in self._batches.walk_intact(self._last_place()):
            next_offset = last_offset + 1
        return next_offset

    def _last_place(self) -> int:
        """Return the position of the last indexed batch, 0 when there is none."""
        with contextlib.suppress(CorruptFile):
            for position, _, _, _ in self.from_offset(_BEYOND_ALL_OFFSETS):
                return position
        return 0

    def _is_true(self, timestamp: int, offset: int) -> bool:
        """Return whether the log confirms a time index entry; if not, rebuild the indexes."""
        with contextlib.suppress(CorruptFile):
            for _, _, last_offset, max_timestamp in self.from_offset(offset):
                if last_offset >= offset:
                    if max_timestamp == timestamp:
                        return True
                    break
        times, _ = self._times.entries.load()
        if timestamp in times:  # if not, the walk has rebuilt the indexes
            cause = f"no batch of largest timestamp {timestamp} is where the entry says"
            position = times.index(timestamp) * TIME_ENTRY.size
            self.rebuild(CorruptFile(self._times.entries.path, position, cause))
        return False

    # --- writing --------------------------------------------------------------------------

    def append(self, place: Place, interval_bytes: int) -> None:
        """Add a batch that was written, with an entry if the last one is an interval back.

        When a write fails only the files have changed, and undo() corrects them.
        """
        position, size, last_offset, max_timestamp = place
        largest = self._largest or self.largest
        if max_timestamp > largest[0]:
            largest = (max_timestamp, last_offset)
        since = self._bytes_since_entry
        if since > interval_bytes:
            self._offsets.append(last_offset, position)
            self._times.append(*largest)
            since = 0
        self._largest = largest
        self._bytes_since_entry = since + size

    def undo(self, last_offset: int) -> None:
        """Remove the entries of a batch whose append failed, as far as the disk allows."""
        with contextlib.suppress(DiskFailure):
            self._offsets.truncate(last_offset)
        with contextlib.suppress(DiskFailure):
            self._times.truncate(last_offset)

    def seal(self) -> None:
        """Write the last time index entry, and give both files their final size."""
        self._times.append(*self.largest)
        self._offsets.entries.trim()
        self._times.entries.trim()

    # --- checking and rebuilding ----------------------------------------------------------

    def check_tail(self) -> int:
        """Return the next offset.

        Raises CorruptFile unless the indexes are whole and the last batch ends the file.
        """
        for entries in (self._offsets.entries, self._times.entries):
            entries.load()
            if entries.damage is not None:
                raise entries.damage
        last = self._offsets.last()
        next_offset = self._base_offset
        for position, _, last_offset, _ in self._batches.walk(last[1] if last else 0):
            if last and position == last[1] and last_offset > last[0]:
                raise self._offset_lie(last[0])
            next_offset = last_offset + 1
        if last and next_offset <= last[0]:
            raise self._offset_lie(last[0])
        return next_offset

    def begin(self) -> None:
        """Clear both indexes, before every batch is noted again."""
        self._offsets.entries.begin()
        self._times.entries.begin()
        self._bytes_since_entry = 0
        self._largest = (NO_TIMESTAMP, self._base_offset)

    def note(self, place: Place, interval_bytes: int = _INTERVAL_BYTES) -> None:
        """Index a batch as append() does, but in memory only; batches come in order."""
        position, size, last_offset, max_timestamp = place
        largest = self.largest
        if max_timestamp > largest[0]:
            self._largest = largest = (max_timestamp, last_offset)
        if self._bytes_since_entry > interval_bytes:
            self._offsets.note(last_offset, position)
            self._times.note(*largest)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size

    def write(self) -> None:
        """Write both indexes, with the last entry of a sealed segment."""
        self._times.note(*self.largest)
        self._offsets.entries.write()
        self._times.entries.write()

    def rebuild(self, cause: CorruptFile) -> None:
        """Index the batches again, and log the cause; damaged parts are skipped."""
        logger.warning("rebuilt the indexes of a segment: %s", cause)
        self.begin()
        position, next_offset, end = 0, self._base_offset, self._batches.size_bytes
        while position < end:
            for place in self._batches.check(position, next_offset, self.offset_max):
                self.note(place)
                position, next_offset = place[0] + place[1], place[2] + 1
            if position < end:
                damage = CorruptFile(self._batches.path, position, "no intact batch")
                logger.error("found damage: %s", damage)
                position = self._batches.next_intact(position, next_offset, self.offset_max)
                self._bytes_since_entry = _INTERVAL_BYTES + 1  # an entry has to lead past it
        self._times.note(*self.largest)
        # Durably: past the recovery point, no recovery would rebuild indexes that a crash tears.
        self._offsets.entries.replace()
        self._times.entries.replace()

    def _load_times(self) -> None:
        self._times.entries.load()
        if self._times.entries.damage is not None:
            self.rebuild(self._times.entries.damage)

    def _offset_lie(self, offset: int) -> CorruptFile:
        """Return the error for an offset index entry that the log does not confirm."""
        at = self._offsets.entries.load()[0].index(offset - self._base_offset)
        cause = f"no batch that ends at offset {offset} is where the entry says"
        return CorruptFile(self._offsets.entries.path, at * OFFSET_ENTRY.size, cause)
