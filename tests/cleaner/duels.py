"""A history played twice, to Odradek's log and cleaner and to Apache Kafka's, and compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from odradek.cleaner.rules.policy import Reason, reason_to_clean
from odradek.cleaner.runtime.progress import find_candidate
from odradek.protocol.batches import Record
from odradek.storage.segment import LOG
from tests.cleaner.differences import (
    Deliberate,
    explain,
    gives_up_old_message,
    keeps_obsolete,
    last_offset_seen,
)
from tests.cleaner.kafka_cleaner import (
    KafkaCleaner,
    KafkaFailed,
    KafkaLog,
    aborted_in,
    batches_in,
)
from tests.cleaner.players import Player, settings_of
from tests.cleaner.random_histories import (
    Clean,
    Configure,
    End,
    Expire,
    Reopen,
    Roll,
    Step,
    Trim,
)
from tests.cleaner.test_clean_model import new_world
from tests.cleaner.worlds import FS, StoredBatch, World


@dataclass(frozen=True, slots=True)
class Difference:
    """What Odradek has made of a log, and what Kafka has."""

    step: int
    of: str
    ours: Any
    kafkas: Any


class Duel:
    """One history, and how far it is; ends with the first difference."""

    def __init__(self, world: World, kafka: KafkaLog) -> None:
        self.world, self.kafka = world, kafka
        self._player = Player(world)
        # Runs that end before the range does need more passes for what goes in several of them.
        self.in_passes = False
        self.aborted_before_start = False
        self._has_aborted = False
        self.cleanings = 0
        self.seen: set[Deliberate] = set()

    def play(self, steps: Sequence[Step]) -> Difference | None:
        """Carry out all steps, and compare after each cleaning."""
        for at, step in enumerate(steps):
            if isinstance(step, Clean):
                try:
                    found = self._clean(step)
                except KafkaFailed as failure:
                    if not gives_up_old_message(str(failure)):
                        raise
                    self.seen.add(Deliberate.OLD_MESSAGE_AT_THE_END)
                    return None
                if found is not None:
                    return Difference(at, *found)
                if Deliberate.ABORTED_BEFORE_A_ROUND in self.seen:
                    return None  # from now on the logs are different ones
            else:
                self._carry_out(step)
        return None

    def _carry_out(self, step: Step) -> None:
        world, kafka = self.world, self.kafka
        if isinstance(step, Trim):
            # Both delete the same: which segments were merged is not what is compared.
            ours = [segment.base_offset for segment in world.log.segments]
            is_same = not self.in_passes and ours == kafka.segment_offsets()
            step = replace(step, deletes_segments=step.deletes_segments and is_same)
        can_roll = world.log.active.size_bytes > 0
        batch = self._player.play(step)
        if batch is not None:
            kafka.append(batch)
        match step:
            case Roll() if can_roll:
                kafka.roll()
            case End(_, commit=False):
                self._has_aborted = True
            case Configure():
                kafka.config = world.log.config
            case Reopen():
                kafka.reopen(world.now_ms, world.log.log_start_offset)
                kafka.expire(world.now_ms)
            case Expire():
                kafka.expire(world.now_ms)
            case Trim(_, deletes_segments):
                gone = (t.last_offset for t in aborted_in(world.log.directory))
                self.aborted_before_start |= any(o < world.log.log_start_offset for o in gone)
                kafka.trim(world.log.log_start_offset, deletes_segments=deletes_segments)

    def _clean(self, step: Clean) -> tuple[str, Any, Any] | None:
        world = self.world
        for directory in (world.log.directory, self.kafka.directory):
            for log_file in directory.glob(f"*{LOG}"):
                FS.set_modified_ms(log_file, world.now_ms)
        kafkas = self.kafka.clean(world.now_ms, step.keys, step.chunk_bytes)
        candidate = find_candidate(world.log, world.directory, world.now_ms)
        reason = reason_to_clean(candidate.facts, candidate.dirty) if candidate else None
        if reason is None or reason == Reason.EXPIRED:  # for which Kafka cleans nothing
            return None if kafkas is None else ("choice", reason, kafkas)
        ours = world.clean(settings_of(step))
        if ours is None or kafkas is None:
            return "choice", ours, kafkas
        first_dirty = ours.first_dirty_offset
        while ours is not None and ours.is_partial:
            self.in_passes = True
            ours = world.clean(settings_of(step))
        self.in_passes = self.in_passes or kafkas.rounds > 1
        if ours is None:
            return "choice", ours, kafkas
        self.cleanings += 1
        range_ = first_dirty, ours.first_uncleanable_offset, ours.end_offset
        kafkas_range = (
            kafkas.first_dirty_offset, kafkas.first_uncleanable_offset, kafkas.end_offset
        )  # fmt: skip
        if range_ != kafkas_range:
            return "range", range_, kafkas_range
        return self._compare()

    def _compare(self) -> tuple[str, Any, Any] | None:
        start = self.world.log.log_start_offset
        directories = self.world.log.directory, self.kafka.directory
        ours, kafkas = (
            [b for b in batches_in(directory) if last_offset_seen(b) >= start]
            for directory in directories
        )
        if self.in_passes:
            records = _records(ours), _records(kafkas)
            if self._has_aborted and keeps_obsolete(*records):
                self.seen.add(Deliberate.ABORTED_BEFORE_A_ROUND)
                return None
            return _first_of("record", *records)
        *differing, deliberate = explain(
            ours, kafkas, aborted_before_start=self.aborted_before_start
        )
        found = _first_of("batch", *differing)
        if found is not None:
            return found
        if deliberate is not None:
            self.seen.add(deliberate)
        aborted = (
            [one for one in aborted_in(directory) if one.last_offset >= start]
            for directory in directories
        )
        return _first_of("aborted transaction", *aborted)


@dataclass(slots=True)
class Outcome:
    """What many histories have shown."""

    cleanings: int = 0
    in_passes: int = 0  # histories in which a map was full before the end
    seen: set[Deliberate] = field(default_factory=set)


def duel(oracle: KafkaCleaner, steps: Sequence[Step], outcome: Outcome) -> Difference | None:
    """Play a history; return the first difference, if any."""
    with new_world() as world:
        kafka = oracle.open(world.log.config, world.now_ms)
        try:
            playing = Duel(world, kafka)
            found = playing.play(steps)
            outcome.cleanings += playing.cleanings
            outcome.in_passes += playing.in_passes
            outcome.seen |= playing.seen
            return found
        finally:
            kafka.close()


def _records(batches: Sequence[StoredBatch]) -> list[Record]:
    return [r for b in batches if not b.header.is_control for r in b.records]


def _first_of(of: str, ours: list[Any], kafkas: list[Any]) -> tuple[str, Any, Any] | None:
    """Return the first place where two lists differ."""
    if ours == kafkas:
        return None
    for one, other in zip(ours, kafkas, strict=False):
        if one != other:
            return of, one, other
    at = min(len(ours), len(kafkas))
    return of, ours[at:], kafkas[at:]
