"""A connection to a running broker on which somebody has logged in, by PLAIN or by SCRAM.

The requests of SASL are written by hand here, so that a broker is not tested by its own codecs.
"""

from __future__ import annotations

import struct

from tests.broker.kafka_peer import Peer
from tests.broker.scram_client import ScramClient


class Refused(Exception):
    """The broker did not let somebody in: its code and message."""


class SaslPeer(Peer):
    """Asks one request after the other as who has logged in."""

    def log_in_plain(self, user: str, password: str) -> None:
        """Log in by PLAIN. Raises Refused."""
        self.handshake("PLAIN")
        self.step(f"\0{user}\0{password}".encode())

    def log_in_scram(
        self, mechanism: str, user: str, password: str, *, is_token: bool = False
    ) -> int:
        """Log in by SCRAM; return the session's lifetime in milliseconds. Raises Refused."""
        self.handshake(mechanism)
        client = ScramClient(mechanism, user, password)
        client.extensions = ",tokenauth=true" if is_token else ""
        server_first, _ = self.step(client.first())
        server_final, lifetime_ms = self.step(client.final(server_first))
        assert client.is_servers(server_final)
        return lifetime_ms

    def handshake(self, mechanism: str) -> None:
        """Ask for a mechanism (SaslHandshake v1)."""
        name = mechanism.encode()
        answer = self._exchange(17, 1, struct.pack(">h", len(name)) + name)
        (code,) = struct.unpack_from(">h", answer, 4)
        if code:
            raise Refused(code)

    def step(self, message: bytes) -> tuple[bytes, int]:
        """Send a message of the mechanism's; return the answer, and the session's lifetime in ms.

        SaslAuthenticate v1. Raises Refused.
        """
        answer = self._exchange(36, 1, struct.pack(">i", len(message)) + message)
        code, size = struct.unpack_from(">hh", answer, 4)
        position = 8
        text = answer[position : position + max(size, 0)].decode()
        position += max(size, 0)
        if code:
            raise Refused(code, text)
        (size,) = struct.unpack_from(">i", answer, position)
        position += 4
        (lifetime_ms,) = struct.unpack_from(">q", answer, position + size)
        return answer[position : position + size], lifetime_ms

    def _exchange(self, key: int, version: int, body: bytes) -> bytes:
        client = b"a-client"
        header = struct.pack(">hhih", key, version, 1, len(client)) + client
        self.socket.sendall(struct.pack(">i", len(header + body)) + header + body)
        return self.receive()
