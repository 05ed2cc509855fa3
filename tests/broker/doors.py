"""The ways to a broker that tests of hostile bytes come by: an open listener, and one that asks.

    broker = start(DOORS["authenticated"])
    with door.connect(broker.port) as client: ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.broker.kafka_peer import Peer

USER, PASSWORD = "alice", "alice-secret"
_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_{USER}="{PASSWORD}";'
)


@dataclass(frozen=True, slots=True)
class Door:
    """A kind of listener, and how to come in by it."""

    settings: Mapping[str, str]
    authenticates: bool

    def connect(self, port: int) -> Peer:
        """Connect, and prove who one is where that is asked."""
        peer = Peer(port)
        if self.authenticates:
            _authenticate(peer)
        return peer

    @property
    def client_settings(self) -> Mapping[str, str]:
        """What librdkafka has to be told."""
        if not self.authenticates:
            return {}
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }


DOORS = {
    "open": Door({}, authenticates=False),
    "authenticated": Door(
        {
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.plaintext.plain.sasl.jaas.config": _JAAS,
        },
        authenticates=True,
    ),
}


def _authenticate(peer: Peer) -> None:
    from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
    from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest

    assert peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    token = f"\0{USER}\0{PASSWORD}".encode()
    assert peer.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0
