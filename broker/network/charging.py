"""Charges a request to the quotas of its client, step by step, where there are quotas.

The charge begins once the request is decoded. It is settled with the answer, or, for Produce, once
the batches are appended; a client that is over a quota is held back from then on.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from odradek.broker.context import RequestContext
from odradek.broker.counters.latency import begin_ns
from odradek.broker.handlers import Holds
from odradek.broker.network.serving import Closed, Meter, Outcome, Serving
from odradek.broker.security.quotas.charge import Charge
from odradek.protocol.encoding import Chunk
from odradek.protocol.frames import PRODUCE_KEY, body_bytes


class ChargedServing(Serving):
    """A request that is being served and charged."""

    __slots__ = ("_charge",)

    def __init__(self, *arguments: Any) -> None:
        """Take the arguments of Serving."""
        super().__init__(*arguments)
        self._charge: Charge | None = None  # until the request is decoded

    def pause(self) -> None:
        """Stop counting time."""
        if self._charge is not None:
            self._charge.pause()

    def resume(self) -> None:
        """Begin to count time again."""
        if self._charge is not None:
            self._charge.resume()

    def end(self, outcome: Outcome) -> None:
        """Send the outcome of a step, and count the time to write it."""
        is_answer = isinstance(outcome, list) and not self._connection.is_lost
        super().end(outcome)
        if is_answer and self._charge is not None:
            self._charge.close()

    def _go_on(self) -> Outcome:
        outcome = super()._go_on()
        charge = self._charge
        if charge is not None:
            if outcome is None:
                self._settle(charge, None)
            elif isinstance(outcome, Closed):
                # As in Kafka. Some of its batches may have been appended: a client that wants no
                # answers could put a wrong batch into each request, and would escape its quota.
                charge.settle(None, lambda: 0)
        return outcome

    def _context(self, size_bytes: int) -> RequestContext:
        context = super()._context(size_bytes)
        quotas = self._dispatcher.quotas.clients
        if quotas is not None:  # they may have been removed while the request waited
            user, client_id = context.principal.name, context.client_id
            self._charge = context.charge = Charge(
                quotas, user, client_id, context.api_key, size_bytes, begin_ns()
            )
        return context

    def _encode(self, answer: Any, holds: Holds | None = None) -> list[Chunk]:
        if self._charge is not None:
            self._settle(self._charge, answer)
        return super()._encode(answer, holds)

    def _await(self, answer: Awaitable[Any], meter: Meter | None = None) -> None:
        charge = self._charge
        if charge is not None:
            if self._header.api_key == PRODUCE_KEY:
                charge.settle_produce(is_answered=True)
                self._mute(charge)
            charge.pause()
            meter = charge.metered
        super()._await(answer, meter)

    def _settle(self, charge: Charge, answer: Any) -> None:
        """Count the request, and hold the client back once it is answered."""
        charge.settle(answer, lambda: body_bytes(answer, self._header.api_version))
        self._mute(charge)

    def _mute(self, charge: Charge) -> None:
        mute_s = charge.take_mute_s()
        if mute_s:
            self._connection.mute(mute_s)
