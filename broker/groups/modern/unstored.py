"""Records of groups on their way to the log, and the answers that wait for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from odradek.broker.coordination.effects import (
    Effect,
    Persist,
    Reload,
    Reply,
    StartTimer,
    Token,
)
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that waits for the log; `refuse` creates the answer after a failure."""

    token: Token
    response: object
    refuse: Callable[[ErrorCode], object]
    # Timers to start when the answer is sent.
    timers: tuple[StartTimer, ...] = ()

    def after(self, error: ErrorCode) -> Sequence[Effect]:
        """Answer after the log has the records (NONE), or has refused them."""
        if error is not ErrorCode.NONE:
            return [Reply(self.token, self.refuse(error))]
        return [Reply(self.token, self.response), *self.timers]


@dataclass(slots=True)
class Stored:
    """Records, already taken in, with the answers that wait for them.

    Later requests without records of their own wait here, too: their answers depend on these
    records.
    """

    unstored: Unstored
    answers: list[Answer] = field(default_factory=list)


class Unstored:
    """The tickets of one kind of groups in a partition, in the order of the log."""

    __slots__ = ("_tickets",)

    def __init__(self) -> None:
        self._tickets: deque[Stored] = deque()

    def finish(self, records: Iterable[object], answers: Iterable[Answer]) -> list[Effect]:
        """End an operation: store its records, already taken in, and answer after them."""
        persisted = tuple(records)
        if persisted:
            ticket = Stored(self, [*answers])
            self._tickets.append(ticket)
            return [Persist(persisted, ticket)]
        if self._tickets:
            self._tickets[-1].answers += answers
            return []
        return [effect for one in answers for effect in one.after(ErrorCode.NONE)]

    def stored(self, ticket: Stored, error: ErrorCode) -> list[Effect]:
        """Answer the requests that have waited for records which the log has, or has refused."""
        assert self._tickets.popleft() is ticket, "the log answers in its order"
        effects = [effect for one in ticket.answers for effect in one.after(error)]
        if error is not ErrorCode.NONE:
            effects.append(Reload())
        return effects
