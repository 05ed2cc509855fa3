"""Finds aborted transactions, and the markers whose transactions have no batch left.

Source: CleanedTransactionMetadata of Kafka 4.3.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from odradek.protocol.control import ControlType
from odradek.storage.transactions import AbortedTransaction


class CleanedTransactions:
    """The transactions that a cleaning finds on its way through a log, oldest batch first.

    One pass over the log owns it, across segments: they may end inside a transaction.
    """

    def __init__(self) -> None:
        self._coming: list[AbortedTransaction] = []
        # By producer: its aborted transaction, and whether a batch of it was found.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()
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
            return not was_met
        return False

    def take_kept(self) -> list[AbortedTransaction]:
        """Return the transactions for the next cleaned segment's index, and forget them."""
        kept, self._kept = self._kept, []
        return kept

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            transaction = heapq.heappop(self._coming)
            self._aborted.setdefault(transaction.producer_id, (transaction, False))
