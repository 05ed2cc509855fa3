"""What a partition must and may hold after a crash: its ledger, kept beside the real log.

    flushed         a batch below `flushed_end` and past the log start is there, to the bit
    not flushed     the first batches of each segment may be there, in order
    cleaned         the log is as before a cleaning, or as after any of its groups; of a group's
                    last segments, of which nothing is left, the originals may come back (as in
                    Kafka, whose recovery goes by the next offset of what was swapped in)
    trimmed         what lies before the log start may be there or not, cleaned or as it was
    offsets         the log neither ends before `flushed_end`, nor starts before `start_min`,
                    which a checkpoint has noted, nor past `start_max`, which nobody asked for
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from odradek.config.topic import TopicConfig
from odradek.protocol.batches import read_header
from odradek.storage.errors import OutOfOrderSequence
from odradek.storage.log import Log
from odradek.storage.segment import Segment
from tests.storage.partition import StoredBatch, make_batch

Content = tuple[StoredBatch, ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch of an idempotent producer, as it would send it again."""

    producer_id: int
    sequence: int
    base_offset: int
    last_offset: int


@dataclass
class Ledger:
    """One partition's; moved on by the life that the partition is part of."""

    topic: str
    partition: int
    topic_id: bytes
    config: TopicConfig
    # What readers have found since the last step began: a crash may leave any of it.
    stages: list[Content] = field(default_factory=lambda: [()])
    trimmed: set[StoredBatch] = field(default_factory=set)
    # What cleanings were about to put into the log, of which something else may have come first.
    proposed: set[StoredBatch] = field(default_factory=set)
    # What a cleaning has dropped that the disk interrupted: the originals are still there.
    obsolete: set[StoredBatch] = field(default_factory=set)
    # What the disk refused to append: a crash may leave it, since its undoing is not durable.
    refused: set[StoredBatch] = field(default_factory=set)
    # Whether a cleaning was refused, and no directory was synced since: a crash may finish it.
    may_be_cleaned: bool = False
    sent: list[Sent] = field(default_factory=list)
    flushed_end: int = 0
    start_min: int = 0
    start_max: int = 0
    # Whether the partition's directory must be there after a crash, and whether it may be.
    must_exist: bool = False
    may_exist: bool = True
    _seen: Sequence[Segment] = ()
    _seen_end: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def is_trimmed(self) -> bool:
        """Whether records were deleted, before this step or in it."""
        before = {batch for stage in self.stages[:-1] for batch in stage}
        gone = before - set(self.stages[-1])
        return bool(self.trimmed) or any(one.last_offset < self.start_max for one in gone)

    def look(self, log: Log) -> None:
        """Note what is in the log now, as one more thing that a crash may leave."""
        self.start_max = max(self.start_max, log.log_start_offset)
        if self._seen is not log.segments or self._seen_end != log.log_end_offset:
            self._seen, self._seen_end = log.segments, log.log_end_offset
            now = content_of(log.segments)
            if now != self.stages[-1]:
                self.stages.append(now)

    def settle(self, log: Log) -> None:
        """End a step: from now on a crash leaves what is in the log, or less."""
        self.look(log)
        *before, now = self.stages
        self.trimmed |= {
            batch
            for batch in {one for stage in before for one in stage} - set(now)
            if batch.last_offset < log.log_start_offset
        }
        self.stages = [now]

    def check(self, log: Log, flushed_end: int, start_min: int) -> None:
        """Check what a crash within the last step has left of the log."""
        found = content_of(log.segments)
        for earlier, later in itertools.pairwise(found):
            assert earlier.last_offset < later.base_offset, f"{log}: out of order"
        assert log.log_end_offset >= flushed_end, f"{log}: offsets went back from {flushed_end}"
        assert start_min <= log.log_start_offset <= self.start_max, (
            f"{log}: starts outside [{start_min}, {self.start_max}]"
        )
        bases = {segment.base_offset for segment in log.segments}
        strange = self.refused.difference(*self.stages)  # a crash before may have kept some
        found = tuple(batch for batch in found if batch not in strange)
        if self.may_be_cleaned:
            return check_indexes(log)
        problems = [self._misfit(found, bases, at, flushed_end) for at in range(len(self.stages))]
        assert None in problems, f"{log}: {problems}"
        check_indexes(log)

    def _misfit(
        self, found: Content, bases: set[int], at: int, flushed_end: int
    ) -> str | None:
        there, stage = set(found), self.stages[at]
        back = there & self.obsolete.union(*self.stages[:at]) - set(stage)
        trimmed = {batch for batch in self.proposed if batch.last_offset < self.start_max}
        strange = there - set(stage) - self.trimmed - trimmed - back
        if strange:
            return f"unexpected batches at {offsets(strange)}"
        without = tuple(batch for batch in found if batch not in back)
        if latest_values(found, self.start_max) != latest_values(without, self.start_max):
            return f"obsolete values at {offsets(back)}"
        wanted = [batch for batch in stage if batch.last_offset >= self.start_max]
        lost = [b for b in wanted if b.last_offset < flushed_end and b not in there]
        if lost:
            return f"flushed and lost at {offsets(lost)}"
        for before, batch in itertools.pairwise(wanted):
            # Of two segments that were not flushed the second may come through alone.
            if batch in there and before not in there and batch.base_offset not in bases:
                return f"a hole before {batch.base_offset}"
        return None


