"""Turns a declaration and a version into an encode and a decode function.

The functions are emitted as Python source, one pair for each struct and version, lazily, and
put into linecache so that tracebacks show them. To read one:

    python -m odradek.protocol.compiler Fetch 12

Neighbouring fields of fixed size share one struct call. `records` fields are never copied:
decoding yields a slice of the frame, encoding appends the buffer itself to the chunks.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from odradek.protocol.decoding import emit_decode
from odradek.protocol.emitter import Emitter
from odradek.protocol.encoding import Chunk, Output, emit_encode
from odradek.protocol.errors import ProtocolError
from odradek.protocol.footprint import UNLIMITED
from odradek.protocol.schema import info_of

T = TypeVar("T")
Decoder = Callable[[memoryview, int, list[int]], tuple[Any, int]]
Encoder = Callable[[Any, Callable[[Chunk], None]], None]

# Messages' codecs by class and version; structs' also by flexibility, which they inherit.
_DECODERS: dict[tuple[type, int], Decoder] = {}
_ENCODERS: dict[tuple[type, int], Encoder] = {}
_STRUCT_DECODERS: dict[tuple[type, int, bool], Decoder] = {}
_STRUCT_ENCODERS: dict[tuple[type, int, bool], Encoder] = {}


def decode(cls: type[T], version: int, buffer: Chunk, position: int = 0) -> T:
    """Decode a message that ends where the buffer ends.

    Raises ProtocolError for bytes that are not such a message, for trailing bytes, and for a
    version that the message does not have.
    """
    view = memoryview(buffer)
    value, end = decode_prefix(cls, version, view, position)
    if end != len(view):
        raise ProtocolError(f"{cls.__name__} v{version}: {len(view) - end} bytes too many")
    return value


def decode_prefix(
    cls: type[T], version: int, view: memoryview, position: int = 0, memory_max: int = UNLIMITED
) -> tuple[T, int]:
    """Decode a message at a position; return it and the position after it.

    Bytes from a client need a `memory_max` (footprint.py). Raises as decode does.
    """
    decoder = _DECODERS.get((cls, version)) or _message_decoder(cls, version)
    try:
        return decoder(view, position, [memory_max])
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"{cls.__name__} v{version} is truncated") from error
    except UnicodeDecodeError as error:
        raise ProtocolError(f"{cls.__name__} v{version}: a string is not UTF-8") from error


def encode(value: Any, version: int) -> bytes:
    """Encode a message as one bytes object.

    Raises ProtocolError for a value that its type, or the version, cannot hold.
    """
    output = Output()
    encode_into(value, version, output)
    return b"".join(output.chunks())


def encode_into(value: Any, version: int, output: Output) -> None:
    """Append a message's encoding to an output, without a copy of `records`."""
    cls = type(value)
    encoder = _ENCODERS.get((cls, version)) or _message_encoder(cls, version)
    try:
        encoder(value, output.extend)
    except (struct.error, UnicodeEncodeError) as error:
        raise ProtocolError(f"{cls.__name__} v{version} cannot hold it: {error}") from error


def _message_decoder(cls: type, version: int) -> Decoder:
    _DECODERS[cls, version] = made = _decoder(cls, version, _is_flexible(cls, version))
    return made


def _message_encoder(cls: type, version: int) -> Encoder:
    _ENCODERS[cls, version] = made = _encoder(cls, version, _is_flexible(cls, version))
    return made


def _is_flexible(cls: type, version: int) -> bool:
    info = info_of(cls)
    if version not in info.versions:
        raise ProtocolError(f"{cls.__name__} has no version {version}")
    return version in info.flexible


def _decoder(cls: type, version: int, flexible: bool) -> Decoder:
    key = (cls, version, flexible)
    if key not in _STRUCT_DECODERS:
        emitter = Emitter(cls, version, flexible, lambda inner: _decoder(inner, version, flexible))
        emit_decode(emitter)
        _STRUCT_DECODERS[key] = emitter.compile("decode")
    return _STRUCT_DECODERS[key]


def _encoder(cls: type, version: int, flexible: bool) -> Encoder:
    key = (cls, version, flexible)
    if key not in _STRUCT_ENCODERS:
        emitter = Emitter(cls, version, flexible, lambda inner: _encoder(inner, version, flexible))
        emit_encode(emitter)
        _STRUCT_ENCODERS[key] = emitter.compile("encode")
    return _STRUCT_ENCODERS[key]


def _print_source(name: str, version: int) -> None:
    """Print both functions of each of an API's messages and of the structs inside them."""
    from odradek.protocol.messages import message_classes

    def show(cls: type, flexible: bool) -> None:
        for emit in (emit_decode, emit_encode):
            inner: list[type] = []
            emitter = Emitter(cls, version, flexible, inner.append)
            emit(emitter)
            sys.stdout.write(f"# {cls.__name__} v{version}\n{emitter.source()}\n")
        for struct_class in dict.fromkeys(inner):
            show(struct_class, flexible)

    for cls in message_classes(name):
        show(cls, _is_flexible(cls, version))


if __name__ == "__main__":
    _print_source(sys.argv[1], int(sys.argv[2]))
