"""Properties of every declared message; those of damaged bytes draw the version too."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.compiler import decode, encode
from odradek.protocol.errors import ProtocolError
from odradek.protocol.schema import fields_of, info_of
from odradek.protocol.wire import uvarint
from tests.protocol.dense import filled
from tests.protocol.strategies import (
    MESSAGES,
    examples,
    label,
    versioned,
)
from tests.support.each import of_each

# What a decoder may allocate for each byte it reads. The tightest arrays of structs take two
# bytes an item, and an item, with the list in it, some hundred bytes of Python objects.
ALLOCATED_PER_BYTE = 64
ALLOCATED_FIXED_BYTES = 16 * 1024


def versions_of(cls: type) -> list[int]:
    return list(info_of(cls).versions)


def flexible_versions_of(cls: type) -> list[int]:
    return [version for version in versions_of(cls) if version in info_of(cls).flexible]


@of_each(MESSAGES)
def test_decoding_inverts_encoding(cls: type) -> None:
    versions = versions_of(cls)

    @examples(2 * len(versions))
    @given(versioned(cls, versions))
    def check(drawn: tuple[int, Any]) -> None:
        version, value = drawn
        assert decode(cls, version, encode(value, version)) == value

    check()
    for version in versions:  # the examples may miss some
        value = filled(cls, version)
        assert decode(cls, version, encode(value, version)) == value


@of_each(MESSAGES)
def test_any_bytes_give_a_value_or_a_protocol_error(cls: type) -> None:
    @examples(20)
    @given(st.sampled_from(versions_of(cls)), st.binary(max_size=200))
    def check(version: int, noise: bytes) -> None:
        decode_or_refuse(cls, version, noise)

    check()


@of_each(MESSAGES)
def test_damaged_messages_give_a_value_or_a_protocol_error(cls: type) -> None:
    @examples(5)
    @given(versioned(cls, versions_of(cls)), st.randoms(use_true_random=False))
    def check(drawn: tuple[int, Any], chance: random.Random) -> None:
        version, value = drawn
        encoded = encode(value, version)
        for _ in range(12):
            decode_or_refuse(cls, version, damage(encoded, chance))

    check()


@of_each(MESSAGES)
def test_no_prefix_of_a_message_is_a_message(cls: type) -> None:
    @examples(4)
    @given(versioned(cls, versions_of(cls)))
    def check(drawn: tuple[int, Any]) -> None:
        version, value = drawn
        encoded = encode(value, version)
        for wrong in [encoded[:size] for size in range(len(encoded))] + [encoded + b"\x00"]:
            with pytest.raises(ProtocolError):
                decode(cls, version, wrong)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("cls", MESSAGES, ids=label)
def test_a_huge_count_or_length_allocates_nothing_like_it(cls: type) -> None:
    @examples(2)
    @given(versioned(cls, versions_of(cls)))
    def check(drawn: tuple[int, Any]) -> None:
        version, value = drawn
        encoded = encode(value, version)
        decode(cls, version, encoded)  # compiles the decoder, which allocates too
        for huge in (uvarint(2**31 - 1), b"\x7f\xff\xff\xff", b"\x7f\xff"):
            for position in range(0, len(encoded), 1 + len(encoded) // 20):
                damaged = encoded[:position] + huge + encoded[position + len(huge) :]
                allocated = ALLOCATED_PER_BYTE * len(damaged) + ALLOCATED_FIXED_BYTES
                assert peak_of_decoding(cls, version, damaged) < allocated

    tracemalloc.start()
    try:
        check()
    finally:
        tracemalloc.stop()


@of_each([cls for cls in MESSAGES if flexible_versions_of(cls)])
def test_unknown_tagged_fields_are_skipped(cls: type) -> None:
    unknown_fields = st.lists(st.binary(max_size=200), min_size=1, max_size=3)

    @examples(5)
    @given(versioned(cls, flexible_versions_of(cls)), unknown_fields)
    def check(drawn: tuple[int, Any], unknown: list[bytes]) -> None:
        version, value = drawn
        encoded = encode(value, version)
        tagged_at = len(encode(without_tagged(value), version)) - 1
        count = encoded[tagged_at] + len(unknown)  # the count of one byte leads the section
        section = encoded[tagged_at + 1 :] + b"".join(
            uvarint(1000 + index) + uvarint(len(data)) + data for index, data in enumerate(unknown)
        )
        assert decode(cls, version, encoded[:tagged_at] + uvarint(count) + section) == value

    check()


def decode_or_refuse(cls: type, version: int, noise: bytes) -> None:
    """Decode; a value that comes out must survive being sent on."""
    try:
        value: Any = decode(cls, version, noise)
    except ProtocolError:
        return
    again = decode(cls, version, encode(value, version))
    # A number that is none does not equal itself.
    assert again == value or repr(again) == repr(value)


def peak_of_decoding(cls: type, version: int, noise: bytes) -> int:
    """Return how many bytes a decode held at most, whether or not it succeeded."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    with contextlib.suppress(ProtocolError):
        decode(cls, version, noise)
    return tracemalloc.get_traced_memory()[1] - before


def damage(encoded: bytes, chance: random.Random) -> bytes:
    """Change, insert or drop some bytes; extreme values are likely."""
    damaged = bytearray(encoded or b"\x00")
    for _ in range(chance.randint(1, 3)):
        position = chance.randrange(len(damaged) + 1)
        patch = chance.choice(
            [b"\xff", b"\x00", b"\x7f", b"\x80", b"\xff" * 4, b"\x7f\xff\xff\xff"]
        )
        if chance.random() < 0.3:
            patch = chance.randbytes(chance.randint(1, 6))
        dropped = chance.choice([0, len(patch), len(patch), 3])
        damaged[position : position + dropped] = patch
    return bytes(damaged)


def without_tagged(value: Any) -> Any:
    """Copy a message with its own tagged fields at their defaults, so that none travels."""
    tagged = [field for field in fields_of(type(value)) if field.spec.tag is not None]
    return dataclasses.replace(value, **{field.name: field.default() for field in tagged})
