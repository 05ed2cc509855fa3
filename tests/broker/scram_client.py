"""A client's side of SCRAM, written apart from the broker's: message by message."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Salt a password."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


@dataclass
class ScramClient:
    """Who logs in; `password` is right or not."""

    mechanism: str
    name: str
    password: str
    nonce: str = "fyko+d2lbbFgONRv9qkxdawL"
    extensions: str = ""
    header: str = "n,,"

    @property
    def bare(self) -> str:
        """The first message without its header."""
        name = self.name.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r={self.nonce}{self.extensions}"

    def first(self) -> bytes:
        """Return the first message."""
        return (self.header + self.bare).encode()

    def final(self, server_first: bytes, *, nonce: str | None = None) -> bytes:
        """Return the last message; `nonce` is sent in place of the right one."""
        told = dict(part.split("=", 1) for part in server_first.decode().split(","))
        salt = base64.b64decode(told["s"])
        self._salted = salted(self.mechanism, self.password, salt, int(told["i"]))
        binding = base64.b64encode(self.header.encode()).decode()
        unproven = f"c={binding},r={nonce or told['r']}"
        self._signed = f"{self.bare},{server_first.decode()},{unproven}".encode()
        client_key = self._mac(self._salted, b"Client Key")
        stored_key = hashlib.new(HASHES[self.mechanism], client_key).digest()
        signature = self._mac(stored_key, self._signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()

    def is_servers(self, server_final: bytes) -> bool:
        """Return whether the server's last message proves that it knows the user."""
        server_key = self._mac(self._salted, b"Server Key")
        return server_final == b"v=" + base64.b64encode(self._mac(server_key, self._signed))

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, HASHES[self.mechanism])
