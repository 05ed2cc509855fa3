"""Checks a history of shared topics as Jepsen's Kafka workload does, in linear time.

It needs nothing but the history, so that real processes can be held against it, too.

    lost            an acknowledged record is not there in the end, and nothing has removed it
    twice           a record is there more than once, or nobody has sent it there
    order           records of a producer are in a partition in another order than sent
    offsets         a record is not at the offset that was answered
    unstable        a record that somebody has read was not committed: its offset has another
                    record for a later reader, or none
    aborted         a reader of committed records got an aborted one, or one before its commit
    atomic          a transaction is there in part
    start           records that were deleted are there again, or some are gone that nobody
                    has deleted

A record may be gone that is before the log start offset, or, in a compacted topic, before
another record of its key.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator

from tests.simulation.cluster.checker import (
    find_aborted,
    find_disorder,
    find_displaced,
    find_repeated,
    find_unsorted,
    transactions_by_value,
)
from tests.simulation.cluster.history import Append, History, Outcome, Place, Read, key_of


def check(history: History, compacted: Collection[str]) -> list[str]:
    """Return the problems of a history, a line each; `compacted` has the names of topics."""
    found = _Final(history, compacted)
    return list(history.troubles) + [
        f"{kind}: {problem}"
        for kind, problems in (
            ("lost", find_lost(history, found)),
            ("twice", find_repeated(history)),
            ("order", itertools.chain(find_disorder(history), find_unsorted(history))),
            ("offsets", find_displaced(history)),
            ("unstable", find_unstable(history, found, compacted)),
            ("aborted", find_aborted(history)),
            ("atomic", find_torn(history, found)),
            ("start", find_lowered(history)),
        )
        for problem in problems
    ]


class _Final:
    """What is there in the end, and what may be gone."""

    def __init__(self, history: History, compacted: Collection[str]) -> None:
        self._starts, self._compacted = history.final_starts, compacted
        self.all = _by_offset(history.final)
        self.committed = {
            place: {one.value for one in reads}
            for place, reads in history.final_committed.items()
        }
        # The offset of the last committed record of each key.
        self._last: dict[tuple[Place, bytes], int] = {}
        for place, reads in history.final_committed.items():
            for one in reads:
                self._last[place, key_of(one.value)] = one.offset

    def has(self, place: Place) -> bool:
        """Return whether a partition was read in the end."""
        return place in self.committed

    def may_lack(self, place: Place, value: str, offset: int) -> bool:
        """Return whether a committed record may be gone that was at an offset, -1 if unknown."""
        if 0 <= offset < self._starts[place] or (offset < 0 and self._starts[place]):
            return True
        last = self._last.get((place, key_of(value)), -1)
        return place[0] in self._compacted and last > offset


def find_lost(history: History, final: _Final) -> Iterator[str]:
    """Find acknowledged records that are gone."""
    for append in history.appends:
        of = append.transaction
        if append.outcome is not Outcome.DONE or (of and of.outcome is not Outcome.DONE):
            continue
        if not final.has(append.place):
            continue  # the run did not come to its end
        for at, value in enumerate(append.values):
            offset = append.offset + at if append.offset >= 0 else -1
            gone = value not in final.committed[append.place]
            if gone and not final.may_lack(append.place, value, offset):
                yield f"{value} in {append.place}, acknowledged at offset {offset}"


def find_unstable(
    history: History, final: _Final, compacted: Collection[str]
) -> Iterator[str]:
    """Find records that somebody has read, and that were not committed by then."""
    seen: dict[tuple[Place, int], Read] = {}
    transactions = transactions_by_value(history)
    for one in history.reads:
        known = seen.setdefault((one.place, one.offset), one)
        if known.value != one.value:
            yield (
                f"{one.place} at {one.offset}: {known.reader} read {known.value}, "
                f"{one.reader} read {one.value}"
            )
    for (place, offset), one in seen.items():
        if not final.has(place):
            continue
        now = final.all[place].get(offset)
        if now == one.value:
            continue
        may_be_aborted = (place, one.value) in transactions and not one.is_committed
        may_lack = final.may_lack(place, one.value, offset) or (
            may_be_aborted and place[0] in compacted
        )
        if now is not None or not may_lack:
            yield f"{place} at {offset}: {one.reader} read {one.value}, in the end it has {now}"


def find_torn(history: History, final: _Final) -> Iterator[str]:
    """Find transactions of which only a part is there."""
    parts: defaultdict[int, list[Append]] = defaultdict(list)
    for append in history.appends:
        is_done = append.outcome is Outcome.DONE and final.has(append.place)
        if append.transaction is not None and is_done:
            parts[id(append.transaction)].append(append)
    for appends in parts.values():
        values = [
            (one.place, value, one.offset + at if one.offset >= 0 else -1)
            for one in appends
            for at, value in enumerate(one.values)
        ]
        missing = [one for one in values if one[1] not in final.committed[one[0]]]
        torn = [one for one in missing if not final.may_lack(*one)]
        if torn and len(missing) < len(values):
            yield f"transaction {appends[0].transaction}: {torn} of {len(values)} are missing"


def find_lowered(history: History) -> Iterator[str]:
    """Find log start offsets that are lower in the end, or higher than anybody has asked for.

    A leader that fails before it has answered a deletion may take it back.
    """
    asked: defaultdict[Place, int] = defaultdict(int)
    for deletion in history.deletions:
        asked[deletion.place] = max(asked[deletion.place], deletion.offset)
    for one in history.starts:
        final = history.final_starts.get(one.place)
        if one.is_promise and final is not None and one.offset > final:
            yield f"{one.place} began at {one.offset}, in the end at {final}"
        if one.offset > asked[one.place]:
            yield f"{one.place} began at {one.offset}, asked for was {asked[one.place]}"
    for deletion in history.deletions:
        final = history.final_starts.get(deletion.place)
        if deletion.outcome is Outcome.DONE and final is not None and deletion.offset > final:
            yield f"{deletion.place} begins at {final}, deleted was up to {deletion.offset}"


def _by_offset(reads: dict[Place, list[Read]]) -> dict[Place, dict[int, str]]:
    return {
        place: {one.offset: one.value for one in some} for place, some in reads.items()
    }
