"""Plays how a broker stores its shared partitions in the bucket: rows, uploads and merges.

The decisions are the broker's own: which logs are due, which active segments are sealed
(`broker/shared/tails.py`), and which segments become one (`cleaner/rules/merging.py`). All
partitions get the same bytes a second, and none is compacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import cast

from odradek.broker.shared.tails import (
    PACK_BYTES,
    PART_BYTES,
    SEGMENT_BYTES_MAX,
    StoringLimits,
    Tail,
    choose_due,
    is_due_to_seal,
)
from odradek.cleaner.rules.merging import MergeLimits, StoredSegment, choose_merge
from odradek.storage.index import OFFSET_ENTRY
from odradek.storage.log import Log

# So many partitions are played, each for as many of the others.
_PLAYED_MAX = 500
_PERIODS, _WARM_PERIODS = 60, 10
# The broker looks each second; long periods are played in so many steps.
_LOOK_S, _STEPS = 1.0, 30
_NO_LOG = cast(Log, None)  # choose_due() does not look at it
_INDEX_INTERVAL_BYTES = 4_096
_INDEX_BYTES_MAX = 10 << 20
_ROWS_MAX = 200  # the last ones, as in broker/shared/merging.py


@dataclass(frozen=True, slots=True)
class Storing:
    """A broker's work to store its partitions; rates are those of a second."""

    rows: float  # rows of segments that are written, those of merges too
    objects: float
    uploaded_bytes: float
    merged_bytes: float  # of them: read from the bucket, and uploaded again
    period_s: float  # between two times that a partition is stored
    unstored_bytes: float  # in the WAL alone, on the average before a round


class _Played:
    """The numbers of a log."""

    def __init__(self, number: int) -> None:
        self.tail = Tail((b"", number), _NO_LOG, 0, 0)
        self.active_bytes = self.open_bytes = 0.0
        self.sealed: list[StoredSegment] = []


class _Sums:
    """The work that was done since the begin of the measurement, by the partitions played."""

    def __init__(self) -> None:
        self.stored = self.rows = self.rounds = 0
        self.objects = self.uploaded_bytes = self.merged_bytes = self.unstored_bytes = 0.0


def play(
    partitions: int,
    in_bytes_s: float,
    limits: StoringLimits,
    others: int = 1,
    entries_s: float = 0.0,
) -> Storing:
    """Return the storing of a broker with so many partitions, which get `in_bytes_s` together.

    `others` are the brokers on other hosts, `entries_s` the entries that its WAL gets.
    """
    played = min(partitions, _PLAYED_MAX)
    weight = partitions / played
    rate = in_bytes_s / partitions
    limits = replace(limits, wal_bytes=int(limits.wal_bytes / weight))
    # Each round stores the oldest half of the bytes, so it is the third round that comes back.
    unstored_bytes = max(
        1.5 * limits.wal_bytes, min(limits.wal_bytes_max(others), played * PART_BYTES)
    )
    longest_s = unstored_bytes / (rate * played)
    if entries_s:
        longest_s = min(longest_s, limits.wal_entries / entries_s)
    period_s = min(longest_s, limits.wal_age_s)
    step_s = max(_LOOK_S, period_s / _STEPS)
    logs = [_Played(number) for number in range(played)]
    unstored: dict[int, _Played] = {}
    sums = _Sums()
    warm_s, end_s, now_s = _WARM_PERIODS * period_s, _PERIODS * period_s, 0.0
    while now_s < end_s:
        now_s += step_s
        if now_s >= warm_s > now_s - step_s:
            sums, warm_s = _Sums(), now_s
        entry = int(now_s * entries_s)
        for one in logs:
            if one.tail.key[1] not in unstored:
                one.tail.since_s, one.tail.since_entry = now_s, entry
                unstored[one.tail.key[1]] = one
            one.tail.size_bytes += int(rate * step_s)
            one.active_bytes += rate * step_s
        tails = [one.tail for one in unstored.values()]
        total_bytes = sum(tail.size_bytes for tail in tails)
        due = choose_due(tails, total_bytes, limits, others, now_s, entry)
        if due:
            sums.rounds += 1
            sums.unstored_bytes += total_bytes
        while due:
            stored_bytes = sum(tail.size_bytes for tail in due)
            _store_all([unstored.pop(tail.key[1]) for tail in due], now_s, weight, sums)
            if stored_bytes < limits.round_bytes:
                break
            total_bytes -= stored_bytes
            tails = [one.tail for one in unstored.values()]
            due = choose_due(tails, total_bytes, limits, others, now_s, entry)
    scale = weight / (end_s - warm_s)
    return Storing(
        sums.rows * scale,
        sums.objects * scale,
        sums.uploaded_bytes * scale,
        sums.merged_bytes * scale,
        (end_s - warm_s) * played / sums.stored,
        sums.unstored_bytes / sums.rounds * weight,
    )


def _store_all(due: Sequence[_Played], now_s: float, weight: float, sums: _Sums) -> None:
    """Store the logs of a round."""
    packed_bytes = 0.0
    for one in due:
        one.tail.size_bytes = 0
        size_bytes = one.active_bytes
        merged_bytes, merges = _store(one, now_s)
        if size_bytes < PACK_BYTES:
            packed_bytes += size_bytes
        sums.objects += merges + (size_bytes >= PACK_BYTES)
        sums.rows += 1 + merges
        sums.uploaded_bytes += size_bytes + merged_bytes
        sums.merged_bytes += merged_bytes
    sums.objects += ceil(packed_bytes * weight / PACK_BYTES) / weight
    sums.stored += len(due)


def _store(one: _Played, now_s: float) -> tuple[float, int]:
    """Upload a log's active segment; return the bytes and the number of merges after that."""
    if not is_due_to_seal(int(one.active_bytes), int(one.open_bytes)):
        one.open_bytes = one.active_bytes
        return 0.0, 0
    entries_bytes = int(one.active_bytes) // _INDEX_INTERVAL_BYTES * OFFSET_ENTRY.size
    now = int(now_s * 1_000)
    size_bytes = int(one.active_bytes)
    one.sealed.append(StoredSegment(now, now + 1, size_bytes, entries_bytes, 0, now, now))
    one.active_bytes = one.open_bytes = 0.0
    again_bytes, count = 0.0, 0
    limits = MergeLimits(SEGMENT_BYTES_MAX, _INDEX_BYTES_MAX, 1 << 60)
    while (chosen := choose_merge(one.sealed[-_ROWS_MAX:], limits)) is not None:
        begin = max(len(one.sealed) - _ROWS_MAX, 0)
        old = one.sealed[begin + chosen.start : begin + chosen.stop]
        made_bytes = sum(each.size_bytes for each in old)
        index_bytes = sum(each.index_bytes for each in old)
        made = replace(
            old[0],
            next_offset=old[-1].next_offset,
            size_bytes=made_bytes,
            index_bytes=index_bytes,
            max_timestamp=old[-1].max_timestamp,
        )
        one.sealed[begin + chosen.start : begin + chosen.stop] = [made]
        again_bytes += made_bytes
        count += 1
    return again_bytes, count
