"""The end of a shared log that its WAL has not committed: readers do not see it.

    records that consumers read  |  appended, not committed  |
                          high watermark              log end offset

The log's recovery point is its high watermark: durable means committed. A transaction whose marker
is not committed counts as open, as in Kafka, where it is not replicated (ProducerStateManager's
unreplicated transactions).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from odradek.storage.errors import StorageError
from odradek.storage.files import Buffer
from odradek.storage.segment import Segment

Add = Callable[[Buffer, int, int], None]
"""Takes a batch to the WAL, with its base offset and the one after its last."""


class PendingExchange(Protocol):
    """Cleaned segments on their way to the bucket, where they will replace others."""

    def complete(self) -> Callable[[StorageError], None]:
        """Exchange them in the bucket, before the log does.

        The result is called on the event loop if the log could not follow: it has to be built
        again. Raises StorageError.
        """

    def discard(self) -> None:
        """Exchange nothing."""


BeginExchange = Callable[[Sequence[Segment], Sequence[Segment]], PendingExchange]
"""Begins to exchange segments of a log for others, in a cleaner's thread."""


class Uncommitted:
    """The batches and ended transactions of one log that wait for a commit."""

    def __init__(self, add: Add, begin_exchange: BeginExchange) -> None:
        self.add, self.begin_exchange = add, begin_exchange
        # The first offset that was not stable before a transaction ended, and its marker's.
        self._ended: deque[tuple[int, int]] = deque()

    @property
    def unstable_offset(self) -> int | None:
        """The first offset of transactions whose markers are not committed; None without one."""
        return self._ended[0][0] if self._ended else None

    def ended(self, first_offset: int, marker_offset: int) -> None:
        """Note that a transaction has ended which kept all from an offset on unstable."""
        self._ended.append((first_offset, marker_offset))

    def committed(self, end_offset: int) -> bool:
        """Note a commit of all before an offset; return whether it has ended a transaction."""
        count = len(self._ended)
        while self._ended and self._ended[0][1] < end_offset:
            self._ended.popleft()
        return len(self._ended) < count
