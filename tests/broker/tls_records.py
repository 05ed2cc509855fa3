"""TLS 1.3 by hand: client hellos of any shape, and records that no library would send."""

from __future__ import annotations

import hmac
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

HANDSHAKE, ALERT, DATA = 22, 21, 23
X25519, FFDHE2048, FFDHE8192 = 29, 0x100, 0x104
# An x25519 key share of nobody's: any bytes are one.
SHARE = (X25519, bytes(range(1, 33)))
_KEY_UPDATE = 24
_HASH, _HASH_BYTES = "sha384", 48  # of TLS_AES_256_GCM_SHA384


def extension(kind: int, content: bytes) -> bytes:
    """Write an extension."""
    return struct.pack(">HH", kind, len(content)) + content


def hello(
    groups: Sequence[int] = (X25519,),
    shares: Sequence[tuple[int, bytes]] = (SHARE,),
    more: bytes = b"",
) -> bytes:
    """Write a client hello of TLS 1.3 as a handshake message; `more` are further extensions."""
    named = b"".join(struct.pack(">H", one) for one in groups)
    shared = b"".join(extension(*one) for one in shares)
    extensions = (
        extension(43, b"\x02\x03\x04")
        + extension(13, struct.pack(">HHHH", 6, 0x0403, 0x0804, 0x0401))
        + extension(10, struct.pack(">H", len(named)) + named)
        + extension(51, struct.pack(">H", len(shared)) + shared)
        + more
    )
    body = b"\x03\x03" + os.urandom(32) + b"\0" + struct.pack(">HH", 2, 0x1302) + b"\x01\0"
    body += struct.pack(">H", len(extensions)) + extensions
    return struct.pack(">I", 1 << 24 | len(body)) + body


def records(message: bytes, size: int = 16_384, kind: int = HANDSHAKE) -> bytes:
    """Cut a message into plain records of a size."""
    pieces = (message[at : at + size] for at in range(0, len(message), size))
    return b"".join(struct.pack(">BHH", kind, 0x0301, len(one)) + one for one in pieces)


class Forger:
    """Encrypts whatever a client might send after its handshake (RFC 8446 section 5.2)."""

    def __init__(self, secret: bytes) -> None:
        self._begin(secret)

    @classmethod
    def of(cls, key_log: Path) -> Forger:
        """Make one of what SSLContext.keylog_filename has."""
        lines = (line.split() for line in key_log.read_text().splitlines())
        (secret,) = (one[2] for one in lines if one[0] == "CLIENT_TRAFFIC_SECRET_0")
        return cls(bytes.fromhex(secret))

    def record(self, kind: int, content: bytes) -> bytes:
        """Encrypt one record."""
        inner = content + bytes((kind,))
        header = struct.pack(">BHH", DATA, 0x0303, len(inner) + 16)
        number = int.from_bytes(self._iv, "big") ^ self._count
        self._count += 1
        return header + self._key.encrypt(number.to_bytes(12, "big"), inner, header)

    def key_update(self, *, asks: bool = True) -> bytes:
        """Say that new keys follow, and ask for the same."""
        message = struct.pack(">IB", _KEY_UPDATE << 24 | 1, asks)
        sent = self.record(HANDSHAKE, message)
        self._begin(_expand(self._secret, b"traffic upd", _HASH_BYTES))
        return sent

    def _begin(self, secret: bytes) -> None:
        self._secret, self._count = secret, 0
        self._key = AESGCM(_expand(secret, b"key", 32))
        self._iv = _expand(secret, b"iv", 12)


def _expand(secret: bytes, name: bytes, size: int) -> bytes:
    label = b"tls13 " + name
    info = struct.pack(">HB", size, len(label)) + label + b"\0"
    made = previous = b""
    while len(made) < size:
        previous = hmac.digest(secret, previous + info + bytes((len(made) // 48 + 1,)), _HASH)
        made += previous
    return made[:size]
