"""A transactional id in its shard: its stored value, its pending change, its waiting requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import field

from odradek.broker.coordination.effects import Effect
from odradek.broker.transactions.state import PREPARED, Transaction, TransactionState
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Waiting:
    """A waiting request: `again` begins it again, `refuse` answers it with an error."""

    again: Callable[[int], list[Effect]]
    refuse: Callable[[ErrorCode], Effect]


@dataclass(slots=True)
class Entry:
    """A transactional id; owned by its shard."""

    value: Transaction
    # The state that has been decided and is on its way to the log, DEAD for a tombstone.
    pending: TransactionState | None = None
    # The value of the prepared transaction after all partitions have the marker.
    completed: Transaction | None = None
    # Whether a partition could not be written to.
    is_stuck: bool = False
    # Requests that wait until the id is no longer busy.
    waiting: deque[Waiting] = field(default_factory=deque)

    @property
    def is_busy(self) -> bool:
        """Whether a change of the id is on its way to the log or to partitions."""
        return self.pending is not None or (self.value.state in PREPARED and not self.is_stuck)

    def wait(
        self, again: Callable[[int], list[Effect]], refuse: Callable[[ErrorCode], Effect]
    ) -> list[Effect]:
        """Keep a request until the id is no longer busy."""
        self.waiting.append(Waiting(again, refuse))
        return []

    def settle(self, now_ms: int) -> list[Effect]:
        """Begin waiting requests again, until one of them makes the id busy."""
        effects: list[Effect] = []
        while self.waiting and not self.is_busy:
            effects += self.waiting.popleft().again(now_ms)
        return effects
