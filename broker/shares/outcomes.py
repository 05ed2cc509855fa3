"""The decisions of a share-partition, which its owner carries out."""

from __future__ import annotations

from dataclasses import field

from odradek.broker.coordination.effects import Token
from odradek.broker.shares.batches import StateBatch
from odradek.broker.shares.in_flight import Delivery
from odradek.broker.shares.state_records import ShareState
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why an acknowledgement was not taken."""

    error: ErrorCode
    message: str


@dataclass(slots=True)
class Ticket:
    """Changes on their way to be stored, and the token of the request that waits for them."""

    changes: list[tuple[Delivery, StateBatch]] = field(default_factory=list)
    token: Token = None
    # Whether the changes stand even if they cannot be stored: locks have expired.
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """Store a change of the state, then call `written` with the ticket."""

    change: ShareState
    ticket: Ticket


@dataclass(frozen=True, slots=True)
class Done:
    """Answer a request: its acknowledgements are stored, or have failed."""

    token: Token
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Wake:
    """Wake delayed fetches: records may have become available."""


Outcome = Write | Done | Wake
