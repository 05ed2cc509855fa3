"""The primitive types of Kafka's protocol, and the helpers that generated codecs call.

Each name below is an annotation: `partition: int32` is an `int` for the type checker and a
four-byte big-endian integer on the wire. Classic versions write lengths as int16 (string)
or int32 (bytes, arrays) with -1 for null; flexible versions (KIP-482) write an unsigned
varint of length + 1, with 0 for null:

    classic string   | length i16 | UTF-8 |        compact string   | uvarint n+1 | UTF-8 |
    classic array    | count i32  | items |        compact array    | uvarint n+1 | items |
    uvarint          seven bits a byte, least significant group first, top bit = "more"
"""

from __future__ import annotations

import base64
from typing import Annotated, TypeAlias

from odradek.dataclass import dataclass
from odradek.protocol.errors import ProtocolError
from odradek.protocol.pacing import PACED_MIN, paced_in_codec


@dataclass(frozen=True, slots=True)
class Primitive:
    """A wire type: its name in Kafka's specs, its struct format (if of fixed size), its zero."""

    name: str
    format: str | None
    zero: object


ZERO_UUID = bytes(16)

int8: TypeAlias = Annotated[int, Primitive("int8", "b", 0)]
int16: TypeAlias = Annotated[int, Primitive("int16", "h", 0)]
int32: TypeAlias = Annotated[int, Primitive("int32", "i", 0)]
int64: TypeAlias = Annotated[int, Primitive("int64", "q", 0)]
uint16: TypeAlias = Annotated[int, Primitive("uint16", "H", 0)]
uint32: TypeAlias = Annotated[int, Primitive("uint32", "I", 0)]
float64: TypeAlias = Annotated[float, Primitive("float64", "d", 0.0)]
boolean: TypeAlias = Annotated[bool, Primitive("bool", "?", False)]
uuid: TypeAlias = Annotated[bytes, Primitive("uuid", "16s", ZERO_UUID)]
string: TypeAlias = Annotated[str, Primitive("string", None, "")]
octets: TypeAlias = Annotated[bytes, Primitive("bytes", None, b"")]
# Record batches stay opaque: decoding yields a slice of the frame, encoding takes any buffer.
records: TypeAlias = Annotated[bytes | bytearray | memoryview, Primitive("records", None, b"")]

_UVARINT_MAX_BYTES = 5
_SMALL_UVARINTS = tuple(bytes([n]) for n in range(128))


def encode_uuid(value: bytes) -> str:
    """Print a uuid as Kafka does: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned 32-bit varint; return its value and the position after it.

    Raises ProtocolError when it runs longer than five bytes, IndexError at the buffer's end.
    """
    value = 0
    for shift in range(0, 7 * _UVARINT_MAX_BYTES, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ProtocolError("a varint is longer than five bytes")


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 128:
        return _SMALL_UVARINTS[value]
    out = bytearray()
    while value >= 128:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def take(buffer: memoryview, position: int, size: int) -> memoryview:
    """Return the next `size` bytes; raise ProtocolError when fewer are left."""
    if size < 0:
        raise ProtocolError(f"negative length {size}")
    if position + size > len(buffer):
        raise size_error(size)
    return buffer[position : position + size]


def skip_tagged(buffer: memoryview, position: int, count: int) -> int:
    """Skip the `count` tagged fields that follow; return the position after them."""
    for _ in range(count) if count < PACED_MIN else paced_in_codec(range(count)):
        # Most tags and sizes take one byte; a client may send very many.
        if buffer[position] < 0x80:
            position += 1
        else:
            _, position = read_uvarint(buffer, position)
        size = buffer[position]
        position += 1
        if size > 0x7F:
            size, position = read_uvarint(buffer, position - 1)
        position += size
        if position > len(buffer):
            raise size_error(size)
    return position


def null_error(field: str) -> ProtocolError:
    """Create the error for a null in a field that may not be null."""
    return ProtocolError(f"null where the version allows none: {field}")


def size_error(size: int) -> ProtocolError:
    """Create the error for a field that is larger than the rest of the message."""
    return ProtocolError(f"a field of {size} bytes runs past the end of the message")


def count_error(count: int) -> ProtocolError:
    """Create the error for an array whose items do not fit in the rest of the message."""
    return ProtocolError(f"an array of {count} items runs past the end of the message")


def memory_error() -> ProtocolError:
    """Create the error for a message whose values would take too much memory."""
    return ProtocolError("too many tiny items: send them in several requests")


def string_error(field: str, size: int) -> ProtocolError:
    """Create the error for a string that is longer than any that Kafka reads."""
    return ProtocolError(f"a string of {size} bytes, 32767 are allowed: {field}")
