"""An action in two steps: first its plan, in sentences; then it is carried out.

    POST /api/topics/create {"topic": "prices", "partitions": 2, "dry_run": true}
    -> {"dry_run": true, "will": ["Create topic prices with 2 partitions."], "warnings": [],
        "rows": []}
    POST /api/topics/create {"topic": "prices", "partitions": 2}
    -> {"dry_run": false, "done": ["Topic prices was created with 2 partitions."]}

An action whose plan shows that it cannot be carried out is refused in either step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from odradek.broker.web.console.actor import Actor
from odradek.broker.web.console.body import Body
from odradek.dataclass import dataclass

Row = Mapping[str, object]

DRY_RUN = "dry_run"


@dataclass(frozen=True, slots=True)
class Plan:
    """The effects of an action, in sentences and rows, and the function that carries it out."""

    will: Sequence[str]
    # Returns sentences about the effects.
    carry_out: Callable[[], Awaitable[Sequence[str]]]
    warnings: Sequence[str] = ()
    rows: Sequence[Row] = ()


@dataclass(frozen=True, slots=True)
class Action:
    """An action, the members of its request, and the last part of its path."""

    name: str
    members: Sequence[str]
    plan: Callable[[Actor, Body], Awaitable[Plan]]
    body_bytes_max: int = 64 << 10
