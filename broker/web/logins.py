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
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from aiohttp import web

from odradek.broker.security.principals import USER, Principal
from odradek.broker.security.sasl.plain import Plain
from odradek.broker.security.sasl.scram_messages import credential_of, salted_password
from odradek.broker.security.sasl.settings import settings_of
from odradek.broker.web.access import LOGIN
from odradek.broker.web.requests import Problem
from odradek.config.sasl import PLAIN
from odradek.config.scram_users import MECHANISMS

if TYPE_CHECKING:
    from odradek.broker.security.composition import Security
    from odradek.broker.security.credentials import ScramCredential

LIFETIME_MS = 8 * 60 * 60 * 1000
_PARTS = 4
_SASL = ("SASL_PLAINTEXT", "SASL_SSL")


class Logins:
    """Checks passwords, and signs and reads the tokens of logins; the event loop owns it."""

    def __init__(self, security: Security, key: str, now_ms: Callable[[], int]) -> None:
        """Sign by `key`, the admin token."""
        self._security, self._key, self._now_ms = security, key.encode(), now_ms
        self._plain: dict[str, Plain] = {}

    async def log_in(self, user: str, password: str) -> tuple[str, int] | None:
        """Return a token and its end in ms; None for a wrong user or password.

        Raises Problem where no listener has passwords.
        """
        mechanisms = self._scram_mechanisms()
        if not mechanisms and not self._plain_listeners():
            raise Problem(
                409,
                "no listener of this broker has users with passwords: enable SCRAM-SHA-256, "
                "SCRAM-SHA-512 or PLAIN, or use the admin token",
            )
        credentials = [(one, self._scram_credential(one, user)) for one in mechanisms]
        loop = asyncio.get_running_loop()
        is_right = await loop.run_in_executor(None, _is_one, credentials, password)
        digest = hashlib.sha256(password.encode("utf-8", "surrogatepass")).digest()
        for plain in self._plain_listeners():
            is_right |= hmac.compare_digest(plain.digest_of(user) or b"", digest)
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
        digest = hashlib.sha256()
        for mechanism in self._scram_mechanisms():
            found = self._security.scram_users.find(mechanism, user)
            digest.update(b"-" if found is None else found.stored_key)
        for plain in self._plain_listeners():
            digest.update(plain.digest_of(user) or b"-")
        return digest.digest()

    def _scram_credential(self, mechanism: str, user: str) -> ScramCredential:
        users = self._security.scram_users
        return users.find(mechanism, user) or users.made_up(mechanism, user)

    def _scram_mechanisms(self) -> list[str]:
        return [one for one in MECHANISMS if one in {two for _, two in self._enabled()}]

    def _plain_listeners(self) -> list[Plain]:
        names = [listener for listener, mechanism in self._enabled() if mechanism == PLAIN]
        for name in names:
            if name not in self._plain:
                self._plain[name] = Plain(PLAIN, settings_of(self._security, name, PLAIN))
        return [self._plain[name] for name in names]

    def _enabled(self) -> Iterator[tuple[str, str]]:
        """Iterate over listeners and the mechanisms that they have."""
        for one in self._security.configs.broker.bound_endpoints:
            if one.protocol in _SASL:
                for mechanism in self._security.sasl_listener(one.name).enabled:
                    yield one.name, mechanism


def _is_one(credentials: list[tuple[str, ScramCredential]], password: str) -> bool:
    """Return whether a password is that of a credential; it takes milliseconds."""
    is_right = False
    for mechanism, one in credentials:
        salted = salted_password(mechanism, password, one.salt, one.iterations)
        made = credential_of(mechanism, salted, one.salt, one.iterations)
        is_right |= hmac.compare_digest(made.stored_key, one.stored_key)
    return is_right


def require_secrecy(request: web.Request, *, is_here: bool) -> None:
    """Raise Problem where others could read a password on its way."""
    if not request.secure and not is_here:
        raise Problem(
            403,
            "a password over HTTP could be read on its way: set odradek.http.tls.certificate and "
            "odradek.http.tls.key, or use the page on the broker's machine",
        )
