"""The text of odradek.scram.users: users of SCRAM that exist before a client creates any.

    SCRAM-SHA-256=[name=alice,password="a secret"]; SCRAM-SHA-512=[name=bob,password=other]

Each is written as for Kafka's `kafka-storage format --add-scram` (ScramParser), with
`iterations`, and with `salt` and `saltedpassword` in place of a password; text between quotes
is taken literally. Errors give a user's number and show nothing of the text, which has secrets.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import field

from odradek.config.errors import ConfigError
from odradek.dataclass import dataclass

OPTION = "odradek.scram.users"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
# Kafka's bounds (ScramMechanism).
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384

_VALUE = r'(?:"[^"]*"|[^",\[\]]*)'
_PAIR = rf"[^=,\[\]]+={_VALUE}"
_USER = re.compile(rf"\s*([^=\s]+)=\[({_PAIR}(?:,{_PAIR})*)\]\s*(?:;|\Z)")
_ONE_PAIR = re.compile(rf"\s*([^=,\[\]]+)=({_VALUE})")
_PARTS = frozenset({"name", "password", "iterations", "salt", "saltedpassword"})


@dataclass(frozen=True, slots=True)
class InitialUser:
    """A user to create; it has a password, or a salt with the salted password."""

    mechanism: str
    name: str
    iterations: int
    password: str | None = field(repr=False)
    salt: bytes | None = field(repr=False)
    salted_password: bytes | None = field(repr=False)


def parse_scram_users(text: str) -> tuple[InitialUser, ...]:
    """Read all users; raise ConfigError, which shows nothing of the text."""
    users: dict[tuple[str, str], InitialUser] = {}
    position = 0
    while text[position:].strip():
        which = f"user {len(users) + 1}"
        match = _USER.match(text, position)
        if match is None:
            raise _wrong(which, 'write it as SCRAM-SHA-256=[name=...,password="..."];')
        one = _user(which, match[1], match[2])
        if users.setdefault((one.mechanism, one.name), one) is not one:
            raise _wrong(which, "is given twice; keep one")
        position = match.end()
    return tuple(users.values())


def _user(which: str, mechanism: str, text: str) -> InitialUser:
    if mechanism not in MECHANISMS:
        raise _wrong(which, f"the mechanism is none of {', '.join(MECHANISMS)}")
    parts = {match[1].strip(): _unquoted(match[2]) for match in _ONE_PAIR.finditer(text)}
    if not parts.keys() <= _PARTS:
        raise _wrong(which, f"has parts other than {', '.join(sorted(_PARTS))}")
    if not parts.get("name"):
        raise _wrong(which, "add its name")
    iterations = parts.get("iterations", str(ITERATIONS_MIN))
    bounds = range(ITERATIONS_MIN, ITERATIONS_MAX + 1)
    if not re.fullmatch("[0-9]{1,9}", iterations) or int(iterations) not in bounds:
        raise _wrong(which, f"iterations are from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    salt, salted = (_decoded(which, parts, part) for part in ("salt", "saltedpassword"))
    password = parts.get("password")
    if not password and (salt is None or salted is None):
        raise _wrong(which, "add its password, or a salt with a saltedpassword")
    if password and salted is not None:
        raise _wrong(which, "has a password and a saltedpassword; keep one")
    return InitialUser(
        mechanism, parts["name"], int(iterations), password or None, salt, salted
    )


def _decoded(which: str, parts: Mapping[str, str], part: str) -> bytes | None:
    try:
        return base64.b64decode(parts[part], validate=True) if parts.get(part) else None
    except binascii.Error:
        raise _wrong(which, f"the {part} is not in base64") from None


def _unquoted(value: str) -> str:
    return value[1:-1] if value.startswith('"') else value.strip()


def _wrong(which: str, message: str) -> ConfigError:
    return ConfigError(f"{OPTION}, {which}: {message}")
