"""PLAIN: a name and a password in one message (RFC 4616, Kafka's PlainSaslServer).

    [authorization id] NUL name NUL password

The users are in the listener's JAAS text. The password is not encrypted: use PLAIN over TLS.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

from odradek.broker.security.principals import USER, Principal
from odradek.broker.security.sasl.exchange import Authenticated, AuthenticationFailed, Step
from odradek.broker.security.sasl.settings import settings_of
from odradek.config.sasl import SaslConfig, jaas_of, users_of

if TYPE_CHECKING:
    from odradek.broker.security.composition import Security

Digests = Mapping[str, bytes]
"""The digests of the passwords, by user."""

_PARTS = 3
# Passwords of unknown users are compared with this.
_NOBODYS = os.urandom(32)


class Plain:
    """PLAIN at one listener; uses the settings in force."""

    def __init__(self, name: str, config: Callable[[bool], SaslConfig]) -> None:
        """`config` returns the settings of the mechanism, or of its listener alone (false)."""
        self.name = name
        self._config = config
        # A JAAS text and its users, so that it is not parsed for each login.
        self._read: tuple[str | None, Digests] = (None, {})

    def begin(self) -> PlainExchange:
        return PlainExchange(self.users())

    def users(self) -> Digests:
        """Return the digests of the passwords in force."""
        config = self._config(True)
        text, users = self._read
        if config.sasl_jaas_config != text:
            module = jaas_of(config, self._config(False), self.name)
            passwords = {} if module is None else users_of(module)
            users = {name: _digest(password) for name, password in passwords.items()}
            self._read = config.sasl_jaas_config, users
        return users


class PlainExchange:
    """One attempt: its only message is checked against the users."""

    def __init__(self, users: Digests) -> None:
        self._users = users

    def step(self, message: bytes) -> Step:
        """Check a name and a password. Raises AuthenticationFailed in Kafka's words."""
        # As in Java, which replaces bytes that are not UTF-8 and does not refuse them.
        parts = message.decode("utf-8", "replace").split("\0", _PARTS)
        if len(parts) != _PARTS:
            raise AuthenticationFailed(
                f"Invalid SASL/PLAIN response: expected {_PARTS} tokens, got {len(parts)}"
            )
        asked_for, name, password = parts
        if not name:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        if not is_right(self._users, name, password):
            # An unknown name is not logged: it may be a password in the wrong place.
            known = f"wrong password of user {name!r}" if name in self._users else "unknown user"
            raise AuthenticationFailed(
                "Authentication failed: Invalid username or password", known
            )
        if asked_for not in ("", name):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        return Step(b"", Authenticated(Principal(USER, name)))

def is_right(users: Digests, name: str, password: str) -> bool:
    """Compare in a time that reveals neither where passwords differ nor which users exist."""
    is_equal = hmac.compare_digest(users.get(name, _NOBODYS), _digest(password))
    return is_equal and name in users


def make(security: Security, listener: str, name: str) -> Plain:
    """Return PLAIN for a listener (broker/security/sasl/registry.py)."""
    return Plain(name, settings_of(security, listener, name))


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
