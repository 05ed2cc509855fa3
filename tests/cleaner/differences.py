"""Where Odradek's cleaner leaves something else than Kafka's, on purpose: this may only shrink.

A test shows each of these, so that none stays here for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum

from odradek.protocol.batches import Record
from odradek.protocol.compression import Codec
from tests.cleaner.worlds import StoredBatch


class Deliberate(Enum):
    """A difference, and its reason."""

    SHARED_BATCHES = (
        "Kafka gives each message of an old format that was in no wrapper a batch of its own, "
        "43 bytes larger than it was. Here those that follow each other share one, and with it "
        "a delete horizon."
    )
    EDGES_OF_WRAPPERS = (
        "Kafka lets a batch that was a wrapper of an old format begin and end with what is left "
        "of it. Here it keeps the offsets that it had, as batches of the new format do."
    )
    ABORTED_BEFORE_THE_START = (
        "Kafka's cleaner does not know an aborted transaction that ended before the log start "
        "offset: it keeps its records, takes them for committed ones, and keeps the producer's "
        "next commit marker for as long as that segment is there. Here they go, as all aborted "
        "records do, and the marker after its delete horizon. No reader sees any of it."
    )
    ABORTED_BEFORE_A_ROUND = (
        "When the map was full, Kafka's next round knows all aborted transactions since the log "
        "start, but may begin to read behind their markers: then it takes what the producer "
        "commits there for aborted, leaves it out of the map, and obsolete records stay."
    )
    OLD_MESSAGE_AT_THE_END = (
        "Kafka gives a log up, as it cannot keep an empty batch of an old format, when the last "
        "message of the range is one that goes."
    )


_NO_LEADER_EPOCH = -1  # of what was converted from an old format
_REFUSAL = "Empty batches are only supported for magic v2"


def explain(
    ours: Sequence[StoredBatch], kafkas: Sequence[StoredBatch], *, aborted_before_start: bool
) -> tuple[list[object], list[object], Deliberate | None]:
    """Tell two logs' batches without what may differ, and what that was if they then agree."""
    one, other = ([_whole(batch) for batch in log] for log in (ours, kafkas))
    if one == other:
        return one, other, None
    if aborted_before_start:
        data = ([b for b in log if not b.header.is_control] for log in (ours, kafkas))
        one, other, deliberate = explain(*data, aborted_before_start=False)
        return one, other, deliberate or Deliberate.ABORTED_BEFORE_THE_START
    for deliberate in (Deliberate.SHARED_BATCHES, Deliberate.EDGES_OF_WRAPPERS):
        has_edges = deliberate == Deliberate.SHARED_BATCHES
        one, other = (list(_facts(log, has_edges=has_edges)) for log in (ours, kafkas))
        if one == other:
            return one, other, deliberate
    return one, other, None


def keeps_obsolete(ours: Sequence[Record], kafkas: Sequence[Record]) -> bool:
    """Return whether Kafka has only kept more, and of that nothing that is a key's latest."""
    latest = {record.key: record.offset for record in kafkas}
    more = set(kafkas) - set(ours)
    return set(ours) < set(kafkas) and all(latest[one.key] > one.offset for one in more)


def gives_up_old_message(failure: str) -> bool:
    """Return whether Kafka has failed for want of an empty batch of an old format."""
    return _REFUSAL in failure


def last_offset_seen(batch: StoredBatch) -> int:
    """Return up to where readers see a batch: EDGES_OF_WRAPPERS makes no difference to them."""
    header = batch.header
    if header.leader_epoch == _NO_LEADER_EPOCH and batch.records:
        return batch.records[-1].offset
    return header.last_offset


def _facts(batches: Sequence[StoredBatch], *, has_edges: bool) -> Iterator[object]:
    for batch in batches:
        facts, records = batch.facts, batch.records
        if facts.leader_epoch != _NO_LEADER_EPOCH:
            yield _whole(batch)
        elif facts.codec == Codec.NONE and not facts.is_log_append_time:
            for record in records:
                # A record without a value has the horizon of its batch, the others none.
                has_horizon = facts.has_delete_horizon and record.value is None
                yield record, facts.base_timestamp if has_horizon else None
        elif has_edges:
            yield _whole(batch)
        else:
            yield replace(facts, base_offset=0, last_offset_delta=0), records


def _whole(batch: StoredBatch) -> object:
    return batch.facts, batch.records
