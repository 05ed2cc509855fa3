"""Logins of people at the page, by the passwords of PLAIN and SCRAM.

    POST /api/login {"user": "ann", "password": "..."}
    -> {"user": "ann", "token": "login....", "expires_ms": 1795341600000}

The broker keeps nothing about a login, so that each worker of a machine knows its token:

    login.<user>.<expires_ms>.<signature>      user and signature in base64 for addresses

The signature is an HMAC-SHA-256 by the admin token, over the user, the end, and a fingerprint of
the user's credentials. So a login ends after some hours, with another password, and, unless
odradek.admin.token is set, with the next start of the broker.

A password is taken over TLS, or from this machine: elsewhere others could read it on its way.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from odradek.broker.security.composition import SASL
from odradek.broker.security.principals import USER, Principal
from odradek.broker.security.sasl.plain import Digests, Plain
from odradek.broker.security.sasl.plain import is_right as plain_is_right
from odradek.broker.security.sasl.plain import make as make_plain
from odradek.broker.security.sasl.scram_messages import credential_of, salted_password
from odradek.broker.web.access import LOGIN
from odradek.broker.web.requests import Problem
from odradek.config.sasl import PLAIN
from odradek.config.scram_users import MECHANISMS

if TYPE_CHECKING:
    from odradek.broker.security.composition import Security
    from odradek.broker.security.credentials import ScramCredential

LIFETIME_MS = 8 * 60 * 60 * 1000
_PARTS = 4


class Logins:
    """Checks passwords, and signs and reads the tokens of logins; the event loop owns it."""

    def __init__(self, security: Security, key: str, now_ms: Callable[[], int]) -> None:
        """Sign by `key`, the admin token."""
        self._security, self._key, self._now_ms = security, key.encode(), now_ms
        self._plains: dict[str, Plain] = {}

    async def log_in(self, user: str, password: str) -> tuple[str, int] | None:
        """Return a token and its end in ms; None for a wrong user or password.

        Raises Problem where no listener has passwords.
        """
        scram, plain = self._enabled()
        if not scram and not plain:
            raise Problem(
                409,
                "no listener of this broker has users with passwords: enable SCRAM-SHA-256, "
                "SCRAM-SHA-512 or PLAIN, or use the admin token",
            )
        known = self._security.scram_users
        credentials = [
            (one, known.find(one, user) or known.made_up(one, user)) for one in scram
        ]
        loop = asyncio.get_running_loop()
        is_right = await loop.run_in_executor(None, _is_one, credentials, password)
        for users in plain:
            is_right |= plain_is_right(users, user, password)
        if not is_right:
            return None
        expires_ms = self._now_ms() + LIFETIME_MS
        return self._token(user, expires_ms), expires_ms

    def read(self, token: str) -> Principal | None:
        """Return the person of a token; None for a token that is not valid, or not any more."""
        parts = token.split(".")
        if len(parts) != _PARTS or not (parts[2].isascii() and parts[2].isdigit()):
            return None
        try:
            user = base64.urlsafe_b64decode(parts[1]).decode()
        except (binascii.Error, ValueError):
            return None
        expires_ms = int(parts[2][:18])
        is_signed = hmac.compare_digest(self._token(user, expires_ms).encode(), token.encode())
        return Principal(USER, user) if is_signed and expires_ms > self._now_ms() else None

    def _token(self, user: str, expires_ms: int) -> str:
        name = base64.urlsafe_b64encode(user.encode()).decode()
        unsigned = f"{LOGIN}{name}.{expires_ms}"
        message = unsigned.encode() + b"\0" + self._fingerprint(user)
        signature = hmac.digest(self._key, message, "sha256")
        return f"{unsigned}.{base64.urlsafe_b64encode(signature).decode()}"

    def _fingerprint(self, user: str) -> bytes:
        """Return a digest that changes with each credential of a user."""
        scram, plain = self._enabled()
        digest = hashlib.sha256()
        for mechanism in scram:
            found = self._security.scram_users.find(mechanism, user)
            digest.update(b"-" if found is None else found.stored_key)
        for users in plain:
            digest.update(users.get(user, b"-"))
        return digest.digest()

    def _enabled(self) -> tuple[Sequence[str], Sequence[Digests]]:
        """Return the mechanisms of SCRAM that listeners have, and the users of PLAIN of each."""
        scram, plain = set[str](), list[Digests]()
        for one in self._security.configs.broker.bound_endpoints:
            if one.protocol not in SASL:
                continue
            enabled = self._security.sasl_listener(one.name).enabled
            scram |= set(MECHANISMS).intersection(enabled)
            if PLAIN in enabled:
                plain.append(self._plain(one.name).users())
        return sorted(scram), plain

    def _plain(self, listener: str) -> Plain:
        if listener not in self._plains:
            self._plains[listener] = make_plain(self._security, listener, PLAIN)
        return self._plains[listener]


def _is_one(credentials: list[tuple[str, ScramCredential]], password: str) -> bool:
    """Return whether a password is that of a credential; it takes milliseconds."""
    is_right = False
    for mechanism, one in credentials:
        salted = salted_password(mechanism, password, one.salt, one.iterations)
        made = credential_of(mechanism, salted, one.salt, one.iterations)
        is_right |= hmac.compare_digest(made.stored_key, one.stored_key)
    return is_right
