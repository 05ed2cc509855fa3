"""The interface of SASL mechanisms: an exchange of messages that authenticates a client.

A mechanism creates an exchange for each attempt. The broker carries its messages, in
SaslAuthenticate, and does the rest: gate, log, metrics, lifetime (RFC 4422, SaslServer).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from odradek.broker.security.principals import Principal
from odradek.dataclass import dataclass

# saslname of RFC 5802, as a regular expression. It is possessive: it never backtracks, so it needs
# no memory for that, which would be some 240 bytes a character.
NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]++|=2C|=3D)++"


class AuthenticationFailed(Exception):
    """The client has wrong credentials, or sent an invalid message.

    The message goes to the client and must not reveal which users exist; without one, the client
    gets Kafka's sentence on invalid credentials. `reason` goes to the log, without any secret.
    """

    def __init__(self, message: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message or "invalid credentials"


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The successful end of an exchange.

    `expires_ms` is the end of the credential (a token), in milliseconds since the epoch; None
    when it has no end.
    """

    principal: Principal
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """The server's next message; the last one comes with `done`.

    `refused` says why the client is refused, where the mechanism reports that by a message which
    the client still has to answer: many clients just close the connection then.
    """

    reply: bytes
    done: Authenticated | None = None
    refused: str = ""


class Exchange(Protocol):
    """One client's attempt."""

    def step(self, message: bytes) -> Step | Awaitable[Step]:
        """Take the client's next message. Raises AuthenticationFailed."""


class Mechanism(Protocol):
    """A way to authenticate, by its registered name."""

    name: str

    def begin(self) -> Exchange:
        """Begin an exchange."""
