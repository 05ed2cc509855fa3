"""Kafka's cleaning as a few lines of plain Python over lists: what the real one must equal.

It shares no code with cleaner/: no hash, no kernels, no truth table, no transaction state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from odradek.protocol.batches import DELETE_HORIZON_BIT, BatchHeader, Record
from odradek.storage.transactions import AbortedTransaction
from tests.cleaner.worlds import StoredBatch

_CODEC_AND_HORIZON = 0x47


@dataclass(frozen=True, slots=True)
class Range:
    """What is cleaned, in offsets: [first dirty, end); everything before the end is rewritten."""

    first_dirty: int
    end: int


def model_clean(
    batches: Sequence[StoredBatch],
    cleaned: Range,
    *,
    now_ms: int,
    delete_retention_ms: int,
    producers_last: Mapping[int, int],
    aborted: Sequence[AbortedTransaction],
    epochs_without_data: Mapping[int, int] | None = None,
) -> tuple[list[StoredBatch], list[AbortedTransaction]]:
    """Return the batches that survive, and the aborted transactions still worth knowing.

    `producers_last` are the last data offsets of the producers that are active, and
    `epochs_without_data` the epochs of those that have only markers left.
    """
    latest: dict[bytes, int] = {}
    for batch in batches:
        if batch.header.is_control or _aborted_by(batch, aborted):
            continue
        for record in batch.records:
            if record.key is not None and cleaned.first_dirty <= record.offset < cleaned.end:
                latest[record.key] = record.offset
    kept: list[StoredBatch] = []
    kept_aborted = [t for t in aborted if t.last_offset >= cleaned.end]
    met: dict[int, list[StoredBatch]] = {}  # batches of the producer's transaction, so far
    for batch in batches:
        header = batch.header
        if header.base_offset >= cleaned.end:
            kept.append(batch)
            continue
        horizon = header.base_timestamp if header.has_delete_horizon else None
        marks_empty = False
        if header.is_control and not _ends_transaction(batch):
            remaining = batch.records
        elif header.is_control:
            transaction = met.pop(header.producer_id, [])
            marks_empty = not transaction
            gone = not batch.records or (
                marks_empty and horizon is not None and horizon <= now_ms
            )
            remaining = () if gone else batch.records
            for one in aborted:
                if one.last_offset == header.base_offset and transaction:
                    kept_aborted.append(one)
        else:
            if header.is_transactional:
                met.setdefault(header.producer_id, []).append(batch)
            gone = _aborted_by(batch, aborted) is not None
            remaining = tuple(
                record
                for record in batch.records
                if not gone and _survives(record, latest, horizon, now_ms)
            )
        epoch = (epochs_without_data or {}).get(header.producer_id)
        must_stay = (
            producers_last.get(header.producer_id) == header.last_offset
            or (header.is_control and epoch == header.producer_epoch)
            or header.next_offset == cleaned.end
        )
        kept += _left_of(
            batch, remaining, must_stay, marks_empty, now_ms + delete_retention_ms
        )
    return kept, kept_aborted


def _ends_transaction(control: StoredBatch) -> bool:
    # The type is the second half of the key: 0 aborts, 1 commits.
    return not control.records or (control.records[0].key or b"")[2:4] in (b"\0\0", b"\0\1")


def _survives(
    record: Record, latest: Mapping[bytes, int], horizon: int | None, now_ms: int
) -> bool:
    if record.key is None or latest.get(record.key, -1) > record.offset:
        return False
    return record.value is not None or horizon is None or now_ms < horizon


def _left_of(
    batch: StoredBatch,
    remaining: tuple[Record, ...],
    must_stay: bool,
    marks_empty: bool,
    new_horizon: int,
) -> list[StoredBatch]:
    header = batch.header
    if not remaining:
        return [StoredBatch(_empty(header), ())] if must_stay else []
    tombstones = any(record.value is None for record in remaining)
    stamp = not header.has_delete_horizon and (tombstones or marks_empty)
    if len(remaining) == len(batch.records) and not stamp:
        return [batch]
    base = header.base_timestamp if header.has_delete_horizon else remaining[0].timestamp
    header = replace(
        header,
        count=len(remaining),
        base_timestamp=new_horizon if stamp else base,
        attributes=header.attributes | (DELETE_HORIZON_BIT if stamp else 0),
        max_timestamp=max(record.timestamp for record in remaining),
    )
    return [StoredBatch(header, remaining)]


def _empty(header: BatchHeader) -> BatchHeader:
    attributes = header.attributes & ~_CODEC_AND_HORIZON
    return replace(header, count=0, base_timestamp=-1, attributes=attributes)


def _aborted_by(
    batch: StoredBatch, aborted: Sequence[AbortedTransaction]
) -> AbortedTransaction | None:
    if not batch.header.is_transactional or batch.header.is_control:
        return None
    return next(
        (
            one
            for one in aborted
            if one.producer_id == batch.header.producer_id
            and one.first_offset <= batch.header.last_offset <= one.last_offset
        ),
        None,
    )
