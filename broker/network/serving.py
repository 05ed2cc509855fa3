"""One request, from its frame to its response: decoded, handled, answered.

A handler answers at once or with an awaitable. This is one of the two places that catch any
exception: a bug in a handler is logged with its trace and answered by closing the connection.

    step()   decodes and handles a request, and encodes its answer if it is ready at once; for
             most APIs in slices of time (slices.py), so that other requests are served meanwhile
    end()    sends the answer, or waits for it

While there are quotas, `ChargedServing` (charging.py) extends these steps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.broker.apis import Handler
from odradek.broker.context import RequestContext
from odradek.broker.counters.metrics import Metrics
from odradek.broker.errors import CloseConnection
from odradek.broker.handlers import Holds, Patient, Staged
from odradek.broker.loop.disposal import free, hold_items
from odradek.broker.loop.slices import Sliced, Slices
from odradek.protocol.compiler import decode_prefix
from odradek.protocol.encoding import Chunk
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.footprint import memory_max
from odradek.protocol.frames import PRODUCE_KEY, RequestHeader, encode_response
from odradek.protocol.pacing import coding

if TYPE_CHECKING:
    from odradek.broker.network.connection import Connection
    from odradek.broker.network.dispatch import Dispatcher
    from odradek.broker.network.remembered import Question
    from odradek.broker.network.responses import Slot
    from odradek.broker.services import Services

logger = logging.getLogger(__name__)


T = TypeVar("T")

_EMPTY = memoryview(b"")
# A smaller message is freed in a millisecond.
_FREED_AT_ONCE_MAX_BYTES = 64 * 1024


class Closed:
    """The outcome of a request whose connection was closed instead of an answer."""


CLOSED = Closed()
# The encoded answer, None when the client wants no answer, or an answer that is not ready yet.
Outcome = list[Chunk] | None | Awaitable[Any] | Closed
# Returns an answer that counts the time of its steps.
Meter = Callable[[Awaitable[Any]], Awaitable[Any]]


class Serving:
    """A request that is being served."""

    __slots__ = (
        "_answered",
        "_begun_ns",
        "_connection",
        "_dispatcher",
        "_frame",
        "_handler",
        "_header",
        "_held",
        "_question",
        "_slices",
        "_slot",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        connection: Connection,
        handler: Handler,
        header: RequestHeader,
        frame: memoryview,
        begun_ns: int,
        question: Question | None = None,
    ) -> None:
        self._dispatcher, self._connection = dispatcher, connection
        self._handler, self._header, self._frame = handler, header, frame
        self._begun_ns = begun_ns
        # Under which the answer is remembered.
        self._question = question
        # The place of the response, once it is reserved.
        self._slot: Slot | None = None
        # Runs the steps in slices; None where the request is served in one piece.
        self._slices: Slices | None = None
        # The handler's answer, once its awaitable is done.
        self._answered: asyncio.Future[Any] | None = None
        # The items of large messages, which are freed some at a time.
        self._held: list[list[Any]] = []

    def serve(self) -> None:
        """Answer in one piece."""
        self.end(self.step())

    def repeat(self, question: Question) -> bool:
        """Answer as before, where nothing has changed since; return whether it was answered."""
        header, dispatcher = self._header, self._dispatcher
        chunks = dispatcher.remembered.find(question, header.correlation_id)
        if chunks is None:
            return False
        dispatcher.metrics.count_request(header.api_key, header.api_version)
        self.end(chunks)
        return True

    def serve_in_slices(self, slices: Slices, *, is_large: bool) -> None:
        """Answer in as many slices as needed; the connection's later requests wait meanwhile."""
        self._slices = slices
        if not slices.run(self, is_large=is_large) and not self._connection.is_lost:
            self._slot = self._connection.reply_later()
            self._observe(self._slot)

    def step(self) -> Outcome:
        """Do the next step; an exception closes the connection."""
        outcome = self._go_on()
        if self._held and (outcome is None or isinstance(outcome, (list, Closed))):
            free(self._held)
        return outcome

    def _go_on(self) -> Outcome:
        answered, self._answered = self._answered, None
        try:
            if answered is None:
                return self._answer()
            response = answered.result()
            return None if response is None else self._encode(response)
        except CloseConnection as close:
            self._connection.refuse(str(close))
        except Exception:
            fail(self._dispatcher.metrics, self._connection, self._handler.api.name, self._header)
        finally:
            del answered  # the traceback of its error refers to this frame
        return CLOSED

    def pause(self) -> None:
        """Note that the request stands still."""

    def resume(self) -> None:
        """Note that the request continues."""

    def end(self, outcome: Outcome) -> None:
        """Send the outcome of a step, or wait for it."""
        connection = self._connection
        if isinstance(outcome, Closed):
            return
        if outcome is not None and not isinstance(outcome, list):
            if connection.is_lost:
                asyncio.ensure_future(outcome).cancel()
            else:
                self._await(outcome)
            return
        if connection.is_lost:
            return
        slot = self._slot
        if slot is not None:
            connection.fill(slot, outcome)
        elif outcome is not None:
            slot = connection.reply(outcome)
            if slot is not None:
                self._observe(slot)
        if slot is None:
            self._dispatcher.metrics.times[self._header.api_key].observe(self._begun_ns)

    def _answer(self) -> Outcome:
        """Decode the request, and call its handler."""
        dispatcher, header, handler = self._dispatcher, self._header, self._handler
        frame, self._frame = self._frame, _EMPTY
        try:
            request: Any
            # Bytes after the request are ignored, as in Kafka: librdkafka 2.16 sends three bytes
            # too many when it asks for the metadata of all topics.
            request, _ = self._code(
                decode_prefix,
                handler.request,
                header.api_version,
                frame,
                header.body,
                memory_max(len(frame)),
            )
        except ProtocolError as error:
            dispatcher.refuse(self._connection, error)
            return CLOSED
        is_large = len(frame) > _FREED_AT_ONCE_MAX_BYTES
        # A Produce request is mostly records, whose memory is freed as soon as they are written.
        if is_large and self._slices is not None and header.api_key != PRODUCE_KEY:
            self._hold(request)
        dispatcher.metrics.count_request(header.api_key, header.api_version)
        if header.api_key == PRODUCE_KEY and self._connection.gate is None:
            dispatcher.short_way.learn(self._connection, frame, header, request)
        context = self._context(len(frame) - header.body)
        answer = handler.handle(dispatcher.services, context, request)
        if answer is None:
            return None
        if hasattr(answer, "__await__"):  # isinstance(answer, Awaitable) takes ten times as long
            awaited: Awaitable[Any] = answer
            if handler.grounds is not None:  # they may change meanwhile
                self._question = None
            return awaited
        if self._question is None or handler.grounds is None:
            return self._encode(answer)
        return self._encode(answer, handler.grounds(dispatcher.services, request))

    def _context(self, size_bytes: int) -> RequestContext:
        """Return the surroundings of the request, of a size without its header."""
        return context_of(self._dispatcher.services, self._connection, self._header)

    def _encode(self, answer: Any, holds: Holds | None = None) -> list[Chunk]:
        header = self._header
        chunks = self._code(encode_response, answer, header.api_version, header.correlation_id)
        if self._slices is not None and sum(map(len, chunks)) > _FREED_AT_ONCE_MAX_BYTES:
            self._hold(answer)
        if self._handler.has_error_code and answer.error_code:
            self._dispatcher.metrics.count_error(header.api_key, answer.error_code)
        elif self._question is not None:
            self._dispatcher.remembered.keep(self._question, chunks, holds)
        return chunks

    def _hold(self, message: Any) -> None:
        """Hold the items of a large message, to free them some at a time after its last use."""
        self._held += hold_items(message)

    def _code(self, code: Callable[..., T], *arguments: object) -> T:
        """Decode or encode, in slices where the request is served in slices."""
        return code(*arguments) if self._slices is None else coding(code, *arguments)

    def _await(self, answer: Awaitable[Any], meter: Meter | None = None) -> None:
        """Reserve the response's place, and continue when the answer is ready."""
        connection = self._connection
        is_produce = self._header.api_key == PRODUCE_KEY
        steps = answer
        if self._slices is not None and not isinstance(answer, asyncio.Future):
            steps = Sliced(answer, self._slices, self.pause, self.resume)
        if meter is not None:
            steps = meter(steps)
        awaited = asyncio.ensure_future(steps)
        slot = self._slot
        if slot is None:
            slot = self._slot = connection.reply_later(awaited, overlaps=is_produce)
            self._observe(slot)
        else:
            slot.awaited = awaited
            if is_produce:
                connection.overlap(slot)
        if isinstance(answer, Staged):
            connection.hold_others(slot, answer.begun)
        elif isinstance(answer, Patient):
            slot.hurry = answer.hurry
        awaited.add_done_callback(self._awaited)

    def _awaited(self, future: asyncio.Future[Any]) -> None:
        """Answer with the result of the awaitable."""
        if self._slot is not None:  # a cycle would not be freed at once
            self._slot.awaited = None
        if future.cancelled() or self._connection.is_lost:
            if not future.cancelled():
                future.exception()  # retrieved, so that asyncio does not log it
            return
        self.resume()
        self._answered = future
        if self._slices is None:
            self.end(self.step())
        else:
            self._slices.run(self)

    def _observe(self, slot: Slot) -> None:
        """Count the time until the response is written."""
        slot.times = self._dispatcher.metrics.times[self._header.api_key]
        slot.begun_ns = self._begun_ns


def fail(
    metrics: Metrics,
    connection: Connection,
    name: str,
    header: RequestHeader | None = None,
) -> None:
    """Close a connection because of a bug, and log the exception that is being handled."""
    metrics.failed_requests += 1
    logger.exception(
        "failed to serve request api=%s version=%s client=%s peer=%s error=%s",
        name,
        "?" if header is None else header.api_version,
        (header and header.client_id) or "",
        connection.peer,
        ErrorCode.UNKNOWN_SERVER_ERROR.name,
    )
    connection.refuse(f"an internal error while serving {name}")


def context_of(
    services: Services, connection: Connection, header: RequestHeader
) -> RequestContext:
    """Return the surroundings of a request for its handler."""
    return RequestContext(
        services.security.authorizer,
        connection.listener,
        connection.client_host,
        header.api_version,
        header.correlation_id,
        header.client_id or "",
        header.api_key,
        connection.client,
    )
