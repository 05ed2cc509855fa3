"""Tokens that represent keys in memory: the key itself, or a digest of a long key.

Keys may be of any size, and compress to nearly nothing: a thousand batches of some hundred bytes
may hold 60 GB of them. Two keys have one token only when their BLAKE2b digests are the same.
"""

from __future__ import annotations

from hashlib import blake2b

# A longer token represents a longer key; no key up to this size has such a token.
KEY_BYTES_MAX = 255


def token_of(key: bytes) -> bytes:
    """Return the token that represents a key."""
    if len(key) <= KEY_BYTES_MAX:
        return key
    return blake2b(key).digest().ljust(KEY_BYTES_MAX + 1)


def key_of(token: bytes) -> bytes | None:
    """Return the key that a token represents, None when the key was too long to be kept."""
    return token if len(token) <= KEY_BYTES_MAX else None
