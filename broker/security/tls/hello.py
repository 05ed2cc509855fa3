"""Looks at a client's first message before OpenSSL does, and refuses one that would cost too much.

    record      type (22), version (3, x), length (2 bytes), a piece of a message
    message     type (1), length (3 bytes), version, random, session id, cipher suites,
                compression methods, extensions: type (2), length (2), content

A client hello of 1,100 bytes with a key share of the group ffdhe8192 costs the broker 120 ms, and
its sender nothing (CVE-2002-20001); Python cannot say which groups are served. Every client knows
a group of elliptic curves, which are done within 3 ms, so those of finite fields (RFC 7919) are
refused. OpenSSL looks each key share up among all groups of the client: 90 ms for 60 KB, so they
are counted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from broker.security.tls.reasons import NOT_TLS, HandshakeFailed

# Room for the longest session ticket; OpenSSL takes twice as much. Most are below 2 KiB.
MESSAGE_MAX_BYTES = 64 * 1024
# What comes in many small records has a header of 5 bytes for each.
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
    """A client hello that OpenSSL shall not see; the client gets an alert."""


class FirstMessage:
    """Gathers what comes until the client hello is whole."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._position = 0  # of the first record that has not come whole
        self._message = bytearray()

    @property
    def has_begun(self) -> bool:
        """Return whether anything has come."""
        return bool(self._raw)

    def take(self, data: memoryview) -> bytes | None:
        """Take bytes; return all that came once the client hello is whole, None before.

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
        """Take the next record if it has come whole."""
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
        """Return whether the message has come whole; forget what follows it."""
        if len(self._message) < _MESSAGE_HEADER_BYTES:
            return False
        size = int.from_bytes(self._message[1:_MESSAGE_HEADER_BYTES], "big")
        if self._message[0] != _CLIENT_HELLO:
            raise HelloRefused("the first message is no client hello")
        if size > MESSAGE_MAX_BYTES:
            raise HelloRefused(
                f"a client hello of {size} bytes, {MESSAGE_MAX_BYTES} are the most"
            )
        del self._message[_MESSAGE_HEADER_BYTES + size :]
        return len(self._message) == _MESSAGE_HEADER_BYTES + size


def check(body: bytes) -> None:
    """Look through a client hello, given without its header. Raises HelloRefused."""
    try:
        groups, shares = _offered(body)
    except (struct.error, IndexError) as error:
        raise HelloRefused("a client hello that cannot be read") from error
    if len(groups) > GROUPS_MAX or len(shares) > KEY_SHARES_MAX:
        raise HelloRefused(
            f"a client hello with {len(groups)} groups and {len(shares)} key shares, "
            f"{GROUPS_MAX} and {KEY_SHARES_MAX} are the most"
        )
    if any(one in _FINITE_FIELDS for one in shares) or (
        groups and all(one in _FINITE_FIELDS for one in groups)
    ):
        raise HelloRefused(
            "the client wants to agree on a key by a group of a finite field (ffdhe…), which "
            "would keep the broker busy; let it offer x25519, P-256 or another elliptic curve"
        )


def _offered(body: bytes) -> tuple[list[int], list[int]]:
    """Return the groups that a client knows, and those that it sends key shares of."""
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
    """Yield what is preceded by a type and a length: type, start and end of the content."""
    while position < end:
        start = position + 4
        position = start + _number(body, position + 2)
        yield _number(body, start - 4), start, position


def _number(body: bytes, position: int) -> int:
    return body[position] << 8 | body[position + 1]
