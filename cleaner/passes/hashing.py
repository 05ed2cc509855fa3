"""The hash of keys: a polynomial at a secret point, as compiled loops and in plain Python.

Two keys with the same hash would silently lose a record, so the hash must make that practically
impossible, for keys of anyone's choice. It is a polynomial, evaluated modulo the prime
P = 2^61 - 1 at a point that is drawn for every run and never leaves it, and a second polynomial
at a second point:

    h(key) = (n + 1) x^(w+1) + k1 x^w + ... + kw x      n: the key's length, k: its 7-byte words

Two different keys give two different polynomials of a degree of at most w + 1, so that any
given difference between their hashes occurs with a probability of at most (w + 1) / P, over the
choice of the point, and ((w + 1) / P)^2 for both hashes. This is a theorem about every pair of
keys, not a hope about typical ones (Carter and Wegman, 1979). Of the 122 bits a slot stores 96;
the other 26 determine where the search for the key begins, which also separates keys, since a
search ends at the next free slot. With searches of 100 slots (13 are usual) the probability that
any two of N keys are confused is below

    200 N max(N / 16, 2^26) (w + 1)^2 / 2^122

which is 4 * 10^-17 for 10^9 keys of 16 bytes, and below 10^-12 for as many keys of 4 KB.

The point is secret because an attacker who knew it could solve for keys that collide. Speed:
two multiplications per word and hash, and the two hashes overlap.

A second, shorter hash is used in the key filters stored beside clean segments: it has a secret
of its own, which stays the same as long as the log exists. An attacker who learned it could make
filters answer "maybe" for absent keys, but no record would be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from numba import types

from odradek.dataclass import dataclass
from odradek.protocol.intrinsics import load_uint64, multiply_high
from odradek.protocol.kernel import BYTES, INT64, Bytes, kernel, uint64

UINT64 = types.uint64
UINT64_TRIPLE = cast(Any, types).Tuple((UINT64, UINT64, UINT64))

PRIME = 2**61 - 1
_WORD_BYTES = 7
_STORED_BITS = 48  # of each of the two polynomials' 61
_STORED_MASK = 2**48 - 1
_HOME_MASK = 0xFFFFFFFF
_UINT64 = 2**64 - 1


@dataclass(frozen=True, slots=True)
class HashKey:
    """The secret points of one run's hashes."""

    point_a: int
    point_b: int

    @classmethod
    def draw(cls, random_below: Callable[[int], int]) -> HashKey:
        """Draw the points; `random_below` must be as hard to guess as secrets.randbelow."""
        return cls(random_below(PRIME), random_below(PRIME))


@kernel(UINT64, UINT64, UINT64)
def multiply_modulo(a: int, b: int) -> int:
    """Multiply modulo the prime, without the last subtraction: less than 2^61 + 2."""
    low = a * b
    high = multiply_high(a, b)
    total = (low & uint64(PRIME)) + ((low >> uint64(61)) | (high << uint64(3)))
    return (total & uint64(PRIME)) + (total >> uint64(61))


@kernel(UINT64, BYTES, INT64, INT64)
def read_word(data: Bytes, position: int, size: int) -> int:
    """Read up to seven bytes, the least significant first."""
    if position + 8 <= data.size:
        mask = (uint64(1) << uint64(8 * size)) - uint64(1)
        return load_uint64(data, position) & mask
    word = uint64(0)
    for at in range(size):
        word |= uint64(data[position + at]) << uint64(8 * at)
    return word


@kernel(UINT64_TRIPLE, BYTES, INT64, INT64, UINT64, UINT64)
def hash_key(
    data: Bytes, position: int, length: int, point_a: int, point_b: int
) -> tuple[int, int, int]:
    """Hash a key; return word 0, word 1 without an ordinal, and the 32 bits that place it."""
    a = b = uint64(length + 1)
    end = position + length
    while position + _WORD_BYTES <= end:
        word = read_word(data, position, _WORD_BYTES)
        a = multiply_modulo(a, point_a) + word
        b = multiply_modulo(b, point_b) + word
        position += _WORD_BYTES
    if position < end:
        word = read_word(data, position, end - position)
        a = multiply_modulo(a, point_a) + word
        b = multiply_modulo(b, point_b) + word
    a = multiply_modulo(a, point_a)
    b = multiply_modulo(b, point_b)
    if a >= uint64(PRIME):
        a -= uint64(PRIME)
    if b >= uint64(PRIME):
        b -= uint64(PRIME)
    stored_a, stored_b = a & uint64(_STORED_MASK), b & uint64(_STORED_MASK)
    rest = (a >> uint64(_STORED_BITS)) << uint64(13) | b >> uint64(_STORED_BITS)
    word_0 = stored_a << uint64(16) | stored_b >> uint64(32)
    word_1 = stored_b << uint64(32)
    # The unstored bits place the key, shifted by a mixture of the stored bits: keys that agree
    # in the stored bits keep their distance, all others spread evenly.
    mixture = (word_0 ^ (word_1 + (word_0 >> uint64(29)))) * uint64(0x9E3779B97F4A7C15)
    mixture = (mixture ^ (mixture >> uint64(32))) * uint64(0xD6E8FEB86659FD93)
    home = ((rest << uint64(6)) + (mixture >> uint64(32))) & uint64(_HOME_MASK)
    return word_0, word_1, home


@kernel(UINT64, BYTES, INT64, INT64, UINT64)
def hash_for_filter(data: Bytes, position: int, length: int, point: int) -> int:
    """Hash a key to 64 bits, with 61 bits of information, for a segment's key filter."""
    value = uint64(length + 1)
    end = position + length
    while position + _WORD_BYTES <= end:
        value = multiply_modulo(value, point) + read_word(data, position, _WORD_BYTES)
        position += _WORD_BYTES
    if position < end:
        value = multiply_modulo(value, point) + read_word(data, position, end - position)
    value = multiply_modulo(value, point)
    if value >= uint64(PRIME):
        value -= uint64(PRIME)
    # The upper bits select the bucket: they must depend on all others.
    value *= uint64(0x9E3779B97F4A7C15)
    return (value ^ (value >> uint64(32))) * uint64(0xD6E8FEB86659FD93)


def hash_key_plain(key: bytes, points: HashKey) -> tuple[int, int, int]:
    """Hash a key as hash_key() does: word 0, word 1 without an ordinal, and the 32-bit home."""
    a, b = (_evaluate(key, point) for point in (points.point_a, points.point_b))
    stored_a, stored_b = a & _STORED_MASK, b & _STORED_MASK
    rest = (a >> _STORED_BITS) << 13 | b >> _STORED_BITS
    word_0 = stored_a << 16 | stored_b >> 32
    word_1 = stored_b << 32 & _UINT64
    mixture = (word_0 ^ (word_1 + (word_0 >> 29))) * 0x9E3779B97F4A7C15 & _UINT64
    mixture = (mixture ^ mixture >> 32) * 0xD6E8FEB86659FD93 & _UINT64
    return word_0, word_1, (rest << 6) + (mixture >> 32) & 0xFFFFFFFF


def _evaluate(key: bytes, point: int) -> int:
    value = len(key) + 1
    for at in range(0, len(key), _WORD_BYTES):
        word = int.from_bytes(key[at : at + _WORD_BYTES], "little")
        value = (value * point + word) % PRIME
    return value * point % PRIME
