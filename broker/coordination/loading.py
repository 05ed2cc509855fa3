"""Replays the records of a partition of a coordinator's log, when it is loaded."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from odradek.broker.coordination.machine import Codec, Machine
from odradek.broker.coordination.seams import InternalTopic, InTransaction, StoredBatch
from odradek.protocol.batches import NO_PRODUCER_ID
from odradek.protocol.errors import ProtocolError
from odradek.storage.transactions import Marker

logger = logging.getLogger(__name__)

# Records replayed before the event loop runs other tasks: about ten milliseconds of work.
_REPLAY_SLICE = 2_000
# The first damaged records of a partition get a line each in the log; the others are counted.
_LOGGED_MAX = 10


async def replay(
    what: str, log: InternalTopic, codec: Codec, partition: int, machine: Machine
) -> None:
    """Replay a partition of the log into a machine, with pauses for other tasks.

    A record that cannot be read, or that the machine cannot take in, is left out with a warning:
    clients with write access may write anything, and one bad record must not cost the others.
    (Kafka gives up the whole partition.) Records of kinds that are not kept are counted.
    """
    loading = _Loading(what, codec, partition, machine)
    unpaused = 0
    for stored in log.replay(partition):
        if isinstance(stored, Marker):
            loading.take_in(stored)
            continue
        loading.take_in_batch(stored)
        unpaused += len(stored.records) + stored.passed_over
        if unpaused >= _REPLAY_SLICE:
            unpaused = 0
            await asyncio.sleep(0)
    loading.report()


class _Loading:
    """One partition's records on their way into its machine, counted."""

    def __init__(self, what: str, codec: Codec, partition: int, machine: Machine) -> None:
        self._what, self._codec, self._partition = what, codec, partition
        self._machine = machine
        self._counts: Counter[str] = Counter()

    def take_in_batch(self, batch: StoredBatch) -> None:
        records, at = batch.records, 0
        self._counts["records"] += len(records)
        is_plain = batch.producer_id == NO_PRODUCER_ID
        shortcut = self._codec.replay if is_plain else None
        while at < len(records):
            if shortcut is not None:
                at = shortcut(self._machine, records, at)
                if at == len(records):
                    return
            try:
                record = self._codec.decode(*records[at])
            except ProtocolError as error:
                self._leave_out(error)
            else:
                if record is None:
                    self._counts["ignored"] += 1
                else:
                    self.take_in(
                        record if is_plain else InTransaction(batch.producer_id, record)
                    )
            at += 1

    def take_in(self, record: object) -> None:
        try:
            self._machine.replay(record)
        except Exception as error:  # Any client with write access may have written the record.
            self._leave_out(error)

    def report(self) -> None:
        if not self._counts:
            return
        counts = " ".join(f"{name}={count}" for name, count in self._counts.items())
        logger.info("loaded %s partition=%d %s", self._what, self._partition, counts)
        more = self._counts["damaged"] - _LOGGED_MAX
        if more > 0:
            logger.warning("skipped %d more damaged records partition=%d", more, self._partition)

    def _leave_out(self, error: Exception) -> None:
        self._counts["damaged"] += 1
        if self._counts["damaged"] <= _LOGGED_MAX:
            logger.warning(
                "skipped damaged record of %s partition=%d error=%s: %.200s",
                self._what, self._partition, type(error).__name__, error,
                exc_info=None if isinstance(error, ProtocolError) else error,
            )  # fmt: skip
