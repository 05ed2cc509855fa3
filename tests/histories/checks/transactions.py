"""Records of transactions that readers got too early, in part, or though they were aborted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.histories.checks.final import Final, offset_of
from tests.histories.checks.problem import Problem
from tests.histories.history import Append, History, Outcome, Place


def find_aborted(history: History) -> Iterator[Problem]:
    """Find records that readers got of aborted transactions, or before their commit."""
    of = transactions_by_value(history)
    final = (one for reads in history.final_committed.values() for one in reads)
    for reads in (history.reads, final):
        for one in reads:
            append = of.get((one.place, one.value))
            if append is None or not one.is_committed:
                continue
            transaction = append.transaction
            assert transaction is not None
            if transaction.outcome is Outcome.UNDONE:
                said = "whose transaction was aborted"
                said = f"{one.reader} read {one.value} of {one.place}, {said}"
            elif transaction.commit_at is None or one.at < transaction.commit_at:
                said = f"{one.reader} read {one.value} of {one.place} before its commit"
            else:
                continue
            yield Problem("aborted", said, one.place, (one.offset,), (transaction, append, one))


def find_torn(history: History, final: Final) -> Iterator[Problem]:
    """Find transactions of which only a part is there."""
    parts: defaultdict[int, list[Append]] = defaultdict(list)
    for append in history.appends:
        is_done = append.outcome is Outcome.DONE and final.has_read(append.place)
        if append.transaction is not None and is_done:
            parts[id(append.transaction)].append(append)
    for appends in parts.values():
        transaction = appends[0].transaction
        assert transaction is not None
        values = [
            (one.place, value, offset_of(one, at))
            for one in appends
            for at, value in enumerate(one.values)
        ]
        missing = [one for one in values if not final.has_committed(*one[:2])]
        torn = [one for one in missing if not final.may_lack(*one)]
        if torn and len(missing) < len(values):
            name = f"transaction {transaction.number} of {transaction.producer}"
            said = f"{name}: {torn} of {len(values)} records are missing"
            offsets = tuple(one[2] for one in torn)
            yield Problem("atomic", said, torn[0][0], offsets, (transaction, *appends))


def transactions_by_value(history: History) -> dict[tuple[Place, str], Append]:
    """Return the appends of transactions by the partition and value of each record."""
    return {
        (one.place, value): one
        for one in history.appends
        if one.transaction is not None
        for value in one.values
    }
