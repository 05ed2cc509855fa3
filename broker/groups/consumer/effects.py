"""The deadlines and actions of the machine of consumer groups."""

from __future__ import annotations

from odradek.broker.coordination.effects import Purpose
from odradek.dataclass import dataclass


class ConsumerTimer(Purpose):
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
