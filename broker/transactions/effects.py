"""What the machine of transactions asks of its coordinator besides the log, and is told then."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from broker.coordination.effects import Token
from broker.transactions.state import NO_EPOCH, NO_PRODUCER, Partitions, Transaction
from protocol.errors import ErrorCode


class TimerKind(enum.Enum):
    """What a deadline of a transactional id is for."""

    MARKERS = "markers"  # try again to write those that could not be written


class Granted(NamedTuple):
    """The answer to who asked for a producer id or for the end of a transaction."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Write the marker of a prepared transaction to partitions, and tell `marked`."""

    transactional_id: str
    prepared: Transaction
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Moved:
    """A transactional id's next state is in the log, or is not to be.

    `answer` is what the token is resolved with then: None when nobody asked.
    """

    transactional_id: str
    value: Transaction
    token: Token | None
    answer: Granted | ErrorCode | None


@dataclass(frozen=True, slots=True)
class Completed:
    """The end of a transaction is in the log, of which nobody waits to hear."""

    transactional_id: str
    value: Transaction


@dataclass(frozen=True, slots=True)
class Expired:
    """Tombstones of transactional ids."""

    transactional_ids: tuple[str, ...]


Ticket = Moved | Completed | Expired
