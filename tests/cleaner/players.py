"""Plays the steps of random histories to Odradek's log and cleaner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from odradek.cleaner.passes.offset_map import SLOT_BYTES
from odradek.cleaner.rules.job import CleanerSettings
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.control import encode_end_txn_marker
from odradek.protocol.legacy import read_stored_header
from odradek.storage.transactions import AbortedTransaction
from tests.cleaner.once import SETTINGS
from tests.cleaner.random_histories import (
    EXPIRATION_MS,
    TRANSACTIONAL,
    Batch,
    Clean,
    Configure,
    End,
    Expire,
    LeaderChange,
    Old,
    Renew,
    Reopen,
    Roll,
    Step,
    Trim,
    Wait,
    Written,
)
from tests.cleaner.worlds import World
from tests.storage.old_logs import write

_LEADER_CHANGE_KEY = bytes((0, 0, 0, 2))


class Scribe:
    """Writes the steps of a history that change a log into a world, as a replica would."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._epochs: dict[int, int] = {}
        self._sequences: dict[int, int] = {}

    def encode(self, step: Written) -> bytes | None:
        """Return the batch that a step adds, None when there is nothing to end."""
        match step:
            case Batch():
                return self._batch(step)
            case End():
                return self._end(step)
            case Old():
                return self._old(step)
            case LeaderChange():
                offset = self.world.log.log_end_offset
                record = Record(offset, self.world.now_ms, _LEADER_CHANGE_KEY, b"of no interest")
                return encode_batch([record], base_offset=offset, control=True)

    def append(self, batch: bytes) -> None:
        """Append a batch as it is, and note what it means for producers and transactions."""
        header, log = read_stored_header(batch), self.world.log
        aborted: AbortedTransaction | None = None
        if header.producer_id >= 0:
            aborted = log.producers.replay(header, batch)
        log.active.append(
            (batch,),
            len(batch),
            header.last_offset,
            header.max_timestamp,
            log.config.index_interval_bytes,
            aborted,
        )
        log.log_end_offset = header.next_offset

    def renew(self, producer: int) -> None:
        """Raise a producer's epoch."""
        known = self.world.log.producers.get(producer)
        if known is None or known.transaction_first_offset < 0:
            self._epochs[producer] = self._epochs.get(producer, 0) + 1
            self._sequences[producer] = 0

    def _batch(self, step: Batch) -> bytes:
        world, producer = self.world, step.producer
        first = world.log.log_end_offset + step.gap
        stamps = [-1 if age_ms is None else world.now_ms - age_ms for age_ms in step.ages_ms]
        sequence = -1
        if producer is not None:
            sequence = self._sequences.get(producer, 0)
            self._sequences[producer] = sequence + len(step.pairs)
        return encode_batch(
            [
                Record(first + at, stamp, key, value, (("h", key),) * (at % 2))
                for at, ((key, value), stamp) in enumerate(zip(step.pairs, stamps, strict=True))
            ],
            base_offset=first,
            codec=step.codec,
            producer_id=-1 if producer is None else producer,
            producer_epoch=-1 if producer is None else self._epochs.get(producer, 0),
            base_sequence=sequence,
            transactional=producer in TRANSACTIONAL,
            log_append_time=step.log_append_time,
            max_timestamp=world.now_ms + 5 if step.log_append_time else None,
        )

    def _old(self, step: Old) -> bytes:
        now_ms, first = self.world.now_ms, self.world.log.log_end_offset
        append_time = now_ms + 5 if step.log_append_time and step.magic else None
        records = [
            Record(first + at, now_ms - 7 * at, key, value)
            for at, (key, value) in enumerate(step.pairs)
        ]
        return write(step.magic, step.codec, records, append_time).data

    def _end(self, step: End) -> bytes | None:
        known = self.world.log.producers.get(step.producer)
        is_open = known is not None and known.transaction_first_offset >= 0
        if not is_open and not step.is_repeated:
            return None
        if step.raises_epoch:
            self._epochs[step.producer] = self._epochs.get(step.producer, 0) + 1
            self._sequences[step.producer] = 0
        return encode_end_txn_marker(
            commit=step.commit,
            timestamp=self.world.now_ms,
            producer_id=step.producer,
            producer_epoch=self._epochs.get(step.producer, 0),
            coordinator_epoch=0,
            base_offset=self.world.log.log_end_offset,
        )


class Player:
    """Plays a history to Odradek's log and cleaner."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._scribe = Scribe(world)

    def play_all(self, steps: Sequence[Step]) -> None:
        """Carry out a whole history."""
        for step in steps:
            self.play(step)

    def play(self, step: Step) -> bytes | None:
        """Carry out one step; return the batch that it has appended, if any."""
        world, log = self.world, self.world.log
        match step:
            case Batch() | Old() | End() | LeaderChange():
                batch = self._scribe.encode(step)
                if batch is not None:
                    self._scribe.append(batch)
                return batch
            case Renew(producer):
                self._scribe.renew(producer)
            case Roll():
                world.roll()
            case Wait(ms):
                world.now_ms += ms
            case Configure(settings):
                log.config = replace(log.config, **settings)  # type: ignore[arg-type]
            case Reopen():
                world.reopen()
                self.play(Expire())  # which Kafka does when it loads a log, too
            case Expire():
                log.producers.expire(world.now_ms, EXPIRATION_MS)
            case Trim(part, deletes_segments):
                offset = int(log.log_end_offset * part)
                log.advance_start_offset(max(offset, log.log_start_offset))
                if deletes_segments:
                    ends = [segment.base_offset for segment in log.segments[1:]]
                    log.delete_segments(sum(e <= log.log_start_offset for e in ends), world.now_ms)
            case Clean():
                world.clean(settings_of(step))
        return None


def settings_of(step: Clean) -> CleanerSettings:
    """Return what a cleaning may use."""
    settings = replace(SETTINGS, chunk_bytes=step.chunk_bytes)
    if step.keys is None:
        return settings
    return replace(settings, map_bytes_max=2 * step.keys * SLOT_BYTES, map_load_factor=0.5)
