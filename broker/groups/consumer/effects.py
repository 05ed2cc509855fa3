"""The deadlines and tickets of the machine of consumer groups."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import field

from odradek.broker.coordination.effects import Reply, StartTimer, Token
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode


class ConsumerTimer(enum.Enum):
    """The purpose of a deadline of a consumer group."""

    SESSION = "session"  # A member has sent no heartbeat.
    REBALANCE = "rebalance"  # A member has not given up its partitions.
    JOIN = "join"  # A classic member has not joined again.
    SYNC = "sync"  # A classic member has not asked for its assignment.
    EXPRESSIONS = "expressions"  # Regular expressions must be matched again.


@dataclass(frozen=True, slots=True)
class MatchExpressions:
    """Match the regular expressions of a group with topics, which may take long."""

    group_id: str
    expressions: tuple[str, ...]
    topics: tuple[str, ...]
    version: int  # the version of the metadata with these topics


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that waits for the log; `refuse` creates the answer after a failure."""

    token: Token
    response: object
    refuse: Callable[[ErrorCode], object]
    # Timers to start when the answer is sent.
    timers: tuple[StartTimer, ...] = ()


@dataclass(slots=True)
class ConsumerStored:
    """Records of consumer groups, already taken in, with the answers that wait for them.

    Later requests without records of their own wait here, too: their answers depend on these
    records.
    """

    answers: list[Answer] = field(default_factory=list)

    def replies(self, error: ErrorCode) -> list[Reply | StartTimer]:
        """Answer all requests, after the log has the records or has refused them."""
        effects: list[Reply | StartTimer] = []
        for one in self.answers:
            failed = error is not ErrorCode.NONE
            effects.append(Reply(one.token, one.refuse(error) if failed else one.response))
            if not failed:
                effects += one.timers
        return effects
