"""Bounds what clients may make the broker keep in memory, all connections together.

    requests     bytes of those that are received or wait for the disk, as far as
                 queued.max.request.bytes: past that no further one is begun
    responses    bytes that clients have not read yet, as far as odradek.unsent.bytes.max: past
                 that a fetch is answered with one batch
"""

from __future__ import annotations

from collections.abc import Callable


class Backpressure:
    """The counts; owned by the event loop."""

    def __init__(self, request_bytes_max: int) -> None:
        self._request_bytes_max = request_bytes_max
        self._waiting: dict[Callable[[], None], None] = {}
        self.request_bytes = 0
        self.unsent_bytes = 0

    @property
    def is_limited(self) -> bool:
        """Whether the bytes of requests are to be counted at all."""
        return self._request_bytes_max > 0

    def is_full(self, waiter: Callable[[], None]) -> bool:
        """Return whether no request may be begun; if so, `waiter` is called once there is room.

        As in Kafka's memory pool the last one let in may exceed the bound: none is too large.
        """
        if self.request_bytes < self._request_bytes_max:
            return False
        self._waiting[waiter] = None
        return True

    def take(self, size_bytes: int) -> None:
        """Count a request."""
        self.request_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Count a request no more; who waits is called."""
        self.request_bytes -= size_bytes
        if self._waiting and self.request_bytes < self._request_bytes_max:
            waiting, self._waiting = self._waiting, {}
            for waiter in waiting:
                waiter()
