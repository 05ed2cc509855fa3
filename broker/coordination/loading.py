"""Replays what a partition of a coordinator's log has, when it is loaded."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from broker.coordination.machine import Codec, Machine
from broker.coordination.seams import InternalTopic, InTransaction, StoredBatch
from protocol.batches import NO_PRODUCER_ID
from protocol.errors import ProtocolError
from storage.transactions import Marker

logger = logging.getLogger(__name__)

# Records that are replayed before the loop runs others: about ten milliseconds of work.
_REPLAY_SLICE = 2_000


async def replay(
    what: str, log: InternalTopic, codec: Codec, partition: int, machine: Machine
) -> None:
    """Bring a machine to where its partition of the log ends, with pauses for others.

    A damaged record is skipped with a warning; one of a kind that belongs to other
    protocols is counted and left alone.
    """
    counts: Counter[str] = Counter()
    unpaused = 0
    for stored in log.replay(partition):
        if isinstance(stored, Marker):
            machine.replay(stored)
            continue
        _replay_batch(codec, partition, machine, stored, counts)
        unpaused += len(stored.records)
        if unpaused >= _REPLAY_SLICE:
            unpaused = 0
            await asyncio.sleep(0)
    if counts:
        told = " ".join(f"{name}={count}" for name, count in counts.items())
        logger.info("loaded %s partition=%d %s", what, partition, told)


def _replay_batch(
    codec: Codec, partition: int, machine: Machine, batch: StoredBatch, counts: Counter[str]
) -> None:
    records, at = batch.records, 0
    counts["records"] += len(records)
    shortcut = codec.replay if batch.producer_id == NO_PRODUCER_ID else None
    while at < len(records):
        if shortcut is not None:
            at = shortcut(machine, records, at)
            if at == len(records):
                return
        try:
            record = codec.decode(*records[at])
        except ProtocolError as error:
            counts["damaged"] += 1
            logger.warning("skipped damaged record partition=%d error=%s", partition, error)
        else:
            if record is None:
                counts["ignored"] += 1
            elif batch.producer_id == NO_PRODUCER_ID:
                machine.replay(record)
            else:
                machine.replay(InTransaction(batch.producer_id, record))
        at += 1
