"""The state machine of a coordinator's partition, and how its records are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from broker.coordination.effects import Effect, Timer
from broker.coordination.seams import KeyValue
from protocol.errors import ErrorCode


class Machine(Protocol):
    """The state machine of one partition: without clock, without I/O."""

    def replay(self, record: Any) -> None:
        """Take in a record of the log, while it is loaded.

        One of a transaction comes as InTransaction, and the Marker that ends it as it is: only
        logs that producers' transactions reach have those.
        """

    def loaded(self, now_ms: int) -> Sequence[Effect]:
        """Begin to serve what has been replayed."""

    def unload(self, now_ms: int) -> Sequence[Effect]:
        """End serving: whoever waits is told to look for the coordinator again."""

    def stored(self, ticket: Any, error: ErrorCode, now_ms: int) -> Sequence[Effect]:
        """Go on after the log has a ticket's records (NONE), or could not take them."""

    def timer_fired(self, timer: Timer, now_ms: int) -> Sequence[Effect]:
        """Do what a timer was started for."""


@dataclass(frozen=True, slots=True)
class Codec:
    """How a coordinator's records stand in its topic.

    `decode` returns None for a record of a kind that is not kept, and raises ProtocolError for
    bytes that are none.
    """

    encode: Callable[[Any], KeyValue]
    decode: Callable[[bytes, bytes | None], object | None]
    # Has a machine take in records, from one on, of a kind of which there are millions; returns
    # where the first is that has to be decoded. Not asked for those of transactions.
    replay: Callable[[Any, Sequence[KeyValue], int], int] | None = None
