"""The users of SCRAM: salted keys by mechanism and name, kept in the metadata store.

A row has the name `SCRAM-SHA-256:alice`, and the keys as JSON. The salts of users who do not exist
derive from one more row, `secret`, so that they stay the same after a restart.
"""

from __future__ import annotations

import base64
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping

from odradek.broker.errors import MetadataError
from odradek.broker.metadata.store import MetadataStore, RowChanges, Rows, SecurityKind
from odradek.broker.security.credentials import ScramCredential
from odradek.broker.security.salts import USUAL, Form, forms_of, made_up
from odradek.broker.security.sasl.scram_messages import hash_size_bytes
from odradek.protocol.pacing import paced

Key = tuple[str, str]
"""A mechanism and a user's name."""

_SECRET = "secret"
_SECRET_BYTES = 32


class ScramUsers:
    """All credentials; the event loop owns them."""

    def __init__(self, rows: Rows, store: MetadataStore) -> None:
        """Load the rows of the store. Raises MetadataError."""
        self._store = store
        self._credentials: dict[Key, ScramCredential] = {}
        stored = rows.get(_SECRET)
        self._is_secret_stored = stored is not None
        self._secret = os.urandom(_SECRET_BYTES) if stored is None else _bytes(stored)
        for name, value in rows.items():
            if name != _SECRET:
                mechanism, _, user = name.partition(":")
                self._credentials[mechanism, user] = _read(name, value)
        self._forms = self._count()

    def __iter__(self) -> Iterator[Key]:
        """Iterate over mechanisms and users."""
        return iter(self._credentials)

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return a user's credential, None when there is none."""
        return self._credentials.get((mechanism, user))

    def made_up(self, mechanism: str, user: str) -> ScramCredential:
        """Return the credential of a user who does not exist; no password matches it.

        It looks like the credential of an existing user.
        """
        forms = self._forms.get(mechanism, USUAL)
        salt, iterations = made_up(self._secret, f"{mechanism}:{user}", forms)
        key = os.urandom(hash_size_bytes(mechanism))
        return ScramCredential(salt, key, key, iterations)

    async def change(self, changes: Mapping[Key, ScramCredential | None]) -> None:
        """Write credentials, or remove them; durable when it returns. Raises MetadataError.

        Call it within a change (broker/metadata/changes.py).
        """
        rows: dict[str, str | None] = {
            f"{mechanism}:{user}": None if one is None else _written(one)
            for (mechanism, user), one in paced(changes.items())
        }
        if not self._is_secret_stored:
            rows[_SECRET] = _text(self._secret)
        await self._store.change_security(SecurityKind.SCRAM_CREDENTIAL, rows)
        self._is_secret_stored = True
        self._take(changes)

    def follow(self, rows: RowChanges) -> None:
        """Take over credentials as they were stored, or removed."""
        changes: dict[Key, ScramCredential | None] = {}
        for name, value in rows.items():
            if name == _SECRET:
                if value is not None:
                    self._is_secret_stored, self._secret = True, _bytes(value)
                continue
            mechanism, _, user = name.partition(":")
            changes[mechanism, user] = None if value is None else _read(name, value)
        self._take(changes)

    def _take(self, changes: Mapping[Key, ScramCredential | None]) -> None:
        for key, one in changes.items():
            self._credentials.pop(key, None)
            if one is not None:
                self._credentials[key] = one
        self._forms = self._count()

    def _count(self) -> Mapping[str, Mapping[Form, int]]:
        """Count the forms of the credentials of each mechanism."""
        found: defaultdict[str, list[ScramCredential]] = defaultdict(list)
        for (mechanism, _), one in paced(list(self._credentials.items())):
            found[mechanism].append(one)
        return {mechanism: forms_of(paced(some)) for mechanism, some in found.items()}


def _written(one: ScramCredential) -> str:
    return json.dumps(
        {
            "salt": _text(one.salt),
            "stored_key": _text(one.stored_key),
            "server_key": _text(one.server_key),
            "iterations": one.iterations,
        }
    )


def _read(name: str, value: str) -> ScramCredential:
    try:
        fields = json.loads(value)
        salt, stored, server = (_bytes(fields[k]) for k in ("salt", "stored_key", "server_key"))
        return ScramCredential(salt, stored, server, int(fields["iterations"]))
    except (ValueError, KeyError, TypeError):
        raise MetadataError(f"the SCRAM credential {name} cannot be read") from None


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
