"""Credentials of passwords: enough to check a password by SCRAM, not to learn it (RFC 5802)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from odradek.broker.security.principals import Principal
from odradek.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The salted keys of one password for one hash function (ScramCredential)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class TokenCredential:
    """A delegation token for a login; `owner` is the client's principal then (KIP-48).

    `credentials` are by mechanism, "SCRAM-SHA-256" and "SCRAM-SHA-512".
    """

    owner: Principal
    credentials: Mapping[str, ScramCredential]
    expires_ms: int


class TokenCredentials(Protocol):
    """Finds delegation tokens for SCRAM (`tokenauth=true`)."""

    def find(self, token_id: str) -> TokenCredential | None:
        """Return a token that has not expired, by its id."""


class NoTokens:
    """Stands in where delegation tokens are off."""

    def find(self, token_id: str) -> TokenCredential | None:
        """Return None."""
        return None
