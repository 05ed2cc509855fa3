"""TLS between a socket and a connection: OpenSSL turns records into bytes and back, in memory.

    socket -> TlsTransport.buffer_updated -> OpenSSL -> Connection.buffer_updated
    socket <- TlsTransport.write          <- OpenSSL <- Connection

uvloop uses it as the protocol, and the connection as the transport. Its memory is bounded. It
keeps one reading of incoming bytes (a smaller one before the handshake is done), and the outgoing
bytes that the connection has written, which it encrypts only as fast as the socket takes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from odradek.broker.security.tls.hello import FirstMessage, HelloRefused
from odradek.broker.security.tls.reasons import HandshakeFailed, explain
from odradek.broker.security.tls.records import RecordBorders

if TYPE_CHECKING:
    from odradek.broker.security.tls.inner import InnerConnection
    from odradek.broker.security.tls.listeners import TlsListener
    from odradek.protocol.encoding import Chunk

logger = logging.getLogger(__name__)

_SHARED_VIEW = memoryview(bytearray(256 * 1024))
# A handshake's messages are short, and their sender is not known yet.
_HANDSHAKE_VIEW = _SHARED_VIEW[: 16 * 1024]
# The bytes that are encrypted in one call, and the bytes before others get their turn.
_PIECE_BYTES = 256 * 1024
_TURN_BYTES = 1024 * 1024
# A client that reads sees the refusal, and closes, well within this time.
_LINGER_S = 1.0
# The records that are decrypted before others get their turn: 2.5 ms of the slowest records, and
# eight readings of the largest ones.
_TURN_RECORDS = 128
_NO_BOUND = 1 << 30
# A fatal alert: handshake_failure (RFC 8446 section 6).
_HANDSHAKE_FAILURE = bytes((0x15, 3, 3, 0, 2, 2, 40))


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """One connection's TLS; the event loop owns it."""

    def __init__(self, connection: InnerConnection, listener: TlsListener) -> None:
        super().__init__()
        self._connection = connection
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        # Created when the client hello is complete: it uses the certificates in force then, and
        # silent clients cost none.
        self._tls: ssl.SSLObject
        self._socket: asyncio.Transport
        self._deadline: asyncio.TimerHandle | None = None
        self._is_established = False
        # Nothing is read any more: further bytes are thrown away.
        self._is_deaf = False
        # Gathers the client hello, until it is complete.
        self._first: FirstMessage | None = FirstMessage()
        self._borders = RecordBorders()
        # Received records that wait until others have had their turn.
        self._rest = memoryview(b"")
        # Reading: whether the connection has paused it, and whether the socket is paused.
        self._is_paused = False
        self._is_socket_paused = False
        self._is_feeding = False
        # Writing: the bytes that are not encrypted yet, in order.
        self._plain: deque[memoryview] = deque()
        self._plain_bytes = 0
        self._is_socket_full = False
        self._is_connection_held = False
        self._is_pumping_soon = False
        # The action once all is written: "close" or "eof".
        self._at_end = ""
        self._is_closing = self._is_lost = False

    # Methods that the socket's transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client to begin the handshake."""
        self._socket = cast(asyncio.Transport, transport)
        self._connection.connection_made(self)
        timeout_s = self._listener.config.odradek_tls_handshake_timeout_ms / 1000
        self._deadline = self._loop.call_later(timeout_s, self._is_late)
        self._listener.handshakes.begin(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the loss on to the connection, and free all memory."""
        self._end_handshake()
        self._is_closing = self._is_deaf = True
        self._plain.clear()
        self._plain_bytes = 0
        self._connection.connection_lost(exc)
        # This object and the connection refer to each other. OpenSSL's memory must not wait for
        # the garbage collector, which does not know how large a cycle is.
        self._is_lost = True
        self._incoming = self._outgoing = ssl.MemoryBIO()
        self._first, self._rest = None, memoryview(b"")
        with contextlib.suppress(AttributeError):
            del self._tls

    def eof_received(self) -> bool:
        """Pass on the end of the client's stream; return whether writing continues."""
        if self._is_deaf:
            return False
        if not self._is_established:
            if self._first is None or self._first.has_begun:
                self._refuse("the client ended the connection in the middle of the handshake")
            return False
        return self._pass_on_end()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next records."""
        return _SHARED_VIEW if self._is_established else _HANDSHAKE_VIEW

    def buffer_updated(self, nbytes: int) -> None:
        """Take the records that came."""
        if self._is_deaf:
            return
        data = _SHARED_VIEW[:nbytes]
        if self._is_established:
            self._decrypt_soon(data)
            if self._rest:
                self._rest = memoryview(bytes(self._rest))  # all connections share the view
            self._feed()
            return
        if self._first is not None:
            try:
                whole = self._first.take(data)
            except HandshakeFailed as error:
                if isinstance(error, HelloRefused):
                    self._socket.write(_HANDSHAKE_FAILURE)
                self._refuse(str(error))
                return
            if whole is None:
                return
            self._first, data = None, memoryview(whole)
            self._tls = self._listener.made.context.wrap_bio(
                self._incoming, self._outgoing, server_side=True
            )
        self._borders.end_of(data, _NO_BOUND)
        self._incoming.write(data)
        self._pause_socket(True)
        self._listener.handshakes.ask(self)

    def pause_writing(self) -> None:
        """Encrypt nothing more until the socket has sent its bytes."""
        self._is_socket_full = True
        self._hold_connection()

    def resume_writing(self) -> None:
        """Continue to encrypt, in a step of its own: the socket is in the middle of writing."""
        self._is_socket_full = False
        self._pump_soon()

    # The handshake.

    def step(self) -> None:
        """Advance the handshake as far as the received records allow."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_records()
            self._pause_socket(False)
            return
        except ssl.SSLError as error:
            self._send_records()  # the alert with the reason
            self._refuse(explain(error))
            return
        self._send_records()
        try:
            self._listener.identify(self._connection, self._tls)
        except HandshakeFailed as error:
            self._refuse(str(error))
            return
        self._end_handshake()
        self._is_established = True
        self._listener.succeeded(self._connection)
        self._pause_socket(self._is_paused)
        self._feed()

    def give_up(self, reason: str) -> None:
        """End a handshake that takes too long."""
        self._refuse(reason)
        self._socket.abort()

    def _is_late(self) -> None:
        timeout_ms = self._listener.config.odradek_tls_handshake_timeout_ms
        self.give_up(
            f"the handshake was not done within odradek.tls.handshake.timeout.ms={timeout_ms}"
        )

    def _end_handshake(self) -> None:
        self._listener.handshakes.end(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, reason: str) -> None:
        """Count and log an error, once, and close after the bytes that are written."""
        if self._is_deaf or self._is_closing:
            return
        self._end_handshake()
        if self._is_established:
            logger.warning("closed connection peer=%s reason=%s", self._connection.peer, reason)
        else:
            self._listener.failed(self._connection, reason)
        self._is_deaf = self._is_closing = True
        self._plain.clear()
        self._plain_bytes = 0
        # Closing with bytes unread would reset the connection, and the alert would be lost.
        self._pause_socket(False)
        if self._socket.can_write_eof() and not self._socket.is_closing():
            self._socket.write_eof()
        self._loop.call_later(_LINGER_S, self._socket.abort)

    # Reading.

    def _feed(self) -> None:
        """Decrypt records and pass the bytes to the connection, until it pauses reading."""
        if self._is_feeding:
            return
        self._is_feeding = True
        try:
            while not (self._is_paused or self._is_deaf):
                view = self._connection.get_buffer(-1)
                filled = self._decrypt(view)
                if not filled:
                    break
                del view  # the frame behind it may have to grow
                self._connection.buffer_updated(filled)
        finally:
            self._is_feeding = False
        # Answers to key updates and similar messages.
        if self._outgoing.pending:
            self._send_records()
        if self._is_deaf:
            self._rest = memoryview(b"")
            return
        if self._rest and not self._is_paused:
            self._decrypt_soon(self._rest)
            self._loop.call_soon(self._feed_if_open)
        self._pause_socket_as_needed()

    def _decrypt_soon(self, data: memoryview) -> None:
        """Hand some records to OpenSSL, and keep the rest."""
        end = self._borders.end_of(data, _TURN_RECORDS)
        self._incoming.write(data[:end])
        self._rest = data[end:]

    def _decrypt(self, view: memoryview) -> int:
        """Decrypt records into a buffer; return the number of bytes."""
        filled = 0
        try:
            while filled < len(view):
                count = cast(int, self._tls.read(len(view) - filled, view[filled:]))
                if not count:
                    self._end_soon()
                    break
                filled += count
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._end_soon()
        except ssl.SSLError as error:
            self._send_records()
            self._refuse(explain(error))
            return 0
        return filled

    def _end_soon(self) -> None:
        """Pass on the end of the client's stream, after the bytes that came before it."""
        self._loop.call_soon(self._pass_on_end)

    def _pass_on_end(self) -> bool:
        if self._is_deaf:
            return False
        self._is_deaf = True
        stays = bool(self._connection.eof_received())
        if not stays and not self._is_closing:
            self.close()
        return stays or bool(self._plain)

    def _pause_socket_as_needed(self) -> None:
        self._pause_socket(self._is_paused or self._is_socket_full or bool(self._rest))

    def _pause_socket(self, wanted: bool) -> None:
        if wanted == self._is_socket_paused or self._socket.is_closing():
            return
        self._is_socket_paused = wanted
        if wanted:
            self._socket.pause_reading()
        else:
            self._socket.resume_reading()

    # Methods that the connection calls.

    def pause_reading(self) -> None:
        """Pass no more bytes to the connection for now."""
        self._is_paused = True
        if self._is_established and not self._is_deaf:
            self._pause_socket(True)

    def resume_reading(self) -> None:
        """Continue, in a step of its own, with the records received meanwhile."""
        self._is_paused = False
        if self._is_established and not self._is_feeding:
            self._loop.call_soon(self._feed_if_open)

    def _feed_if_open(self) -> None:
        if not self._is_deaf:
            self._feed()

    def is_closing(self) -> bool:
        """Return whether the connection is closing or closed."""
        return self._is_closing or self._socket.is_closing()

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that are not sent yet."""
        return self._plain_bytes + self._socket.get_write_buffer_size()

    def write(self, data: Chunk) -> None:
        """Send bytes."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Chunk]) -> None:
        """Send several pieces of bytes."""
        if self._is_closing or self._at_end:
            return
        for data in list_of_data:
            if len(data):
                self._plain.append(memoryview(data))
                self._plain_bytes += len(data)
        if not self._is_pumping_soon:
            self._pump()

    def can_write_eof(self) -> bool:
        """Return True: TLS has an end of stream for each side."""
        return True

    def write_eof(self) -> None:
        """End the stream after the written bytes; the client's further bytes are thrown away."""
        if not self._is_established:
            self.abort()
            return
        self._at_end = self._at_end or "eof"
        self._is_deaf = True
        self._pause_socket(False)
        self._pump()

    def close(self) -> None:
        """Close after the bytes that are written."""
        if not self._is_established:
            self.abort()
            return
        self._is_closing = True
        self._at_end = "close"
        self._pump()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = self._is_deaf = True
        self._socket.abort()

    # Writing.

    def _pump(self) -> None:
        """Encrypt and send the written bytes, as far as the socket takes them in one turn."""
        sent = 0
        while self._plain and not self._is_socket_full:
            if sent >= _TURN_BYTES:
                self._pump_soon()
                break
            sent += self._send_some()
        if self._plain or self._is_socket_full:
            self._hold_connection()
            return
        if self._is_connection_held:
            self._is_connection_held = False
            self._connection.resume_writing()
        if self._at_end and not self._plain:
            self._finish()

    def _send_some(self) -> int:
        """Encrypt and send one piece; return its size."""
        size = 0
        try:
            while self._plain and size < _PIECE_BYTES:
                first = self._plain[0]
                piece = first[: _PIECE_BYTES - size]
                self._tls.write(piece)
                size += len(piece)
                if len(piece) == len(first):
                    self._plain.popleft()
                else:
                    self._plain[0] = first[len(piece) :]
        except ssl.SSLError as error:
            self._refuse(explain(error))
            return size
        self._plain_bytes -= size
        self._send_records()
        return size

    def _send_records(self) -> None:
        if self._outgoing.pending and not self._socket.is_closing():
            self._socket.write(self._outgoing.read())

    def _pump_soon(self) -> None:
        if not self._is_pumping_soon:
            self._is_pumping_soon = True
            self._loop.call_soon(self._pump_now)

    def _pump_now(self) -> None:
        self._is_pumping_soon = False
        if self._socket.is_closing():
            return
        self._pump()
        if not self._is_deaf and self._is_established:
            self._pause_socket_as_needed()

    def _hold_connection(self) -> None:
        if not self._is_connection_held and self._is_established:
            self._is_connection_held = True
            self._connection.pause_writing()

    def _finish(self) -> None:
        """Send TLS's end of stream, and end the socket's stream or the connection."""
        if self._is_lost:
            return
        with contextlib.suppress(ssl.SSLError):  # unwrap() would wait for the client's own end
            self._tls.unwrap()
        self._send_records()
        if self._socket.is_closing():
            return
        if self._at_end == "close":
            self._socket.close()
        else:
            self._socket.write_eof()
