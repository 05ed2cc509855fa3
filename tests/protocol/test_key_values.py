"""Keys and values of batches: what the decoder of whole records finds, found in less time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.batches import HEADER_SIZE, Record, encode_batch, read_header
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ProtocolError
from odradek.protocol.key_values import key_values, key_values_in_pieces
from odradek.protocol.legacy import decode_stored

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


def in_pieces(data: bytes, piece_count: int) -> object:
    """Return what comes in pieces, flat; and the error that ends it, if one does."""
    header, found = read_header(data), []
    try:
        for piece in key_values_in_pieces(data[HEADER_SIZE:], header.count, piece_count):
            assert len(piece) <= piece_count
            found += piece
    except ProtocolError as error:
        return found, type(error)
    return found, None


@given(RECORDS, st.integers(1, 4))
def test_pieces_are_all_that_there_is(drawn: Drawn, piece_count: int) -> None:
    data = encoded(drawn)
    assert in_pieces(data, piece_count) == (expected(data), None)


@given(RECORDS, st.integers(61, 200), st.integers(0, 255), st.integers(1, 4))
def test_pieces_of_damaged_records_end_with_an_error_or_are_keys_and_values(
    drawn: Drawn, position: int, byte: int, piece_count: int
) -> None:
    data = bytearray(encoded(drawn))
    if position < len(data):
        data[position] = byte
    found, error = in_pieces(bytes(data), piece_count)
    whole = expected(bytes(data))
    assert error is None or issubclass(error, ProtocolError)
    if isinstance(whole, list):  # nobody looks at the headers
        assert found == whole and error is None
