"""A client's side of SASL, message by message, for tests that go off the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.live import Client

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
USERS = {"alice": "alice-secret", "bob": 'b"o\\b, secret'}


def jaas(users: Mapping[str, str] = USERS) -> str:
    """Write a JAAS text of PLAIN."""
    quoted = {name: text.replace("\\", "\\\\").replace('"', '\\"') for name, text in users.items()}
    told = "".join(f' user_{name}="{text}"' for name, text in quoted.items())
    return f"{PLAIN_MODULE} required{told};"


def settings(mechanisms: str = "PLAIN", **more: str) -> dict[str, str]:
    """Return settings of a broker with a SASL listener, after one without."""
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "listener.name.sasl.sasl.enabled.mechanisms": mechanisms,
        "listener.name.sasl.plain.sasl.jaas.config": jaas(),
        "connection.failed.authentication.delay.ms": "0",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def plain_message(name: str, password: str, asked_for: str = "") -> bytes:
    """Write PLAIN's one message."""
    return "\0".join((asked_for, name, password)).encode()


async def choose(one: Client, mechanism: str, version: int = 1) -> Any:
    """Send SaslHandshake."""
    return await one.ask(SaslHandshakeRequest(mechanism=mechanism), version=version)


async def say(one: Client, message: bytes, version: int = 2) -> Any:
    """Send a message of the mechanism."""
    return await one.ask(SaslAuthenticateRequest(auth_bytes=message), version=version)


async def log_in(one: Client, name: str = "alice", version: int = 2) -> Any:
    """Log in by PLAIN, and return the last answer."""
    assert (await choose(one, "PLAIN")).error_code == 0
    return await say(one, plain_message(name, USERS[name]), version)
