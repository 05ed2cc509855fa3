"""The state machine of a coordinator's partition, and the codec of its records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from odradek.broker.coordination.effects import Effect, Timer
from odradek.broker.coordination.seams import KeyValue
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode


class Machine(Protocol):
    """The state machine of one partition; it has no clock and does no I/O."""

    def replay(self, record: Any) -> None:
        """Take in a record of the log, while the partition is loaded.

        A record of a transaction comes as InTransaction, and the end of the transaction as a
        Marker: only logs that producers' transactions reach have them.
        """

    def loaded(self, now_ms: int) -> Sequence[Effect]:
        """Begin to serve the replayed state."""

    def unload(self, now_ms: int) -> Sequence[Effect]:
        """End serving: answer waiting requests so that clients look for the coordinator again."""

    def stored(self, ticket: Any, error: ErrorCode, now_ms: int) -> Sequence[Effect]:
        """Continue after the log has a ticket's records (NONE), or could not take them."""

    def timer_fired(self, timer: Timer, now_ms: int) -> Sequence[Effect]:
        """Act on a timer that has fired."""


@dataclass(frozen=True, slots=True)
class Codec:
    """The encoding of a coordinator's records in its topic.

    `decode` returns None for a record of a kind that is not kept, and raises ProtocolError for
    bytes that are no record.
    """

    encode: Callable[[Any], KeyValue]
    decode: Callable[[bytes, bytes | None], object | None]
    # A fast path for a kind of record of which there are millions: takes records in from an index
    # on, and returns the index of the first that needs `decode`. Not used for transactions.
    replay: Callable[[Any, Sequence[KeyValue], int], int] | None = None
