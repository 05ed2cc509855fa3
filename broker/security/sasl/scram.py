"""SCRAM: a login that never sends the password (RFC 5802, Kafka's ScramSaslServer).

Kafka refuses an unknown user at once. Here the exchange continues with a made-up salt, always the
same for a name, and fails at its end as with a wrong password, so that an attacker does not learn
which users exist. With the extension `tokenauth=true`, the name is the id of a delegation token
(KIP-48), and the client logs in as its owner; the names of tokens and of users are independent.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from odradek.broker.security.credentials import ScramCredential
from odradek.broker.security.principals import USER, Principal
from odradek.broker.security.sasl.exchange import Authenticated, AuthenticationFailed, Step
from odradek.broker.security.sasl.scram_messages import (
    ClientFirst,
    is_proven,
    read_client_final,
    read_client_first,
    server_final,
    server_first,
)
from odradek.config.scram_users import ITERATIONS_MIN

if TYPE_CHECKING:
    from odradek.broker.security.composition import Security

_TOKEN = "tokenauth"
_NONCE_BYTES = 24


class Scram:
    """SCRAM with one hash function, at any listener."""

    def __init__(self, name: str, security: Security) -> None:
        self.name = name
        self._security = security

    def begin(self) -> ScramExchange:
        return ScramExchange(self.name, self._security)


class ScramExchange:
    """One attempt: two messages each way; it accepts none after them."""

    def __init__(self, mechanism: str, security: Security) -> None:
        self._mechanism, self._security = mechanism, security
        # Set after the client's first message, until the second one.
        self._asked: tuple[ClientFirst, str, str] | None = None
        self._is_over = False
        self._credential: ScramCredential | None = None
        self._claimed: Authenticated | None = None

    def step(self, message: bytes) -> Step:
        """Take the client's first or last message. Raises AuthenticationFailed."""
        asked, self._asked = self._asked, None
        if self._is_over:
            raise AuthenticationFailed(reason="a message after the end of the exchange")
        if asked is None:
            return self._first(message)
        self._is_over = True
        return self._final(message, *asked)

    def _first(self, message: bytes) -> Step:
        first = read_client_first(message)
        self._is_over = first is None
        if first is None:
            raise AuthenticationFailed(reason="not a first message of SCRAM")
        if first.asked_for not in ("", first.name):
            self._is_over = True
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        credential = self._look_up(first)
        nonce = first.nonce + secrets.token_urlsafe(_NONCE_BYTES)
        reply = server_first(nonce, credential)
        self._asked, self._credential = (first, nonce, reply), credential
        return Step(reply.encode())

    def _look_up(self, first: ClientFirst) -> ScramCredential:
        """Return the credential of a user or token; a made-up one where there is none."""
        users = self._security.scram_users
        # Computed for every name, so that every name takes the same time.
        made_up = users.made_up(self._mechanism, first.name)
        if first.extension(_TOKEN).lower() == "true":
            token = self._security.token_credentials.find(first.name)
            found = None if token is None else token.credentials.get(self._mechanism)
            if token is not None and found is not None:
                owner = replace(token.owner, by_token=True)
                self._claimed = Authenticated(owner, token.expires_ms)
        else:
            found = users.find(self._mechanism, first.name)
            if found is not None:
                self._claimed = Authenticated(Principal(USER, first.name))
        if found is not None and found.iterations < ITERATIONS_MIN:
            self._claimed = found = None
        return made_up if found is None else found

    def _final(self, message: bytes, first: ClientFirst, nonce: str, sent: str) -> Step:
        final = read_client_final(message)
        if final is None:
            raise AuthenticationFailed(reason="not a last message of SCRAM")
        if final.nonce != nonce:
            raise AuthenticationFailed(reason="a nonce that is not this exchange's: a replay?")
        if final.binding != first.header.encode():
            raise AuthenticationFailed(reason="another channel binding than in the first message")
        credential, claimed = self._credential, self._claimed
        assert credential is not None
        signed = f"{first.bare},{sent},{final.unproven}".encode()
        is_right = is_proven(self._mechanism, credential, signed, final.proof)
        if claimed is None:
            raise AuthenticationFailed(reason="unknown user")
        if not is_right:
            raise AuthenticationFailed(reason=f"wrong password of {str(claimed.principal)!r}")
        return Step(server_final(self._mechanism, credential, signed), claimed)


def make(security: Security, listener: str, name: str) -> Scram:
    """Return SCRAM (broker/security/sasl/registry.py); the users are the same everywhere."""
    return Scram(name, security)
