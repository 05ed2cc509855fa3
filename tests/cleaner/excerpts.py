"""Looks at a log that cut nothing, and what they find as records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from odradek.cleaner.proof.snapshot import take_snapshot
from odradek.cleaner.reading.excerpts import Bounds, Cut, Excerpt
from odradek.cleaner.reading.lookup import Latest, find_latest
from odradek.protocol.batches import Record
from odradek.protocol.records_plain import decode_headers
from tests.cleaner.worlds import World

WHOLE = Bounds(1 << 40, 1 << 40, 1 << 40, 1 << 40)


def record_of(one: Excerpt) -> Record:
    """Return the record of which nothing was left out."""
    assert one.headers_left_out == 0
    return Record(
        one.offset,
        one.timestamp,
        _whole(one.key),
        _whole(one.value),
        tuple(
            (key.data.decode("utf-8", "surrogateescape"), _whole(value))
            for key, value in one.headers
        ),
    )


def with_headers(record: Record) -> Record:
    """Return a record of a batch's, whose headers are as they lie there, with its headers."""
    if not record.headers:
        return record
    ((_, raw),) = record.headers
    assert raw is not None
    return replace(record, headers=decode_headers(raw, 0, len(raw)))


def latest_of(
    world: World,
    key: bytes,
    *,
    is_committed: bool = True,
    before_io: Callable[[int], None] = lambda size: None,
) -> Latest | None:
    """Find the latest record of a key."""
    return find_latest(
        take_snapshot(world.log),
        0,
        key,
        is_committed=is_committed,
        bounds=WHOLE,
        before_io=before_io,
        load_kernels=lambda: None,
    )


def _whole(one: Cut | None) -> bytes | None:
    if one is None:
        return None
    assert not one.is_cut
    return one.data
