"""Serves requests of shapes that came before on their connection, without a `Serving`.

Today these are Produce requests (broker/produce/shortcut.py); their code is loaded by the first.
"""

from __future__ import annotations

from asyncio import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.broker.network.serving import fail
from odradek.protocol.frames import PRODUCE_KEY, RequestHeader

if TYPE_CHECKING:
    from odradek.broker.network.connection import Connection
    from odradek.broker.network.responses import Slot
    from odradek.broker.produce.shortcut import ProduceShortcut, Unflushed
    from odradek.broker.services import Services


class ShortWay:
    """The short way of all connections; owned by the dispatcher."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._produce: ProduceShortcut | None = None

    def learn(
        self, connection: Connection, frame: memoryview, header: RequestHeader, request: Any
    ) -> None:
        """Remember the shape of a Produce request that is served."""
        if self._produce is None:
            from odradek.broker.produce.shortcut import ProduceShortcut

            self._produce = ProduceShortcut(self._services)
        connection.shape_end = self._produce.learn(frame, header, request)

    def take(self, connection: Connection, frame: memoryview, begun_ns: int) -> bool:
        """Serve a request if its shape came before; return whether it was served."""
        produce = self._produce
        if produce is None:
            return False
        try:
            answer = produce.serve(frame, connection.shape_end)
        except Exception:
            self._fail(connection)
            return True
        if answer is None:
            return False
        times = self._services.metrics.times[PRODUCE_KEY]
        if isinstance(answer, list):
            slot = connection.reply(answer)
            if slot is None:
                times.observe(begun_ns)
                return True
        else:
            slot = connection.reply_later(overlaps=True)
            answer.flushed.add_done_callback(partial(self._answer, connection, slot, answer))
        slot.times, slot.begun_ns = times, begun_ns
        return True

    def _answer(
        self, connection: Connection, slot: Slot, unflushed: Unflushed, _: Future[None]
    ) -> None:
        try:
            answer = unflushed.answer()
        except Exception:
            self._fail(connection)
            return
        if not connection.is_lost:
            connection.fill(slot, answer)

    def _fail(self, connection: Connection) -> None:
        fail(self._services.metrics, connection, "Produce")
