"""Bounds the memory that clients may use, all connections together.

    requests     bytes of requests that are being received or wait for the disk, up to
                 queued.max.request.bytes: past this bound no further request is begun
    responses    bytes that clients have not read yet, up to odradek.unsent.bytes.max: past
                 this bound a fetch is answered with one batch
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
        """Whether the bytes of requests are counted at all."""
        return self._request_bytes_max > 0

    def is_full(self, waiter: Callable[[], None]) -> bool:
        """Return whether no request may be begun; if so, `waiter` is called once there is room.

        As in Kafka's memory pool, the last request let in may exceed the bound, whatever its size.
        """
        if self.request_bytes < self._request_bytes_max:
            return False
        self._waiting[waiter] = None
        return True

    def take(self, size_bytes: int) -> None:
        """Count a request."""
        self.request_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Stop counting a request; call the waiters once there is room."""
        self.request_bytes -= size_bytes
        if self._waiting and self.request_bytes < self._request_bytes_max:
            waiting, self._waiting = self._waiting, {}
            for waiter in waiting:
                waiter()
