"""One client's connection: bytes in, frames to dispatch, responses out in request order.

As in Kafka, a request is served when the one before it is answered: when a client sends several
at once, each one sees the effects of those before it. Only Produce requests overlap: each is
appended in its turn, and they wait for the disk together. Also, a fetch that waits for records
gives way: once another request waits behind it, it is answered with the available records. Spark
and other users of the Java consumer prefetch, and then ask for offsets, over one connection; in
Kafka that takes as long as the fetch may wait.

The memory of a connection is bounded. The connection is not read from while
- a request waits for its turn,
- too many responses are awaited (queued.max.requests),
- all connections together hold too many bytes of requests (queued.max.request.bytes),
- a quota holds the client back, or
- the client does not read its responses.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from odradek.broker.context import ConnectedClient
from odradek.broker.hosts.addresses import java_address
from odradek.broker.loop.slices import SLICE_S
from odradek.broker.network.not_connected import NOT_CONNECTED
from odradek.broker.network.responses import Outgoing, Slot
from odradek.protocol.encoding import Chunk
from odradek.protocol.errors import ProtocolError
from odradek.protocol.frames import FrameReader

if TYPE_CHECKING:
    from odradek.broker.hosts.listener import Listener
    from odradek.broker.network.dispatch import Dispatcher
    from odradek.broker.network.sasl_gate import SaslGate

logger = logging.getLogger(__name__)

_SHARED_VIEW = memoryview(bytearray(256 * 1024))
# A client that reads its responses sees the end of the stream, and closes, well within this time.
_LINGER_S = 1.0
# The clock is read after this number of requests.
_LOOK_EVERY = 8


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection; the event loop owns it."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        listener: Listener,
        address: tuple[str, int],
        on_lost: Callable[[Connection], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._on_lost = on_lost
        self._pending_max = dispatcher.pending_max
        self._pressure = dispatcher.backpressure
        self._is_counted = self._pressure.is_limited
        self.listener = listener
        self.host, port = address
        self.peer = f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"
        self.client_host = f"/{java_address(self.host)}"
        self.client = ConnectedClient(port)
        # Takes frames until the client has logged in, where the listener asks for a login.
        self.gate: SaslGate | None = None
        # Where the shape of its last Produce request ends (short_way.py); 0 for none.
        self.shape_end = 0
        self._loop = asyncio.get_running_loop()
        # Connection state
        self.transport: asyncio.Transport = NOT_CONNECTED
        self.is_lost = False
        self._is_writable = True
        self._is_paused = False
        # The client's stream has ended: close once all is answered.
        self._is_ending = False
        # No further request is begun: end the stream once all is answered, then wait for the
        # end of the client's stream.
        self._is_finishing = False
        self._has_ended_stream = False
        # Receiving, and a request that waits for its turn.
        self._frames = FrameReader(_SHARED_VIEW, dispatcher.frame_size_max)
        self._next: memoryview | None = None
        # Bytes of the request that is being received, where they are counted.
        self._reserved_bytes = 0
        # Requests whose responses are not written yet, oldest first.
        self._pending: deque[Slot] = deque()
        self._outgoing = Outgoing()
        # When bytes were last received or sent, and how many were unsent then.
        self._active_at = self._loop.time()
        self._unsent_bytes = 0
        # The unsent bytes when the client was found not to read.
        self._unread_bytes = 0
        # Ends the time for which a quota holds the client back; None when none does.
        self._unmuting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, which is ready to write."""
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the responses that the client cannot get any more."""
        self.is_lost = True
        for slot in self._pending:
            slot.cancel()
            self._give_back(slot.request_bytes)
        self._pending.clear()
        self._next = None
        if self._unmuting is not None:
            self._unmuting.cancel()
        self._reserve(0)
        self._forget_unread()
        for on_lost in self.client.on_lost.values():
            on_lost()
        # All of these may refer back to this object. The bytes received must not wait for the
        # garbage collector, which does not know how large a cycle is.
        self.client.on_lost.clear()
        self.gate = None
        self.transport = NOT_CONNECTED
        self._on_lost(self)

    def eof_received(self) -> bool:
        """Answer the requests that came before the client's end of stream, then close."""
        self._is_ending = True
        return not self._close_if_answered()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return _SHARED_VIEW if self._has_ended_stream else self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that came."""
        if self._has_ended_stream:
            return
        self._active_at = self._loop.time()
        self._frames.received(nbytes)
        self._serve()

    def pause_writing(self) -> None:
        """Stop serving a client that does not read its responses."""
        self._is_writable = False
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._pressure.unsent_bytes += self._unread_bytes

    def resume_writing(self) -> None:
        """Continue to serve, in a step of its own: the transport is in the middle of writing."""
        self._is_writable = True
        self._forget_unread()
        self._loop.call_soon(self._serve)

    def finish(self) -> None:
        """Begin no further request; end the stream once all that began is answered.

        From then on, the client's bytes are thrown away until it closes the connection or takes
        too long. Closing with bytes unread would reset the connection, and a client that is
        about to send would not read its responses any more.
        """
        self._is_finishing = True
        self._next = None
        self._serve()

    def abort(self) -> None:
        """Close the connection at once; responses that are ready are sent, if that is possible."""
        self._flush()
        self.transport.abort()

    def refuse(self, reason: str) -> None:
        """Close the connection for bytes that are not a request; log it once, with the peer."""
        if not self.is_lost and not self.transport.is_closing():
            logger.warning("closed connection peer=%s reason=%s", self.peer, reason)
            self.abort()

    def limit_frames(self, size_max: int = -1, option: str = "socket.request.max.bytes") -> None:
        """Limit the size of the requests that follow; -1 is the limit of other connections."""
        self._frames.limit(self._dispatcher.frame_size_max if size_max < 0 else size_max, option)

    def mute(self, time_s: float) -> None:
        """Begin no further request for a time; those that have begun are answered (KIP-219)."""
        until_s = self._loop.time() + time_s
        if self._unmuting is not None:
            if self._unmuting.when() >= until_s:
                return
            self._unmuting.cancel()
        if not self.is_lost:
            self._unmuting = self._loop.call_at(until_s, self._unmute)

    def _unmute(self) -> None:
        self._unmuting = None
        self._serve()

    def idle_s(self, now: float) -> float:
        """Return for how long no bytes were received or sent; 0 while a response is awaited."""
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._active_at = unsent_bytes, now
        # A client that has ended its stream may be gone; only an answer would show that.
        return 0.0 if self._pending and not self._is_ending else now - self._active_at

    def reply(self, chunks: list[Chunk]) -> Slot | None:
        """Write a response that is ready when its request is served, after those before it.

        Returns its place when others come before it; None when it is written.
        """
        if not self._pending:
            self._write(chunks)
            return None
        slot = Slot(None, overlaps=True)
        slot.chunks = chunks
        self._pending.append(slot)
        return slot

    def reply_later(
        self, awaited: asyncio.Future[Any] | None = None, *, overlaps: bool = False
    ) -> Slot:
        """Reserve the next response's place for one that is not ready yet.

        `overlaps` says whether requests that may overlap can be served meanwhile.
        """
        slot = Slot(awaited, overlaps=overlaps)
        self._pending.append(slot)
        return slot

    def overlap(self, slot: Slot) -> None:
        """From now on, serve requests that may overlap with one that was served alone."""
        slot.overlaps = True
        self._serve_soon()

    def hold_others(self, slot: Slot, until: asyncio.Future[None]) -> None:
        """Serve no request after this one until a future is done, even if it may overlap."""
        slot.is_alone = True

        def go_on(_: asyncio.Future[None]) -> None:
            slot.is_alone = False
            self._serve()

        until.add_done_callback(go_on)

    def fill(self, slot: Slot, chunks: list[Chunk] | None) -> None:
        """Put a response (None: there is none) in its place, and write the responses in turn."""
        slot.chunks = [] if chunks is None else chunks
        pending = self._pending
        if not self._outgoing.is_gathering:
            # Others that waited for the same become ready in this turn of the loop.
            self._outgoing.gather()
            self._loop.call_soon(self._flush)
        while pending and pending[0].chunks is not None:
            ready = pending.popleft()
            self._give_back(ready.request_bytes)
            if ready.chunks:
                self._write(ready.chunks)
            if ready.times is not None:
                ready.times.observe(ready.begun_ns)
        if self._is_paused or self._is_ending or self._is_finishing:  # else nothing has waited
            self._serve()

    def _serve(self) -> None:
        """Serve the requests that have come and whose turn it is; pause reading for the rest."""
        if self._has_ended_stream:
            return
        self._outgoing.gather()
        served, until_s = 0, 0.0
        while not self._is_blocked():
            frame = self._next
            if frame is None:
                try:
                    frame = self._frames.take()
                except ProtocolError as error:
                    self._dispatcher.refuse(self, error)
                    break
            if frame is None:
                if self._is_counted and not self._may_receive():
                    self._flush()
                    self._frames.settle()
                    return self._pause(True)
                break
            if self._must_wait(frame):
                self._next = frame
                break
            served += 1
            if served % _LOOK_EVERY == 0:
                now_s = perf_counter()
                until_s = until_s or now_s + SLICE_S
                if now_s > until_s:  # one reading may bring thousands: others get their turn
                    self._next = frame
                    self._serve_soon()
                    break
            self._next = None
            if self._is_counted:
                self._serve_counted(frame)
            else:
                self._dispatcher.serve(self, frame)
        self._flush()
        self._frames.settle()
        self._pause(self._next is not None or self._is_blocked())
        if self._is_ending:
            self._close_if_answered()
        elif self._is_finishing and not self._pending:
            self._end_stream()

    def _must_wait(self, frame: memoryview) -> bool:
        """Return whether a request has to wait for its turn."""
        if self._pending:
            last = self._pending[-1]
            if not last.overlaps or last.is_alone or not self._dispatcher.may_overlap(frame):
                if last.hurry is not None and self._dispatcher.may_hurry(frame):
                    last.hurry()
                return True
        is_new = self._is_counted and not self._reserved_bytes
        return is_new and self._pressure.is_full(self._serve_soon)

    def _may_receive(self) -> bool:
        """Return whether the request that has begun to arrive may be received, and count it."""
        size = self._frames.begun_bytes
        if size and not self._reserved_bytes:
            if self._pressure.is_full(self._serve_soon):
                return False
            self._reserve(size)
        return True

    def _serve_counted(self, frame: memoryview) -> None:
        """Serve a request, and count its bytes as long as they are in use.

        For a Produce request, and for one that is served in slices, that is until its response
        is ready. Other requests are decoded by then.
        """
        self._reserve(len(frame))
        last = self._pending[-1] if self._pending else None
        self._dispatcher.serve(self, frame)
        slot = self._pending[-1] if self._pending else None
        if slot is not None and slot is not last and slot.keeps_request:
            slot.request_bytes, self._reserved_bytes = self._reserved_bytes, 0
        else:
            self._reserve(0)

    def _reserve(self, size_bytes: int) -> None:
        held, self._reserved_bytes = self._reserved_bytes, size_bytes
        if held != size_bytes:
            self._pressure.take(size_bytes)
            self._give_back(held)

    def _give_back(self, size_bytes: int) -> None:
        if size_bytes:
            self._pressure.give_back(size_bytes)

    def _serve_soon(self) -> None:
        self._loop.call_soon(self._serve)

    def _forget_unread(self) -> None:
        self._pressure.unsent_bytes -= self._unread_bytes
        self._unread_bytes = 0

    def _is_blocked(self) -> bool:
        return (
            not self._is_writable
            or len(self._pending) >= self._pending_max
            or self._is_finishing
            or self._unmuting is not None
            or self.is_lost
            or self.transport.is_closing()
        )

    def _pause(self, wanted: bool) -> None:
        if wanted == self._is_paused or self.is_lost:
            return
        self._is_paused = wanted
        if wanted:
            self.transport.pause_reading()
        elif not self._is_ending:
            self.transport.resume_reading()

    def _end_stream(self) -> None:
        if not (self.is_lost or self.transport.is_closing()):
            self._has_ended_stream = True
            self.transport.write_eof()  # after the responses that are written
            self._pause(False)
            self._loop.call_later(_LINGER_S, self.abort)

    def _close_if_answered(self) -> bool:
        if not self._pending and self._next is None:
            self._flush()
            self.transport.close()  # sends the responses that are written first
            return True
        return False

    def _flush(self) -> None:
        if not self.is_lost:
            self._outgoing.flush(self.transport)

    def _write(self, chunks: list[Chunk]) -> None:
        self._active_at = self._loop.time()
        self._outgoing.write(self.transport, chunks)
