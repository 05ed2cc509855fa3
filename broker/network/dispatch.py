"""Takes a frame, finds its API, and passes it on to be served (serving.py), whole or in slices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Hashable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from odradek.broker.api_table import BY_KEY
from odradek.broker.apis import Handler, load
from odradek.broker.context import RequestContext
from odradek.broker.counters.latency import begin_ns
from odradek.broker.errors import CloseConnection
from odradek.broker.handlers import Handle
from odradek.broker.loop.slices import Slices
from odradek.broker.metadata.changes import Changes
from odradek.broker.network.backpressure import Backpressure
from odradek.broker.network.remembered import Question, RememberedAnswers
from odradek.broker.network.serving import Serving, context_of
from odradek.broker.network.short_way import ShortWay
from odradek.broker.services import Services
from odradek.protocol.compiler import decode_prefix
from odradek.protocol.encoding import Chunk
from odradek.protocol.errors import HttpRequest, ProtocolError
from odradek.protocol.footprint import ALLOWANCE_BYTES
from odradek.protocol.frames import (
    API_VERSIONS_KEY,
    FETCH_KEY,
    METADATA_KEY,
    PRODUCE_KEY,
    RequestHeader,
    encode_response,
    read_request_header,
    skip_header_tags,
)

if TYPE_CHECKING:
    from odradek.broker.network.connection import Connection

logger = logging.getLogger(__name__)

# A request is short up to this size.
_BRIEF_BYTES_MAX = 4 * 1024
# With more topics, a short request for the metadata of all topics has a long response.
_BRIEF_TOPICS_MAX = 500
# Frames above this size are decoded a few at a time.
_LARGE_BYTES = 64 * 1024
# The first bytes of the frames of Produce and Fetch requests.
_OVERLAPPING = PRODUCE_KEY.to_bytes(2, "big")
_FETCHING = FETCH_KEY.to_bytes(2, "big")


class DispatchServices(Services, Protocol):
    """The parts of a broker that dispatch takes, besides those that handlers use."""

    backpressure: Backpressure
    slices: Slices
    changes: Changes

    def where_http_is(self) -> str:
        """Return for a log where HTTP is served."""


async def _handle_up_to_date(
    handle: Handle, services: DispatchServices, context: RequestContext, request: Any
) -> Any:
    """Handle a request once this broker knows the changes that others acknowledged before it."""
    await services.changes.catch_up()
    answer = handle(services, context, request)
    return await answer if hasattr(answer, "__await__") else answer


class Dispatcher:
    """Serves the frames of all connections; owned by the server."""

    def __init__(self, services: DispatchServices) -> None:
        self.services = services
        self._handlers: dict[int, Handler] = {}
        self.frame_size_max = services.config.socket_request_max_bytes
        self.pending_max = services.config.queued_max_requests
        self.backpressure = services.backpressure
        self.metrics = services.metrics
        self._topics = services.topics
        self._lease = services.brokers.lease
        self._slices = services.slices
        self.quotas = services.security.quotas
        self.remembered = RememberedAnswers()
        self.short_way = ShortWay(services)

    def serve(self, connection: Connection, frame: memoryview) -> None:
        """Serve one request; a malformed one closes the connection."""
        begun_ns = begin_ns()
        if begun_ns > self._lease.end_ns:
            self._lease.on_end()
        if connection.shape_end and self.short_way.take(connection, frame, begun_ns):
            return
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
            if header.api_version >= handler.flexible_from:
                skip_header_tags(frame, header)
        except ProtocolError as error:
            self.refuse(connection, error)
            return
        except CloseConnection as close:
            connection.refuse(str(close))
            return
        size_bytes = len(frame)
        if self.quotas.clients is None:
            question = None
            if handler.stamp is not None and size_bytes <= _BRIEF_BYTES_MAX:
                stamp = handler.stamp(self.services, connection.listener)
                question = _question(connection, header, frame, stamp)
            serving = Serving(self, connection, handler, header, frame, begun_ns, question)
            if question is not None and serving.repeat(question):
                return
        else:
            serving = self._charged(connection, handler, header, frame, begun_ns)
        if (
            handler.is_brief
            and size_bytes <= _BRIEF_BYTES_MAX
            and (header.api_key != METADATA_KEY or len(self._topics) <= _BRIEF_TOPICS_MAX)
        ):
            serving.serve()
        else:
            # Most of a Produce request is records, which are not decoded.
            is_large = size_bytes > _LARGE_BYTES and header.api_key != PRODUCE_KEY
            serving.serve_in_slices(self._slices, is_large=is_large)

    def may_overlap(self, frame: memoryview) -> bool:
        """Return whether a request may be served while the one before it awaits its response."""
        return frame[: len(_OVERLAPPING)] == _OVERLAPPING

    def may_hurry(self, frame: memoryview) -> bool:
        """Return whether a request may end the wait of the one before it.

        Fetches may not: a client that sends them ahead would get empty answers over and over.
        """
        return frame[: len(_FETCHING)] != _FETCHING

    def refuse(self, connection: Connection, error: ProtocolError) -> None:
        """Close a connection for bytes that are not a request."""
        if isinstance(error, HttpRequest):
            error = HttpRequest(f"{error}: {self.services.where_http_is()}")
        if connection.gate is not None and connection.gate.refuse(error):
            return
        self.metrics.malformed_requests += 1
        connection.refuse(str(error))

    def guard(self, connection: Connection) -> None:
        """Put a gate before a new connection whose listener asks for a login."""
        listener = connection.listener
        if listener.protocol.startswith("SASL_"):
            from odradek.broker.network.sasl_gate import SaslGate

            connection.gate = SaslGate(
                self.services.security.sasl_listener(listener.name),
                connection,
                partial(self._answer_versions, connection),
                self.metrics,
            )

    def _answer_versions(
        self, connection: Connection, frame: memoryview, header: RequestHeader
    ) -> tuple[list[Chunk], bool]:
        """Answer ApiVersions before a login; return whether it was answered without an error.

        Raises ProtocolError for a request that cannot be read.
        """
        from odradek.broker.apis.api_versions import unsupported_version

        handler, version = self._handler(header), header.api_version
        if handler is None:
            answer, version = unsupported_version(), 0
        else:
            if version >= handler.flexible_from:
                skip_header_tags(frame, header)
            request: Any
            # The size of the frame does not matter: ApiVersions has no arrays, and no tags that
            # any client sends.
            request, _ = decode_prefix(
                handler.request, version, frame, header.body, ALLOWANCE_BYTES
            )
            answer = handler.handle(
                self.services, context_of(self.services, connection, header), request
            )
        return encode_response(answer, version, header.correlation_id), not answer.error_code

    def _handler(self, header: RequestHeader) -> Handler | None:
        """Return the handler of a request, None for an API or a version that is not served."""
        handler = self._handlers.get(header.api_key)
        if handler is None:
            api = BY_KEY.get(header.api_key)
            if api is None:
                return None
            handler = load(api)
            if handler.is_administrative and self.services.store.is_shared:
                handler = replace(handler, handle=partial(_handle_up_to_date, handler.handle))
            self._handlers[header.api_key] = handler
        if handler.first <= header.api_version <= handler.api.last:
            return handler
        return None

    def _answer_unsupported(self, connection: Connection, header: RequestHeader) -> None:
        api = BY_KEY.get(header.api_key)
        if header.api_key == API_VERSIONS_KEY:
            # KIP-511: the answer to any version lists the versions that are served.
            from odradek.broker.apis.api_versions import unsupported_version

            chunks = encode_response(unsupported_version(), 0, header.correlation_id)
            connection.reply(chunks)
            return
        name = api.name if api else "unknown API"
        reason = f"request for {name} (key {header.api_key}) version {header.api_version}"
        self.refuse(connection, ProtocolError(f"{reason}, which is not served"))

    def _charged(
        self,
        connection: Connection,
        handler: Handler,
        header: RequestHeader,
        frame: memoryview,
        begun_ns: int,
    ) -> Serving:
        """Serve a request that is charged to its client's quotas."""
        from odradek.broker.network.charging import ChargedServing

        return ChargedServing(self, connection, handler, header, frame, begun_ns)

    def _send_later(
        self, connection: Connection, awaited: Awaitable[list[Chunk] | None]
    ) -> None:
        """Send a gate's answer, in its turn; nothing is served meanwhile."""
        task = asyncio.ensure_future(awaited)
        slot = connection.reply_later(task, overlaps=False)

        def done(future: asyncio.Future[list[Chunk] | None]) -> None:
            if future.cancelled():
                return
            try:
                chunks = future.result()
            except Exception:
                self.metrics.failed_requests += 1
                logger.exception("failed to log in peer=%s", connection.peer)
                connection.refuse("an internal error while logging in")
                return
            if not connection.is_lost:
                connection.fill(slot, chunks)

        task.add_done_callback(done)


def _question(
    connection: Connection, header: RequestHeader, frame: memoryview, stamp: Hashable
) -> Question | None:
    """Return a request as it is remembered with its answer, None where none is."""
    if stamp is None:
        return None
    body, listener = bytes(frame[header.body :]), connection.listener.name
    return Question(header.api_key, header.api_version, listener, body, stamp)
