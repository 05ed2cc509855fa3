"""Makes up salts for users who do not exist, so that SCRAM's answers look like those of others.

Kafka's tools use a random number of 130 bits as the salt, written in base 36 (ScramFormatter, and
the admin client's UserScramCredentialUpsertion): most salts have 25 characters, and those of 26
begin with 1. Other clients use a fixed number of random bytes; librdkafka uses 64.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from odradek.broker.security.credentials import ScramCredential
from odradek.config.scram_users import ITERATIONS_MIN
from odradek.dataclass import dataclass

_BITS = 130
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_WRITTEN = re.compile(rb"[1-9a-z][0-9a-z]{20,25}")
# Each login chooses among this number of forms, whether its user is known or not.
_FORMS_MAX = 8
_SALT_BYTES_MAX = 128


@dataclass(frozen=True, slots=True)
class Form:
    """The part of a credential that is visible without its password."""

    iterations: int
    salt_bytes: int | None  # None: a salt as Kafka's tools make it


USUAL: Mapping[Form, int] = MappingProxyType({Form(ITERATIONS_MIN, None): 1})


def new_salt() -> bytes:
    """Make a salt as Kafka's tools do."""
    return _in_base_36(secrets.randbits(_BITS))


def forms_of(credentials: Iterable[ScramCredential]) -> Mapping[Form, int]:
    """Count the most frequent forms of credentials; returns at least one form."""
    counted = Counter(_form(one) for one in credentials if one.iterations >= ITERATIONS_MIN)
    return dict(counted.most_common(_FORMS_MAX)) or USUAL


def made_up(secret: bytes, name: str, forms: Mapping[Form, int]) -> tuple[bytes, int]:
    """Return the salt and the iterations of a name that nobody has, the same each time.

    Forms have the same shares among names as among users. Rendezvous hashing: a form that is
    new or gains users takes over some names, and all other names keep their forms.
    """
    form = max(forms, key=lambda one: _share(secret, name, one) ** (1 / forms[one]))
    digest = hmac.digest(secret, name.encode(), hashlib.sha512)
    if form.salt_bytes is None:
        return _in_base_36(int.from_bytes(digest) >> (8 * len(digest) - _BITS)), form.iterations
    return hashlib.shake_256(digest).digest(form.salt_bytes), form.iterations


def _form(one: ScramCredential) -> Form:
    is_written = _WRITTEN.fullmatch(one.salt) is not None
    size_bytes = min(len(one.salt), _SALT_BYTES_MAX)
    return Form(one.iterations, None if is_written else size_bytes)


def _share(secret: bytes, name: str, form: Form) -> float:
    """Return a number from 0 to 1 that is fixed for a name and a form."""
    text = f"{form.iterations}:{form.salt_bytes}:{name}"
    digest = hmac.digest(secret, text.encode(), hashlib.sha512)
    return int.from_bytes(digest[:8]) / 2**64


def _in_base_36(number: int) -> bytes:
    digits = []
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)).encode() or b"0"