def content_of(segments: Iterable[Segment]) -> Content:
    """Read all batches of segments, to the bit."""
    return tuple(
        StoredBatch(header.base_offset, header.last_offset, bytes(data))
        for segment in segments
        for _, header, data in segment.batches()
    )


def offsets(batches: Iterable[StoredBatch]) -> list[int]:
    """Return the base offsets of batches, growing."""
    return sorted(batch.base_offset for batch in batches)


def latest_values(content: Content, start: int) -> dict[bytes, bytes]:
    """Return what a reader of all the batches ends with, tombstones applied."""
    state: dict[bytes, bytes] = {}
    for batch in content:
        for record in batch.records:
            assert record.key is not None
            if record.value is None or record.offset < start:
                state.pop(record.key, None)
            else:
                state[record.key] = record.value
    return state


def check_indexes(log: Log) -> None:
    """Check that each index entry names a batch that is where, and as old as, it says."""
    for segment in log.segments:
        places: dict[int, tuple[int, int]] = {}
        largest = -1
        for position, header, _ in segment.batches():
            largest = max(largest, header.max_timestamp)
            places[header.last_offset] = position, largest
        base = segment.base_offset
        for index in (segment.offset_index, segment.time_index):
            index.entries.load()
            assert index.entries.damage is None, index.entries.damage
        for offset, position in zip(*segment.offset_index.entries.load(), strict=True):
            assert places[base + offset][0] == position, f"{segment}: offset index"
        for timestamp, offset in zip(*segment.time_index.entries.load(), strict=True):
            assert places[base + offset][1] == timestamp, f"{segment}: time index"


def check_producers(ledger: Ledger, log: Log, now_ms: int) -> None:
    """Check that no batch which the log has is taken again from its producer.

    The producer's last one is answered as the first time, an older one so or with an error.
    """
    end = log.log_end_offset
    there: dict[int, list[tuple[int, int]]] = {}
    for batch in content_of(log.segments):
        header = read_header(batch.data)
        if header.producer_id >= 0:
            there.setdefault(header.producer_id, []).append(
                (header.base_sequence, header.base_offset)
            )
    for producer_id, found in there.items():
        sent = [one for one in ledger.sent if one.producer_id == producer_id]
        for one in sent[-4:]:
            where = one.sequence, one.base_offset
            # What was deleted may be forgotten: without a snapshot producers are read from the
            # log start on, as Kafka does it.
            if where not in found or one.last_offset < log.log_start_offset:
                continue
            records = [(b"k", b"again")] * (one.last_offset - one.base_offset + 1)
            again = make_batch(records, now_ms, producer=(producer_id, 0, one.sequence))
            try:
                done = log.append(again, now_ms=now_ms)
            except OutOfOrderSequence:
                # A snapshot may tell of later ones, which were trimmed.
                state = log.producers.get(producer_id)
                is_last = state is not None and state.last_data_offset == one.last_offset
                assert not is_last, f"{log}: the last batch was refused: {one}"
                continue
            assert done.is_duplicate, f"{log}: taken twice: {one}"
            assert (done.base_offset, done.last_offset) == (one.base_offset, one.last_offset)
    assert log.log_end_offset == end
