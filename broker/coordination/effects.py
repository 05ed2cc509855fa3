"""What a coordinator's state machine decides, as values for the runtime to carry out.

A decision never waits. What must be in the log before it is answered is asked for with
`Persist`: it names the records and a ticket, and when the log has them (or has failed), the
ticket comes back to the machine, which then decides what follows, the answer included.

    request -> machine -> [Persist(records, ticket)]     the log appends
    ticket  -> machine -> [Reply(token, response)]       the client is told

A machine that takes its records in before the log has them asks for `Reload` when the log
refuses them: it is thrown away, and made again of what the log has.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from storage.transactions import Marker

Token = object
"""Stands for one request that waits for its answer; the machine only hands it back."""

Describable = Callable[[Iterable[str]], Set[str]]
"""Picks of some topics those that a client may describe."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A request's token and what the machine must know of who sent it.

    `fresh_id` is unique, drawn by the coordinator: a new member's id is made of it.
    """

    token: Token
    api_version: int
    client_id: str = ""
    client_host: str = ""
    fresh_id: str = ""
    # Picks the topics that the sender may describe; None for all.
    describable: Describable | None = field(default=None, compare=False)


class Timer(NamedTuple):
    """A deadline of a group or transactional id, its owner; starting it again moves it."""

    owner: str
    kind: enum.Enum
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a request."""

    token: Token
    response: object


class Producer(NamedTuple):
    """Who a producer says that it is, or is told to be; -1 where there is none."""

    producer_id: int = -1
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class Persist:
    """Append records to the machine's partition, as one batch, and bring the ticket back.

    Those of a producer are part of its transaction.
    """

    records: tuple[object, ...]
    ticket: object
    producer: Producer | None = None


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """Append the marker that ends a producer's transaction, and bring the ticket back."""

    marker: Marker
    ticket: object


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Start a timer, or move it, to a time from now."""

    timer: Timer
    delay_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Stop a timer; one that does not run is left alone."""

    timer: Timer


@dataclass(frozen=True, slots=True)
class Note:
    """Something for the broker's log: one line, past tense, key=value."""

    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class Act:
    """Have the coordinator do something outside of its log, of which it tells the machine."""

    action: object


@dataclass(frozen=True, slots=True)
class Reload:
    """Replay the partition into a new machine: this one is ahead of its log."""


Effect = (
    Reply | Persist | EndTransaction | StartTimer | CancelTimer | Note | Act | Reload
)
