"""Finds aborted transactions, and the markers whose transactions have no batch left.

Source: CleanedTransactionMetadata of Kafka 4.3.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from odradek.dataclass import dataclass
from odradek.protocol.control import ControlType
from odradek.storage.transactions import AbortedTransaction


@dataclass(frozen=True, slots=True)
class Met:
    """The transactions that go on after an offset, of which a batch is left before it.

    Committed ones are named by their producers, aborted ones also by their first offsets.
    """

    committed: frozenset[int] = frozenset()
    aborted: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class MetInPart:
    """The transactions of which a part of a log has batches, and the producers it has commits of.

    `committed` has those that go on after the part.
    """

    ended: frozenset[int]
    committed: frozenset[int]
    aborted: frozenset[tuple[int, int]]

    def after(self, before: Met) -> Met:
        """Return the transactions at the end of the part, by those at its begin."""
        committed = (before.committed - self.ended) | self.committed
        return Met(committed, before.aborted | self.aborted)


class CleanedTransactions:
    """The transactions that a cleaning finds on its way through a log, oldest batch first.

    One pass over the log owns it, across segments: they may end inside a transaction.
    """

    def __init__(self, before: Met | None = None) -> None:
        """`before` has those that the pass would have met before the place where it begins."""
        before = before or Met()
        self._coming: list[AbortedTransaction] = []
        # By producer: its aborted transaction, and whether a batch of it was found.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed = set(before.committed)
        self._ended: set[int] = set()
        self._met_aborted = set(before.aborted)
        # The aborted transactions whose markers were kept since the last take_kept().
        self._kept: list[AbortedTransaction] = []

    def add(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Note aborted transactions that overlap with the next segment."""
        for transaction in transactions:
            heapq.heappush(self._coming, transaction)

    def on_data(self, producer_id: int, last_offset: int, *, is_transactional: bool) -> bool:
        """Note a batch of records; return whether its transaction was aborted."""
        self._begin_up_to(last_offset)
        if not is_transactional:
            return False
        aborted = self._aborted.get(producer_id)
        if aborted is None:
            self._committed.add(producer_id)
            return False
        self._aborted[producer_id] = (aborted[0], True)
        self._met_aborted.add((producer_id, aborted[0].first_offset))
        return True

    def on_control(self, producer_id: int, last_offset: int, kind: ControlType | None) -> bool:
        """Note a control batch; return whether no batch of the transaction that it ends is left.

        `kind` is None for a batch whose record was removed.
        """
        self._begin_up_to(last_offset)
        if kind is None:
            return True
        if kind == ControlType.ABORT:
            aborted = self._aborted.pop(producer_id, None)
            if aborted is None or not aborted[1]:
                return True
            self._kept.append(aborted[0])
            return False
        if kind == ControlType.COMMIT:
            was_met = producer_id in self._committed
            self._committed.discard(producer_id)
            self._ended.add(producer_id)
            return not was_met
        return False

    def met(self) -> MetInPart:
        """Return the transactions of a part of a log, over which a pass has gone by itself."""
        return MetInPart(
            frozenset(self._ended), frozenset(self._committed), frozenset(self._met_aborted)
        )

    def take_kept(self) -> list[AbortedTransaction]:
        """Return the transactions for the next cleaned segment's index, and forget them."""
        kept, self._kept = self._kept, []
        return kept

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            transaction = heapq.heappop(self._coming)
            producer_id = transaction.producer_id
            was_met = (producer_id, transaction.first_offset) in self._met_aborted
            self._aborted.setdefault(producer_id, (transaction, was_met))
