"""How a client proves who it is: messages one way and the other, until one side gives up.

A mechanism makes an exchange for each attempt; the broker carries its messages, in
SaslAuthenticate, and does the rest: gate, log, metrics, lifetime (RFC 4422, SaslServer).
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from broker.security.principals import Principal

# saslname of RFC 5802, as a regular expression. Possessive: what has been read is never read in
# another way, so nothing is kept to go back to, which takes some 240 bytes a character.
NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]++|=2C|=3D)++"


class AuthenticationFailed(Exception):
    """The client is not who it says it is, or did not say it right.

    The message goes to the client and must not tell what exists; without one the client gets
    Kafka's sentence about invalid credentials. `reason` goes to the log and must hold no secret.
    """

    def __init__(self, message: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message or "invalid credentials"


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The end of an exchange that went well.

    `expires_ms` is when the credential ends (a token's), in milliseconds since the epoch; None
    when it does not.
    """

    principal: Principal
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What the server says next; `done` with the last one.

    `refused` says why the client is refused, where the mechanism tells it so by a message that
    the client has yet to take note of: many just close the connection then.
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
