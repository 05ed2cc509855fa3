"""Actions that the machine of transactions asks its coordinator for, answers and tickets."""

from __future__ import annotations

from typing import NamedTuple

from odradek.broker.coordination.effects import Purpose, Token
from odradek.broker.transactions.state import NO_EPOCH, NO_PRODUCER, Partitions, Transaction
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode


class TimerKind(Purpose):
    """The purpose of a deadline of a transactional id."""

    MARKERS = "markers"  # Try again to write the markers that could not be written.


class Granted(NamedTuple):
    """The answer to a request for a producer id or for the end of a transaction."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Write the marker of a prepared transaction to partitions, then call `marked`."""

    transactional_id: str
    prepared: Transaction
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Moved:
    """A transactional id's next state is in the log, or could not be stored.

    `answer` is the response to the token, which is None when no request waits.
    """

    transactional_id: str
    value: Transaction
    token: Token | None
    answer: Granted | ErrorCode | None


@dataclass(frozen=True, slots=True)
class Completed:
    """The end of a transaction is in the log; no request waits for it."""

    transactional_id: str
    value: Transaction


@dataclass(frozen=True, slots=True)
class Expired:
    """The tombstones of transactional ids are in the log."""

    transactional_ids: tuple[str, ...]


Ticket = Moved | Completed | Expired
