"""The helpers that generated codecs call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol import wire
from odradek.protocol.errors import ProtocolError


@given(st.integers(0, 2**35 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_a_varint_is_read_back_wherever_it_stands(value: int, before: bytes, after: bytes) -> None:
    buffer = memoryview(before + wire.uvarint(value) + after)
    assert wire.read_uvarint(buffer, len(before)) == (value, len(buffer) - len(after))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (2**31 - 1, "ffffffff07"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_a_varint_has_its_least_significant_group_first(value: int, encoded: str) -> None:
    assert wire.uvarint(value).hex() == encoded


def test_a_varint_longer_than_five_bytes_is_refused() -> None:
    with pytest.raises(ProtocolError, match="five bytes"):
        wire.read_uvarint(memoryview(b"\x80\x80\x80\x80\x80\x01"), 0)


@given(st.integers(128, 2**35 - 1))
def test_a_truncated_varint_ends_in_an_index_error(value: int) -> None:
    encoded = wire.uvarint(value)
    for size in range(len(encoded)):
        with pytest.raises(IndexError):
            wire.read_uvarint(memoryview(encoded[:size]), 0)


def test_taken_bytes_are_a_slice_of_the_buffer() -> None:
    buffer = bytearray(b"abcdef")
    taken = wire.take(memoryview(buffer), 1, 3)
    buffer[1:4] = b"xyz"
    assert bytes(taken) == b"xyz"


@pytest.mark.parametrize("size", [-1, -(2**31), 4, 2**31 - 1])
def test_bytes_that_are_not_there_cannot_be_taken(size: int) -> None:
    with pytest.raises(ProtocolError):
        wire.take(memoryview(b"abcdef"), 3, size)


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.binary(max_size=200)), max_size=4))
def test_skipping_tagged_fields_ends_after_the_last(tagged: list[tuple[int, bytes]]) -> None:
    section = b"".join(wire.uvarint(tag) + wire.uvarint(len(data)) + data for tag, data in tagged)
    assert wire.skip_tagged(memoryview(section + b"rest"), 0, len(tagged)) == len(section)
    if tagged and tagged[-1][1]:
        with pytest.raises(ProtocolError):
            wire.skip_tagged(memoryview(section[:-1]), 0, len(tagged))
