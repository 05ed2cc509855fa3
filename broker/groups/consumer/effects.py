"""What the machine of consumer groups waits for: its deadlines, and the log."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from broker.coordination.effects import Reply, StartTimer, Token
from protocol.errors import ErrorCode


class ConsumerTimer(enum.Enum):
    """What a deadline of a consumer group is for."""

    SESSION = "session"  # a member has sent no heartbeat
    REBALANCE = "rebalance"  # a member has not given up its partitions
    JOIN = "join"  # a classic member has not joined again
    SYNC = "sync"  # a classic member has not asked for its assignment
    EXPRESSIONS = "expressions"  # regular expressions are to be matched again


@dataclass(frozen=True, slots=True)
class MatchExpressions:
    """Match the regular expressions of a group with topics, which may take long."""

    group_id: str
    expressions: tuple[str, ...]
    topics: tuple[str, ...]
    version: int  # of the metadata that has these topics


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that waits for the log; `refuse` makes the one for when the log fails."""

    token: Token
    response: object
    refuse: Callable[[ErrorCode], object]
    # Timers that run from when the answer is given.
    timers: tuple[StartTimer, ...] = ()


@dataclass(slots=True)
class ConsumerStored:
    """Records of consumer groups, already taken in, with what is to be answered after them.

    Later requests that need no records of their own wait here too: what they are told must
    not be lost either.
    """

    answers: list[Answer] = field(default_factory=list)

    def replies(self, error: ErrorCode) -> list[Reply | StartTimer]:
        """Answer all, now that the log has the records or has refused them."""
        effects: list[Reply | StartTimer] = []
        for one in self.answers:
            failed = error is not ErrorCode.NONE
            effects.append(Reply(one.token, one.refuse(error) if failed else one.response))
            if not failed:
                effects += one.timers
        return effects
