"""Frames: how requests and responses follow each other on a connection.

    request    | size i32 | key i16 | version i16 | correlation id i32 | client id | … body |
    response   | size i32 | correlation id i32 | … body |

The client id is a classic nullable string (i16 length) in every version. Flexible versions add
a tagged section after the header (request header v2, response header v1), except that an
ApiVersions response never has one (KIP-511).
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from odradek.dataclass import dataclass
from odradek.protocol.compiler import encode_into
from odradek.protocol.encoding import Chunk, Output
from odradek.protocol.errors import HttpRequest, ProtocolError
from odradek.protocol.schema import info_of
from odradek.protocol.wire import read_uvarint, skip_tagged

SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhih")
_RESPONSE_HEAD = struct.Struct(">ii")
_RESPONSE_HEAD_FLEXIBLE = struct.Struct(">iib")
_REQUEST_HEAD = struct.Struct(">hhi")

PRODUCE_KEY = 0
FETCH_KEY = 1
METADATA_KEY = 3
API_VERSIONS_KEY = 18

# A frame's buffer grows as its bytes arrive, so that a size alone allocates no memory.
_GROWTH_MIN_BYTES = 256 * 1024

# Kafka has no tag for a header yet. Skipping a tag takes time, and nothing else bounds them.
_HEADER_TAGS_MAX = 1_000

# The first bytes of a TLS handshake, where a frame has the high half of its size.
_TLS_HELLO = 0x1603
_TLS_SENT = (
    ": TLS was sent to a listener without it (is the client's security.protocol SSL or SASL_SSL?)"
)
# The first bytes of an HTTP request, where a frame has its size. As a number they exceed 2**30,
# which is above every bound on frames in use.
_HTTP_METHODS = frozenset(
    (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
)


class FrameReader:
    """Cuts one connection's bytes into frames; does no I/O itself.

    The bytes of a large frame are received straight into a buffer of its own, so that record
    batches go from the socket to the file without another copy. Small frames pass through a
    buffer that all connections share, which the event loop fills and empties in one step:

        reader.buffer() -> memory for the next bytes
        reader.received(count)
        reader.take() -> a frame, or None when there is none     } as often as frames are wanted
        reader.settle(): the shared buffer is free again
    """

    def __init__(self, shared: memoryview, size_max: int) -> None:
        self._shared = shared
        self._size_max, self._size_option = size_max, "socket.request.max.bytes"
        # Received bytes that are not cut yet: part of the shared buffer, or a copy of it.
        self._data: memoryview | bytes = b""
        self._position = 0
        # A frame that has arrived in part.
        self._frame: bytearray | None = None
        self._frame_size = 0
        self._filled = 0

    def limit(self, size_max: int, option: str) -> None:
        """Bound the size of later frames; `option` is the name of the bound, for errors."""
        self._size_max, self._size_option = size_max, option

    def buffer(self) -> memoryview:
        """Return the memory for the next bytes; never empty."""
        frame = self._frame
        if frame is None:
            return self._shared
        if self._filled == len(frame):
            frame.extend(bytes(min(self._frame_size, 2 * len(frame)) - len(frame)))
        return memoryview(frame)[self._filled :]

    def received(self, count: int) -> None:
        """Accept the bytes that were put at the start of buffer()."""
        if self._frame is not None:
            self._filled += count
        elif self._position == len(self._data):
            self._data, self._position = self._shared[:count], 0
        else:  # a frame's size was cut in two
            kept = bytes(self._data[self._position :])
            self._data, self._position = kept + bytes(self._shared[:count]), 0

    def take(self) -> memoryview | None:
        """Return the next whole frame, without its size; None when there is none.

        The memory is the frame's own. Raises ProtocolError for a size that no request has.
        """
        frame = self._frame
        if frame is not None:
            if self._filled < self._frame_size:
                return None
            self._frame = None
            return memoryview(frame)
        data, start = self._data, self._position + SIZE.size
        if start > len(data):
            return None
        (size,) = SIZE.unpack_from(data, self._position)
        if not 0 <= size <= self._size_max:
            if bytes(data[self._position : start]) in _HTTP_METHODS:
                raise HttpRequest("an HTTP request came to a listener of Kafka's protocol")
            raise ProtocolError(
                f"a frame of {size} bytes, {self._size_option} is {self._size_max}"
                f"{_TLS_SENT if size >> 16 == _TLS_HELLO else ''}"
            )
        end = start + size
        if end > len(data):
            self._begin(size, data[start:])
            return None
        self._position = end
        return memoryview(bytearray(data[start:end]))

    @property
    def begun_bytes(self) -> int:
        """The size of the frame that has arrived in part, 0 when there is none."""
        return 0 if self._frame is None else self._frame_size

    def settle(self) -> None:
        """Copy the rest of the shared buffer, which another connection fills next."""
        if self._position == len(self._data):
            self._data, self._position = b"", 0
        elif isinstance(self._data, memoryview):
            self._data, self._position = bytes(self._data[self._position :]), 0

    def _begin(self, size: int, start: memoryview | bytes) -> None:
        """Continue a frame in memory of its own."""
        self._frame = bytearray(min(size, max(_GROWTH_MIN_BYTES, 2 * len(start))))
        self._frame_size, self._filled = size, len(start)
        self._frame[: len(start)] = start
        self._data, self._position = b"", 0


@dataclass(slots=True)
class RequestHeader:
    """The head of a request; `body` is where the rest begins after the tags."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int


