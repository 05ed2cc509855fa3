"""One client's connection: bytes in, frames to dispatch, responses out in request order.

A frame is received straight into a buffer of its own, so that record batches go from the socket
to the file without another copy. Small frames share one receive buffer for all connections: the
event loop fills and empties it in one step.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from protocol.compiler import Chunk
from protocol.frames import SIZE

if TYPE_CHECKING:
    from broker.dispatch import Dispatcher
    from broker.server import Listener

logger = logging.getLogger(__name__)

_SHARED_BUFFER = bytearray(256 * 1024)
_SHARED_VIEW = memoryview(_SHARED_BUFFER)
_SIZE_BYTES = SIZE.size
# A frame's buffer grows as its bytes come, so that a size alone makes nobody allocate it.
_GROWTH_MIN_BYTES = 256 * 1024
# Up to this size joining the pieces of a response costs less than writing them one by one.
_JOIN_BELOW_BYTES = 256 * 1024


class _NotConnected(asyncio.Transport):
    """Stands in until the connection is made."""

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


_NOT_CONNECTED = _NotConnected()


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection; the event loop owns it."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        listener: Listener,
        on_lost: Callable[[Connection], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._on_lost = on_lost
        self._frame_size_max = dispatcher.frame_size_max
        self._pending_max = dispatcher.pending_max
        self.listener = listener
        # Connection state
        self.transport: asyncio.Transport = _NOT_CONNECTED
        self.peer = "?"
        self.client_host = ""
        self.is_lost = False
        self._is_writable = True
        self._is_paused = False
        # Receiving: the start of a frame's size, or a frame that is partly there.
        self._prefix = b""
        self._frame: bytearray | None = None
        self._frame_size = 0
        self._filled = 0
        # Requests whose responses are not written yet, oldest first.
        self._pending: deque[Slot] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the peer."""
        self.transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        if name:
            self.peer = f"{name[0]}:{name[1]}"
            self.client_host = f"/{name[0]}"

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel what the client will not hear of any more."""
        self.is_lost = True
        for slot in self._pending:
            slot.cancel()
        self._pending.clear()
        self._frame = None
        self._on_lost(self)

    def eof_received(self) -> bool:
        """Close at the client's end of stream; what it asked before gets no answer then."""
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where the next bytes go."""
        if self._frame is None:
            return _SHARED_VIEW
        if self._filled == len(self._frame):
            grown = min(self._frame_size, 2 * len(self._frame))
            self._frame.extend(bytes(grown - len(self._frame)))
        return memoryview(self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that came."""
        frame = self._frame
        if frame is None:
            self._take_shared(nbytes)
            return
        self._filled += nbytes
        if self._filled == self._frame_size:
            self._frame = None
            self._serve(memoryview(frame))

    def pause_writing(self) -> None:
        """Stop reading requests from a client that does not read its responses."""
        self._is_writable = False
        self._adjust_reading()

    def resume_writing(self) -> None:
        """Go on reading."""
        self._is_writable = True
        self._adjust_reading()

    def close(self) -> None:
        """Close the connection once what was written is sent."""
        self.transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    def refuse(self, reason: str) -> None:
        """Close the connection for bytes that are no request; logged once, with the peer."""
        if not self.is_lost and not self.transport.is_closing():
            logger.warning("closed connection peer=%s reason=%s", self.peer, reason)
            self._frame = None
            self.transport.abort()

    def reply(self, chunks: list[Chunk]) -> None:
        """Write a response that is ready when its request is served, after those before it."""
        if not self._pending:
            self._write(chunks)
            return
        slot = Slot(None)
        slot.chunks = chunks
        self._pending.append(slot)

    def reply_later(self, awaited: asyncio.Future[Any]) -> Slot:
        """Reserve the next response's place for one that is not ready yet."""
        slot = Slot(awaited)
        self._pending.append(slot)
        if len(self._pending) >= self._pending_max:
            self._adjust_reading()
        return slot

    def fill(self, slot: Slot, chunks: list[Chunk] | None) -> None:
        """Give a reserved place its response (None: there is none) and write what can go out."""
        slot.chunks = [] if chunks is None else chunks
        pending = self._pending
        while pending and pending[0].chunks is not None:
            ready = pending.popleft()
            if ready.chunks and not self.is_lost:
                self._write(ready.chunks)
        if self._is_paused:
            self._adjust_reading()

    def _take_shared(self, nbytes: int) -> None:
        """Cut the frames out of what came into the shared buffer, and keep the rest."""
        data: memoryview = _SHARED_VIEW[:nbytes]
        if self._prefix:
            data = memoryview(self._prefix + bytes(data))
            self._prefix = b""
        position, end = 0, len(data)
        while end - position >= _SIZE_BYTES:
            (size,) = SIZE.unpack_from(data, position)
            if not 0 <= size <= self._frame_size_max:
                self.refuse(f"a frame of {size} bytes, socket.request.max.bytes is "
                            f"{self._frame_size_max}")  # fmt: skip
                return
            position += _SIZE_BYTES
            if end - position < size:
                self._begin_frame(size, data[position:])
                return
            # A copy, since the shared buffer is filled anew while responses are awaited.
            self._serve(memoryview(bytearray(data[position : position + size])))
            if self.is_lost or self.transport.is_closing():
                return
            position += size
        self._prefix = bytes(data[position:])

    def _begin_frame(self, size: int, start: memoryview) -> None:
        allocated = min(size, max(_GROWTH_MIN_BYTES, 2 * len(start)))
        self._frame = frame = bytearray(allocated)
        self._frame_size = size
        self._filled = len(start)
        frame[: len(start)] = start

    def _serve(self, frame: memoryview) -> None:
        self._dispatcher.serve(self, frame)

    def _write(self, chunks: list[Chunk]) -> None:
        if len(chunks) == 1:
            self.transport.write(chunks[0])
            return
        joined: list[Chunk] = []
        small: list[Chunk] = []
        for chunk in chunks:
            if len(chunk) < _JOIN_BELOW_BYTES:
                small.append(chunk)
                continue
            joined.append(b"".join(small))
            joined.append(chunk)
            small = []
        if small:
            joined.append(b"".join(small))
        if len(joined) == 1:
            self.transport.write(joined[0])
        else:
            self.transport.writelines(joined)

    def _adjust_reading(self) -> None:
        wants_pause = not self._is_writable or len(self._pending) >= self._pending_max
        if wants_pause == self._is_paused or self.is_lost or self.transport.is_closing():
            return
        self._is_paused = wants_pause
        if wants_pause:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()


class Slot:
    """A response's place in the order of its connection."""

    __slots__ = ("_awaited", "chunks")

    def __init__(self, awaited: asyncio.Future[Any] | None) -> None:
        self._awaited = awaited
        self.chunks: list[Chunk] | None = None

    def cancel(self) -> None:
        """Stop waiting: the client is gone."""
        if self._awaited is not None and not self._awaited.done():
            self._awaited.cancel()
