"""A transactional id as its shard has it: what counts, what is on its way, and who waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from broker.coordination.effects import Effect
from broker.transactions.state import PREPARED, Transaction, TransactionState
from protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that waits: how it is begun again, or told that it cannot be."""

    again: Callable[[int], list[Effect]]
    refuse: Callable[[ErrorCode], Effect]


@dataclass(slots=True)
class Entry:
    """A transactional id; owned by its shard."""

    value: Transaction
    # What has been decided and is on its way to the log, DEAD when that is a tombstone.
    pending: TransactionState | None = None
    # What the prepared transaction becomes when all partitions have the marker.
    completed: Transaction | None = None
    # Whether a partition could not be written to.
    is_stuck: bool = False
    # Who waits until it is no longer busy.
    waiting: deque[Waiting] = field(default_factory=deque)

    @property
    def is_busy(self) -> bool:
        """Whether what follows from something is about to be known."""
        return self.pending is not None or (self.value.state in PREPARED and not self.is_stuck)

    def wait(
        self, again: Callable[[int], list[Effect]], refuse: Callable[[ErrorCode], Effect]
    ) -> list[Effect]:
        """Keep a request until the id is no longer busy."""
        self.waiting.append(Waiting(again, refuse))
        return []

    def settle(self, now_ms: int) -> list[Effect]:
        """Let those go on who wait, as long as none makes it busy again."""
        effects: list[Effect] = []
        while self.waiting and not self.is_busy:
            effects += self.waiting.popleft().again(now_ms)
        return effects