def read_request_header(frame: memoryview) -> RequestHeader:
    """Read a request's header up to its client id; a flexible header has tags after that.

    Raises ProtocolError for a frame that is too short or whose client id is malformed.
    """
    try:
        key, version, correlation_id, size = _HEAD.unpack_from(frame, 0)
    except struct.error as error:
        raise ProtocolError(f"a request of {len(frame)} bytes has no header") from error
    end = _HEAD.size + max(size, 0)
    if size < -1 or end > len(frame):
        raise ProtocolError("the client id runs past the end of the request")
    try:
        client_id = None if size < 0 else str(frame[_HEAD.size : end], "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError("the client id is not UTF-8") from error
    return RequestHeader(key, version, correlation_id, client_id, end)


def skip_header_tags(frame: memoryview, header: RequestHeader) -> None:
    """Move a flexible request's body past the tags of its header."""
    try:
        count, position = read_uvarint(frame, header.body)
        if count > _HEADER_TAGS_MAX:
            raise ProtocolError(f"{count} tagged fields in the header")
        header.body = skip_tagged(frame, position, count)
    except IndexError as error:
        raise ProtocolError("the request ends inside its header") from error


def encode_response(response: Any, version: int, correlation_id: int) -> list[Chunk]:
    """Encode a framed response as buffers to write one after the other."""
    output = Output()
    cls: type = type(response)
    if _has_tags(cls, version):
        output.extend(_RESPONSE_HEAD_FLEXIBLE.pack(0, correlation_id, 0))
    else:
        output.extend(_RESPONSE_HEAD.pack(0, correlation_id))
    encode_into(response, version, output)
    return _framed(output)


@cache
def _has_tags(cls: type, version: int) -> bool:
    """Return whether a response has a tagged section after its header."""
    info = info_of(cls)
    return version in info.flexible and info.key != API_VERSIONS_KEY


def body_bytes(message: Any, version: int) -> int:
    """Return the size of a message in a frame, with the frame's size, without its header."""
    output = Output()
    encode_into(message, version, output)
    return SIZE.size + output.size_bytes()


def encode_request(
    request: Any, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Encode a framed request, as a client sends it."""
    info = info_of(type(request))
    name = None if client_id is None else client_id.encode()
    output = Output()
    output.extend(SIZE.pack(0) + _REQUEST_HEAD.pack(info.key, version, correlation_id))
    output.extend(b"\xff\xff" if name is None else struct.pack(">h", len(name)) + name)
    if version in info.flexible:
        output.extend(b"\x00")
    encode_into(request, version, output)
    return b"".join(_framed(output))


def _framed(output: Output) -> list[Chunk]:
    """Return the encoded chunks, with the frame's size in the place that was left for it."""
    SIZE.pack_into(output, 0, output.size_bytes() - SIZE.size)
    return output.chunks()


def read_response_header(frame: memoryview, cls: type, version: int) -> tuple[int, int]:
    """Return a response's correlation id and the position of its body, as a client does."""
    (correlation_id,) = SIZE.unpack_from(frame, 0)
    position = SIZE.size
    if _has_tags(cls, version):
        count, position = read_uvarint(frame, position)
        position = skip_tagged(frame, position, count)
    return correlation_id, position
