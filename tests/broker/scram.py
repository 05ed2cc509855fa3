"""The client's side of SCRAM, written down from RFC 5802 for tests, with Kafka's `tokenauth`."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Mapping

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class ScramClient:
    """One attempt: first(), then final() with the server's first message, then check()."""

    def __init__(
        self, mechanism: str, user: str, password: str, *, is_token: bool = False
    ) -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        nonce = base64.b64encode(os.urandom(18)).decode()
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}" + (",tokenauth=true" if is_token else "")
        self._signature = b""

    def first(self) -> bytes:
        """Return client-first-message."""
        return f"n,,{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Return client-final-message for the server's first one."""
        told = fields(server_first)
        salt = base64.b64decode(told["s"])
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, int(told["i"]))
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        without_proof = f"c=biws,r={told['r']}"
        message = f"{self._bare},{server_first.decode()},{without_proof}".encode()
        signature = hmac.digest(stored_key, message, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._signature = hmac.digest(server_key, message, self._hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        """Assert that the server knows the password as well."""
        assert base64.b64decode(fields(server_final)["v"]) == self._signature


def fields(message: bytes) -> Mapping[str, str]:
    """Return the attributes of a message."""
    return dict(part.split("=", 1) for part in message.decode().split(","))  # type: ignore[misc]
