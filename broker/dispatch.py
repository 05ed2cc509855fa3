"""Takes a frame, finds its API, decodes, calls the handler, and sends what it answers.

A handler answers at once or with an awaitable. This is one of the two places where any
exception is caught: a bug in a handler is logged with its trace and answered by closing the
connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any

from broker import apis
from broker.apis import Handler
from broker.context import CloseConnection, Patient, RequestContext, Staged
from broker.latency import begin_ns
from protocol.compiler import decode_prefix
from protocol.encoding import Chunk
from protocol.errors import ErrorCode, HttpRequest, ProtocolError
from protocol.footprint import ALLOWANCE_BYTES, memory_max
from protocol.frames import (
    API_VERSIONS_KEY,
    FETCH_KEY,
    PRODUCE_KEY,
    RequestHeader,
    body_bytes,
    encode_response,
    read_request_header,
    skip_header_tags,
)

if TYPE_CHECKING:
    from broker.composition import Broker
    from broker.connection import Connection
    from broker.responses import Slot
    from broker.security.quotas.charge import Charge

logger = logging.getLogger(__name__)

# What the frames of Produce and Fetch requests begin with.
_OVERLAPPING = PRODUCE_KEY.to_bytes(2, "big")
_FETCHING = FETCH_KEY.to_bytes(2, "big")


class Dispatcher:
    """Serves the frames of all connections; owned by the server."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._handlers: dict[int, Handler] = {}
        self._loop = asyncio.get_running_loop()
        self.frame_size_max = broker.config.socket_request_max_bytes
        self.pending_max = broker.config.queued_max_requests
        self.backpressure = broker.backpressure
        self._quotas = broker.security.quotas

    def serve(self, connection: Connection, frame: memoryview) -> None:
        """Serve one request; a malformed one closes the connection."""
        begun_ns = begin_ns()
        try:
            if connection.gate is not None:
                awaited = connection.gate.take(frame)
                if awaited is not None:
                    self._send_later(connection, awaited)
                    return
            header = read_request_header(frame)
            handler = self._handler(header)
            if handler is None:
                self._answer_unsupported(connection, header)
                return
            version = header.api_version
            if version >= handler.flexible_from:
                skip_header_tags(frame, header)
            request: Any
            # What follows the request is passed over, as Kafka does: librdkafka 2.16 sends
            # three bytes too many when it asks for the metadata of all topics.
            request, _ = decode_prefix(
                handler.request, version, frame, header.body, memory_max(len(frame))
            )
        except ProtocolError as error:
            self.refuse(connection, error)
            return
        except CloseConnection as close:
            connection.refuse(str(close))
            return
        context = self._context(connection, header)
        metrics = self._broker.metrics
        metrics.count_request(header.api_key, version)
        charge = None
        if self._quotas.clients is not None:
            charge = context.charge = self._charge(context, len(frame) - header.body, begun_ns)
        try:
            answer = handler.handle(context, request)
        except CloseConnection as close:
            _settle_unanswered(charge)
            connection.refuse(str(close))
            return
        except Exception:
            _settle_unanswered(charge)
            self._fail(connection, handler, header)
            return
        times = metrics.times[header.api_key]
        if answer is None:
            if charge is not None:
                self._settle(connection, header, charge, None)
            times.observe(begun_ns)
            return
        slot: Slot | None
        if hasattr(answer, "__await__"):  # isinstance(answer, Awaitable) takes ten times as long
            slot = self._answer_later(connection, handler, header, answer, charge)
        else:
            slot = self._reply(connection, handler, header, answer, charge)
        if slot is None:
            times.observe(begun_ns)
        else:
            slot.times, slot.begun_ns = times, begun_ns

    def may_overlap(self, frame: memoryview) -> bool:
        """Tell whether a request may be served while the one before it awaits its response."""
        return frame[: len(_OVERLAPPING)] == _OVERLAPPING

    def may_hurry(self, frame: memoryview) -> bool:
        """Tell whether a request may end the wait of the one before it.

        Fetches may not: a client that sends them ahead would be answered over and over.
        """
        return frame[: len(_FETCHING)] != _FETCHING

    def refuse(self, connection: Connection, error: ProtocolError) -> None:
        """Close a connection for bytes that are no request."""
        if isinstance(error, HttpRequest):
            error = HttpRequest(f"{error}: {self._broker.where_http_is()}")
        if connection.gate is not None and connection.gate.refuse(error):
            return
        self._broker.metrics.malformed_requests += 1
        connection.refuse(str(error))

    def guard(self, connection: Connection) -> None:
        """Put a gate before a new connection whose listener asks for a login."""
        listener = connection.listener
        if listener.protocol.startswith("SASL_"):
            from broker.security.sasl.gate import Gate

            connection.gate = Gate(
                self._broker.security.sasl_listener(listener.name),
                connection,
                partial(self._answer_versions, connection),
                self._broker.metrics,
            )

    def _context(self, connection: Connection, header: RequestHeader) -> RequestContext:
        return RequestContext(
            self._broker,
            connection.listener,
            connection.client_host,
            header.api_version,
            header.correlation_id,
            header.client_id or "",
            header.api_key,
            connection.client,
        )

    def _answer_versions(
        self, connection: Connection, frame: memoryview, header: RequestHeader
    ) -> tuple[list[Chunk], bool]:
        """Answer ApiVersions before a login; tell whether it was answered without an error.

        Raises ProtocolError for a request that cannot be read.
        """
        from broker.apis.api_versions import unsupported_version

        handler, version = self._handler(header), header.api_version
        if handler is None:
            answer, version = unsupported_version(), 0
        else:
            if version >= handler.flexible_from:
                skip_header_tags(frame, header)
            request: Any
            # However large the frame: ApiVersions has no arrays, and no tags that anybody sends.
            request, _ = decode_prefix(
                handler.request, version, frame, header.body, ALLOWANCE_BYTES
            )
            answer = handler.handle(self._context(connection, header), request)
        return encode_response(answer, version, header.correlation_id), not answer.error_code

    def _handler(self, header: RequestHeader) -> Handler | None:
        """Return the handler of a request, None for an API or a version that is not served."""
        handler = self._handlers.get(header.api_key)
        if handler is None:
            api = apis.BY_KEY.get(header.api_key)
            if api is None:
                return None
            handler = self._handlers[header.api_key] = apis.load(api)
        if handler.first <= header.api_version <= handler.api.last:
            return handler
        return None

    def _answer_unsupported(self, connection: Connection, header: RequestHeader) -> None:
        api = apis.BY_KEY.get(header.api_key)
        if header.api_key == API_VERSIONS_KEY:
            # KIP-511: whatever the version, the answer tells the ones that work.
            from broker.apis.api_versions import unsupported_version

            chunks = encode_response(unsupported_version(), 0, header.correlation_id)
            connection.reply(chunks)
            return
        name = api.name if api else "unknown API"
        reason = f"request for {name} (key {header.api_key}) version {header.api_version}"
        self.refuse(connection, ProtocolError(f"{reason}, which is not served"))

    def _charge(self, context: RequestContext, size_bytes: int, begun_ns: int) -> Charge:
        """Begin to count what a request costs."""
        from broker.security.quotas.charge import Charge

        quotas = self._quotas.clients
        assert quotas is not None
        user, client_id = context.principal.name, context.client_id
        return Charge(quotas, user, client_id, context.api_key, size_bytes, begun_ns)

    def _settle(
        self, connection: Connection, header: RequestHeader, charge: Charge, answer: Any
    ) -> None:
        """Count a request against its client's quotas, and hold it back once it is answered."""

        def size_bytes() -> int:
            return body_bytes(answer, header.api_version)

        charge.settle(answer, size_bytes)
        self._mute(connection, charge)

    def _mute(self, connection: Connection, charge: Charge) -> None:
        mute_s = charge.take_mute_s()
        if mute_s:
            connection.mute(mute_s)

    def _reply(
        self,
        connection: Connection,
        handler: Handler,
        header: RequestHeader,
        answer: Any,
        charge: Charge | None,
    ) -> Slot | None:
        """Send a response; return its place when it has to wait for those before it."""
        try:
            if charge is not None:
                self._settle(connection, header, charge, answer)
            chunks = self._encode(handler, header, answer)
        except Exception:
            self._fail(connection, handler, header)
            return None
        slot = connection.reply(chunks)
        if charge is not None:
            charge.close()
        return slot

    def _encode(self, handler: Handler, header: RequestHeader, answer: Any) -> list[Chunk]:
        chunks = encode_response(answer, header.api_version, header.correlation_id)
        if handler.tells_error and answer.error_code:
            self._broker.metrics.count_error(header.api_key, answer.error_code)
        return chunks

    def _answer_later(
        self,
        connection: Connection,
        handler: Handler,
        header: RequestHeader,
        answer: Awaitable[Any],
        charge: Charge | None,
    ) -> Slot:
        if charge is None:
            awaited = asyncio.ensure_future(answer)
        else:
            if header.api_key == PRODUCE_KEY:
                charge.settle_produce(is_answered=True)
                self._mute(connection, charge)
            charge.pause()
            awaited = asyncio.ensure_future(charge.metered(answer))
        slot = connection.reply_later(awaited, overlaps=header.api_key == PRODUCE_KEY)
        if isinstance(answer, Staged):
            connection.hold_others(slot, answer.begun)
        elif isinstance(answer, Patient):
            slot.hurry = answer.hurry

        def done(future: asyncio.Future[Any]) -> None:
            if future.cancelled() or connection.is_lost:
                if not future.cancelled():
                    future.exception()  # retrieved, so that nobody complains of it
                return
            if charge is not None:
                charge.resume()
            try:
                response = future.result()
                if charge is not None:
                    self._settle(connection, header, charge, response)
                chunks = None if response is None else self._encode(handler, header, response)
                if charge is not None:
                    charge.close()
            except CloseConnection as close:
                _settle_unanswered(charge)
                connection.refuse(str(close))
                return
            except Exception:
                _settle_unanswered(charge)
                self._fail(connection, handler, header)
                return
            connection.fill(slot, chunks)

        awaited.add_done_callback(done)
        return slot

    def _send_later(
        self, connection: Connection, awaited: Awaitable[list[Chunk] | None]
    ) -> None:
        """Send what a gate answers, in its turn; nothing is served meanwhile."""
        task = asyncio.ensure_future(awaited)
        slot = connection.reply_later(task, overlaps=False)

        def done(future: asyncio.Future[list[Chunk] | None]) -> None:
            if future.cancelled():
                return
            try:
                chunks = future.result()
            except Exception:
                self._broker.metrics.failed_requests += 1
                logger.exception("failed to log in peer=%s", connection.peer)
                connection.refuse("an internal error while logging in")
                return
            if not connection.is_lost:
                connection.fill(slot, chunks)

        task.add_done_callback(done)

    def _fail(self, connection: Connection, handler: Handler, header: RequestHeader) -> None:
        self._broker.metrics.failed_requests += 1
        logger.exception(
            "failed to serve request api=%s version=%d client=%s peer=%s error=%s",
            handler.api.name,
            header.api_version,
            header.client_id or "",
            connection.peer,
            ErrorCode.UNKNOWN_SERVER_ERROR.name,
        )
        connection.refuse(f"an internal error while serving {handler.api.name}")


def _settle_unanswered(charge: Charge | None) -> None:
    """Count a request whose connection is closed instead of an answer, as Kafka does.

    Batches that it brought may have been appended: a client that wants no answers could have a
    wrong one among them each time, and would have no quota.
    """
    if charge is not None:
        charge.settle(None, lambda: 0)
