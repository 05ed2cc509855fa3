"""The decisions of a coordinator's state machine, as values for the runtime to carry out.

A decision never waits. `Persist` asks for records that must be in the log before the answer: it
names the records and a ticket. When the log has the records (or has failed), the runtime returns
the ticket to the machine, which then decides the next steps, the answer included.

    request -> machine -> [Persist(records, ticket)]     the log appends
    ticket  -> machine -> [Reply(token, response)]       the client gets its answer

A machine that takes its records in before the log has them asks for `Reload` when the log
refuses them: the runtime discards the machine and builds another from the log.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Set
from dataclasses import field
from typing import NamedTuple

from odradek.dataclass import dataclass
from odradek.storage.transactions import Marker

Token = object
"""Identifies a request that waits for its answer; the machine only returns it."""

Describable = Callable[[Iterable[str]], Set[str]]
"""Picks, of some topics, the ones that a client may describe."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A request's token, and the facts about its sender that the machine needs.

    The coordinator draws `fresh_id`, which is unique: a new member's id is derived from it.
    """

    token: Token
    api_version: int
    client_id: str = ""
    client_host: str = ""
    fresh_id: str = ""
    # Picks the topics that the sender may describe; None means all topics.
    describable: Describable | None = field(default=None, compare=False)


class Purpose(enum.Enum):
    """The purpose of a deadline."""

    __hash__ = object.__hash__  # Python's own reads the name, for each look at a deadline


class Timer(NamedTuple):
    """A deadline of its owner, a group or transactional id; starting it again moves it."""

    owner: str
    kind: Purpose
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a request."""

    token: Token
    response: object


class Producer(NamedTuple):
    """The id and epoch that a producer sends, or is assigned; -1 for none."""

    producer_id: int = -1
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class Persist:
    """Append records to the machine's partition as one batch, then return the ticket.

    With a producer the records are part of its transaction.
    """

    records: tuple[object, ...]
    ticket: object
    producer: Producer | None = None
    # Whether anyone waits for them; else the ticket may return before they are on the disk.
    is_awaited: bool = True


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """Append the marker that ends a producer's transaction, then return the ticket."""

    marker: Marker
    ticket: object


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Start or move a timer; it fires after a delay from now."""

    timer: Timer
    delay_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Stop a timer, if it runs."""

    timer: Timer


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the broker's log, in the past tense, with key=value."""

    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class Act:
    """Ask the coordinator for an action outside its log; it reports the outcome to the machine."""

    action: object


@dataclass(frozen=True, slots=True)
class Reload:
    """Replay the partition into a new machine, because this machine is ahead of its log."""


Effect = (
    Reply | Persist | EndTransaction | StartTimer | CancelTimer | Note | Act | Reload
)
