"""Passes that Odradek's cleaner does not have, played for their costs.

A partial pass drops the records of the dirty section that later ones of the same dirty
segments make obsolete. Older values may remain below, so it neither stamps nor removes tombstones,
and the cleaner's checkpoint stays. A full pass follows as the dirty ratio asks; the ratio counts
the bytes that partial passes leave.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from bench.year_model import NEVER, ModelLog, OwnModel, SealedSegment, joined
from odradek.broker.shared.tails import SEGMENT_BYTES_MAX
from odradek.cleaner.rules.policy import (
    DirtyRange,
    dirty_range,
)


class Complete(OwnModel):
    """Odradek's cleaner without odradek.cleaner.dirty.alone."""

    may_clean_alone = False


class PartialPasses(Complete):
    """A cleaner that has partial passes as well; a subclass decides when."""

    def __init__(self, log: ModelLog) -> None:
        super().__init__(log)
        self.partial_runs = 0

    def _merge(self, segments: Sequence[SealedSegment]) -> None:
        """Replace dirty segments by their latest records, as few segments as possible."""
        log = self.log
        at = log.segments.index(segments[0])
        made: list[SealedSegment] = []
        group: list[SealedSegment] = []
        for segment in segments:
            self.work.read_bytes += 2 * segment.size_bytes
            size_bytes = sum(one.size_bytes for one in (*group, segment))
            if group and size_bytes > log.config.segment_bytes:
                made.append(self._merged(group))
                group = []
            group.append(segment)
        made.append(self._merged(group))
        log.segments[at : at + len(segments)] = made
        self.partial_runs += 1

    def _merged(self, group: Sequence[SealedSegment]) -> SealedSegment:
        kept = joined([self._latest_of(one) for one in group])
        if len(group) == 1 and len(kept.offsets) == len(group[0].records.offsets):
            return group[0]
        return self._written(group, kept)

    def _note(self, segments: Sequence[SealedSegment]) -> None:
        for one in segments:
            self._latest[one.records.keys] = one.records.offsets

    def _forget(self, segments: Sequence[SealedSegment]) -> None:
        for one in segments:
            self._latest[one.records.keys] = NEVER

    def _dirty(self, dirty: DirtyRange) -> list[SealedSegment]:
        first, end = dirty.first_dirty_offset, dirty.first_uncleanable_offset
        return [one for one in self.log.segments if first <= one.base_offset < end]


class Tiers(PartialPasses):
    """Merge the last four dirty segments when their sizes lie within the same factor of four."""

    count: ClassVar[int] = 4

    def due_ms(self, now_ms: int) -> int | None:
        """Return when there is a reason to clean, or to merge."""
        return now_ms if self._similar(now_ms) else super().due_ms(now_ms)

    def run(self, now_ms: int) -> None:
        """Merge, or clean."""
        similar = self._similar(now_ms)
        if not similar:
            super().run(now_ms)
            return
        self._note(similar)
        self._merge(similar)
        self._forget(similar)

    def _similar(self, now_ms: int) -> list[SealedSegment]:
        dirty = dirty_range(self.log.facts(), self.log.checkpoint, now_ms)
        last = self._dirty(dirty)[-self.count :]
        classes = {int(math.log(max(one.size_bytes, 1), self.count)) for one in last}
        return last if len(last) == self.count and len(classes) == 1 else []


class LargerRuns(Complete):
    """Wait until 64 MiB are dirty, or the first of it is as old as segment.ms."""

    def due_ms(self, now_ms: int) -> int | None:
        """Return when there is a reason to clean, and enough work."""
        due = super().due_ms(now_ms)
        return due if due is None or due > now_ms or self._is_enough(now_ms) else None

    def _is_enough(self, now_ms: int) -> bool:
        dirty = dirty_range(self.log.facts(), self.log.checkpoint, now_ms)
        if dirty.cleanable_bytes >= SEGMENT_BYTES_MAX:
            return True
        first = next(s for s in self.log.segments if s.base_offset >= dirty.first_dirty_offset)
        return now_ms - (first.facts.first_timestamp or 0) >= self.log.config.segment_ms
