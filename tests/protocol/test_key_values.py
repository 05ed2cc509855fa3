"""Keys and values of batches: what the decoder of whole records finds, found in less time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.batches import Record, encode_batch, read_header
from protocol.compression import Codec
from protocol.errors import ProtocolError
from protocol.key_values import key_values
from protocol.legacy import decode_stored

# Sizes around those where a varint takes another byte, and past what is read without a call.
PARTS = st.one_of(
    st.binary(max_size=4),
    st.sampled_from([63, 64, 65, 8_190, 8_191, 8_192, 9_000]).map(bytes),
)
Drawn = list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes]]]]
RECORDS: st.SearchStrategy[Drawn] = st.lists(
    st.tuples(
        st.none() | PARTS,
        st.none() | PARTS,
        st.integers(0, 2**40),
        st.lists(st.tuples(st.text(max_size=2), st.binary(max_size=2)), max_size=1),
    ),
    min_size=1,
    max_size=5,
)


def encoded(drawn: Drawn) -> bytes:
    return encode_batch(
        [
            Record(offset, timestamp, key, value, tuple(headers))
            for offset, (key, value, timestamp, headers) in enumerate(drawn)
        ]
    )


def outcome(data: bytes) -> object:
    try:
        return key_values(read_header(data), data)
    except ProtocolError as error:
        return type(error)


def expected(data: bytes) -> object:
    try:
        return [(one.key, one.value) for one in decode_stored(data) if one.key is not None]
    except ProtocolError as error:
        return type(error)


@given(RECORDS)
def test_they_are_those_of_the_records(drawn: Drawn) -> None:
    data = encoded(drawn)
    assert outcome(data) == expected(data)


@given(RECORDS, st.integers(61, 200), st.integers(0, 255))
def test_damage_is_found_where_it_lies(drawn: Drawn, position: int, byte: int) -> None:
    data = bytearray(encoded(drawn))
    if position < len(data):
        data[position] = byte
    assert outcome(bytes(data)) == expected(bytes(data))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_compressed_batches_are_read(codec: Codec) -> None:
    records = [Record(at, 5, b"%d" % at, b"v" * 100) for at in range(3)]
    data = encode_batch(records, codec=codec)
    assert outcome(data) == [(b"%d" % at, b"v" * 100) for at in range(3)]
