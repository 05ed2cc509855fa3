"""What is fuzzed: functions of bytes that end in a value or a protocol error, or find a bug.

Each takes any bytes, and raises only when a promise is broken. `tests/fuzz/run.py` feeds them
bytes that reach new code; `tests/fuzz/test_targets.py` the ones that were kept.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator

from odradek.broker.api_table import BY_KEY
from odradek.broker.security.oauth.jwks import BadKeySet, read_key_set
from odradek.broker.security.oauth.validation import InvalidToken, read_header
from odradek.broker.security.sasl.exchange import AuthenticationFailed
from odradek.broker.security.sasl.oauthbearer import read_first
from odradek.broker.security.sasl.plain import PlainExchange
from odradek.broker.security.sasl.scram_messages import read_client_final, read_client_first
from odradek.protocol import records_plain
from odradek.protocol.batch_records import decode_records, record_section
from odradek.protocol.batches import batch_crc, iterate_batches
from odradek.protocol.compiler import decode, decode_prefix, encode
from odradek.protocol.compression import Codec, compress, decompress
from odradek.protocol.errors import ProtocolError
from odradek.protocol.footprint import memory_max
from odradek.protocol.frames import SIZE, FrameReader, read_request_header, skip_header_tags
from odradek.protocol.legacy import decode_entry, decode_stored, read_stored_header, stored_crc
from odradek.protocol.messages import message_classes
from odradek.protocol.records_plain import InvalidRecord
from odradek.protocol.schema import info_of

DECOMPRESSED_MAX_BYTES = 1 << 20
FRAME_SIZE_MAX = 1 << 12
SHARED_BYTES = 64

Target = Callable[[bytes], None]


def request(data: bytes) -> None:
    """Decode | API key u8 | version u8 | body |; what decodes is the same after a round trip."""
    if len(data) < 2:
        return
    api = BY_KEY.get(data[0])
    cls = message_classes(api.name)[0] if api else None
    version, body = data[1], memoryview(data)[2:]
    if cls is None or version not in info_of(cls).versions:
        return
    try:
        value, end = decode_prefix(cls, version, body, 0, memory_max(len(body)))
    except ProtocolError:
        return
    assert end <= len(body)
    again = decode(cls, version, encode(value, version))
    # A number that is none does not equal itself.
    assert again == value or repr(again) == repr(value)


def frames(data: bytes) -> None:
    """Cut | seed of the chunks u8 | stream | into the same frames, whatever the chunks are."""
    if not data:
        return
    sizes, stream = data[0], data[1:]
    cut = list(_cut(stream, sizes))
    assert cut == list(_frames_of(stream))
    for frame in cut:
        if frame is not None:
            with contextlib.suppress(ProtocolError):
                header = read_request_header(memoryview(frame))
                assert header.body <= len(frame)
                skip_header_tags(memoryview(frame), header)
                assert header.body <= len(frame)


def batches(data: bytes) -> None:
    """Read bytes as batches of magic 2, and their records."""
    with contextlib.suppress(ProtocolError):
        for position, header in iterate_batches(data):
            assert position + header.size_bytes <= len(data)
            batch_crc(data, position, header.size_bytes)
            with contextlib.suppress(ProtocolError):
                record_section(data, position, header, DECOMPRESSED_MAX_BYTES)
            with contextlib.suppress(ProtocolError):
                found = decode_records(data, position, DECOMPRESSED_MAX_BYTES)
                assert len(found) == header.count


def legacy(data: bytes) -> None:
    """Read bytes as a message of magic 0 or 1, or a wrapper of such."""
    with contextlib.suppress(ProtocolError):
        assert decode_entry(data, 0, DECOMPRESSED_MAX_BYTES)
    with contextlib.suppress(ProtocolError):
        stored_crc(read_stored_header(data), data)
        decode_stored(data, 0, DECOMPRESSED_MAX_BYTES)


def compression(data: bytes) -> None:
    """Decompress | codec u8 | bytes | within bounds; what comes out survives compression."""
    if not data:
        return
    codec = Codec(data[0] % len(Codec))
    try:
        found = decompress(codec, data[1:], FRAME_SIZE_MAX)
    except ProtocolError:
        return
    assert len(found) <= FRAME_SIZE_MAX
    assert decompress(codec, compress(codec, found), len(found)) == found


def kernels(data: bytes) -> None:
    """Walk | count i16 | keys wanted u8 | time u8 | section | by kernels and by their twins."""
    if len(data) < 4:
        return
    from odradek.protocol import records

    count, require_keys, since = struct.unpack_from(">h?B", data)
    start, end = 4, len(data)
    plain = records_plain.validate_records_plain(data, start, end, count, require_keys)
    assert records.validate_records(data, start, end, count, require_keys) == plain
    search = data, start, end, count, since - 100, since, 0
    found = records_plain.first_at_or_after_plain(*search)
    assert records.first_at_or_after(*search) == found
    try:
        rows = [tuple(row) for row in records.scan(data, start, end, count).tolist()]
    except InvalidRecord as error:
        assert error.status == plain.status
        return
    assert rows == list(_rows(data, start, end, count))


def logins(data: bytes) -> None:
    """Read | which one u8 | message | as what a client says before it is known."""
    if data and data[0] < len(_LOGINS):
        _LOGINS[data[0]](data[1:])


def _scram_first(message: bytes) -> None:
    found = read_client_first(message)
    if found is not None:
        assert (found.header + found.bare).encode() == message
        assert found.name and found.nonce


def _scram_final(message: bytes) -> None:
    found = read_client_final(message)
    if found is not None:
        assert message.startswith(found.unproven.encode() + b",p=")


def _plain(message: bytes) -> None:
    with contextlib.suppress(AuthenticationFailed):
        PlainExchange({}).step(message)
        raise AssertionError("nobody is known, and somebody was let in")


def _oauthbearer(message: bytes) -> None:
    with contextlib.suppress(AuthenticationFailed):
        assert read_first(message).token.isascii()


def _token(message: bytes) -> None:
    with contextlib.suppress(InvalidToken):
        read_header(message.decode("latin-1"))


def _keys(message: bytes) -> None:
    with contextlib.suppress(BadKeySet):
        assert read_key_set(message).keys


_LOGINS: list[Target] = [_scram_first, _scram_final, _plain, _oauthbearer, _token, _keys]


TARGETS: dict[str, Target] = {
    one.__name__: one for one in (request, frames, batches, legacy, compression, kernels, logins)
}


def _cut(stream: bytes, seed: int) -> Iterator[bytes | None]:
    """Yield what a FrameReader makes of a stream in chunks of changing sizes; None at an error."""
    shared = bytearray(SHARED_BYTES)
    reader = FrameReader(memoryview(shared), FRAME_SIZE_MAX)
    position = turn = 0
    while position < len(stream):
        turn += 1
        buffer = reader.buffer()
        assert 0 < len(buffer) <= max(SHARED_BYTES, FRAME_SIZE_MAX)
        count = min(1 + seed * turn % 61, len(buffer), len(stream) - position)
        buffer[:count] = stream[position : position + count]
        del buffer  # a frame that is being extended may have no other views
        reader.received(count)
        position += count
        try:
            while (frame := reader.take()) is not None:
                yield bytes(frame)
        except ProtocolError:
            yield None
            return
        reader.settle()
        shared[:] = b"\xaa" * SHARED_BYTES  # others use it in between


def _frames_of(stream: bytes) -> Iterator[bytes | None]:
    position = 0
    while len(stream) - position >= SIZE.size:
        (size,) = SIZE.unpack_from(stream, position)
        if not 0 <= size <= FRAME_SIZE_MAX:
            yield None
            return
        position += SIZE.size
        if len(stream) - position < size:
            return
        yield stream[position : position + size]
        position += size


def _rows(data: bytes, start: int, end: int, count: int) -> Iterator[tuple[int, ...]]:
    """Yield the rows of a scan's table as read_record has them."""
    position = start
    for _ in range(count):
        after, delta, offset, key_at, key, _, value, _ = records_plain.read_record(
            data, position, end
        )
        yield position, after, offset, delta, key_at, key, value
        position = after


