"""Checks a client's first message before OpenSSL, and refuses one that would cost too much.

    record      type (22), version (3, x), length (2 bytes), a piece of a message
    message     type (1), length (3 bytes), version, random, session id, cipher suites,
                compression methods, extensions: type (2), length (2), content

A client hello of 1,100 bytes with a key share of the group ffdhe8192 costs the broker 120 ms, and
its sender nothing (CVE-2002-20001); Python has no setting for the groups to serve. Every client
supports a group of elliptic curves, which takes 3 ms at most, so groups of finite fields
(RFC 7919) are refused. OpenSSL searches all groups of the client for each key share, 90 ms for
60 KB, so their numbers are bounded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from odradek.broker.security.tls.reasons import NOT_TLS, HandshakeFailed

# Has room for the longest session ticket; OpenSSL's own bound is twice as high. Most messages are
# below 2 KiB.
MESSAGE_MAX_BYTES = 64 * 1024
# A message may come in many small records, each with a header of 5 bytes.
_RAW_MAX_BYTES = MESSAGE_MAX_BYTES + 16 * 1024
GROUPS_MAX, KEY_SHARES_MAX = 256, 32

_RECORD = struct.Struct(">BBBH")
_HANDSHAKE_RECORD, _VERSION_MAJOR = 0x16, 3
_CLIENT_HELLO = 1
_MESSAGE_HEADER_BYTES = 4
_VERSION_AND_RANDOM_BYTES = 34
_SUPPORTED_GROUPS, _KEY_SHARE = 10, 51
_FINITE_FIELDS = range(0x0100, 0x0200)


class HelloRefused(HandshakeFailed):
    """A client hello that is not passed on to OpenSSL; the client gets an alert."""


class FirstMessage:
    """Gathers bytes until the client hello is complete."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._position = 0  # of the first incomplete record
        self._message = bytearray()

    @property
    def has_begun(self) -> bool:
        """Whether any bytes have come."""
        return bool(self._raw)

    def take(self, data: memoryview) -> bytes | None:
        """Take bytes; return all bytes once the client hello is complete, None before.

        Raises HandshakeFailed.
        """
        self._raw += data
        if self._raw[0] != _HANDSHAKE_RECORD:
            raise HandshakeFailed(NOT_TLS)
        if len(self._raw) > _RAW_MAX_BYTES:
            raise HelloRefused(f"{len(self._raw)} bytes came without a whole client hello")
        while self._take_record():
            if self._is_whole():
                check(bytes(self._message[_MESSAGE_HEADER_BYTES:]))
                return bytes(self._raw)
        return None

    def _take_record(self) -> bool:
        """Take the next record if it is complete; return whether it is."""
        start = self._position + _RECORD.size
        if start > len(self._raw):
            return False
        kind, major, _, size = _RECORD.unpack_from(self._raw, self._position)
        if major != _VERSION_MAJOR:
            raise HandshakeFailed(NOT_TLS)
        if kind != _HANDSHAKE_RECORD or not size:
            raise HelloRefused("another record, or an empty one, in the middle of a client hello")
        if start + size > len(self._raw):
            return False
        self._message += self._raw[start : start + size]
        self._position = start + size
        return True

    def _is_whole(self) -> bool:
        """Return whether the message is complete; remove the bytes after it."""
        if len(self._message) < _MESSAGE_HEADER_BYTES:
            return False
        size = int.from_bytes(self._message[1:_MESSAGE_HEADER_BYTES], "big")
        if self._message[0] != _CLIENT_HELLO:
            raise HelloRefused("the first message is not a client hello")
        if size > MESSAGE_MAX_BYTES:
            raise HelloRefused(
                f"a client hello of {size} bytes; the maximum is {MESSAGE_MAX_BYTES}"
            )
        del self._message[_MESSAGE_HEADER_BYTES + size :]
        return len(self._message) == _MESSAGE_HEADER_BYTES + size


def check(body: bytes) -> None:
    """Check a client hello, given without its header. Raises HelloRefused."""
    try:
        groups, shares = _offered(body)
    except (struct.error, IndexError) as error:
        raise HelloRefused("a client hello that cannot be read") from error
    if len(groups) > GROUPS_MAX or len(shares) > KEY_SHARES_MAX:
        raise HelloRefused(
            f"a client hello with {len(groups)} groups and {len(shares)} key shares; the maximum "
            f"is {GROUPS_MAX} and {KEY_SHARES_MAX}"
        )
    if any(one in _FINITE_FIELDS for one in shares) or (
        groups and all(one in _FINITE_FIELDS for one in groups)
    ):
        raise HelloRefused(
            "the client offers a key exchange by a group of a finite field (ffdhe…), which would "
            "keep the broker busy; let it offer x25519, P-256 or another elliptic curve"
        )


def _offered(body: bytes) -> tuple[list[int], list[int]]:
    """Return the groups that a client supports, and the groups of its key shares."""
    position = _VERSION_AND_RANDOM_BYTES
    position += 1 + body[position]  # session id
    position += 2 + _number(body, position)  # cipher suites
    position += 1 + body[position]  # compression methods
    groups: list[int] = []
    shares: list[int] = []
    if position >= len(body):
        return groups, shares  # TLS 1.2 without extensions
    for kind, start, end in _entries(body, position + 2, len(body)):
        if kind == _SUPPORTED_GROUPS:
            groups += (_number(body, at) for at in range(start + 2, end - 1, 2))
        elif kind == _KEY_SHARE:
            shares += (group for group, _, _ in _entries(body, start + 2, end))
    return groups, shares


def _entries(body: bytes, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Iterate over entries with a type and a length: type, start and end of the content."""
    while position < end:
        start = position + 4
        position = start + _number(body, position + 2)
        yield _number(body, start - 4), start, position


def _number(body: bytes, position: int) -> int:
    return body[position] << 8 | body[position + 1]
