"""Finds the quota of a client: the most specific one.

    user and client id    user and any other client id    user
    any other user and client id    any other user and any other client id    any other user
    client id    any other client id

They are tried in this order (KIP-55). Clients that share a quota share its rate, too: a quota of
a user is for all clients of that user together; a quota of any other user is for each such user
separately.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from odradek.broker.security.quotas.entities import CLIENT_ID, USER, Entity

ANY_OTHER = None
Key = tuple[str | None, str | None]
"""The clients that share a rate: a user and a client id, or one of the two."""

# In place of a name: the entity has no part of this type.
_ABSENT = ""
# A client id may have 32,767 bytes, 128 KiB in memory, and clients make them up.
_NAME_MAX = 128
_BEGINNING = 64


class Limits:
    """The quotas of one kind, by entity."""

    __slots__ = ("_by_client", "_by_user")

    def __init__(self, quotas: Mapping[Entity, float]) -> None:
        # By user, then by client id; names cannot be empty, so "" stands for no name.
        self._by_user: dict[str | None, dict[str | None, float]] = {}
        self._by_client: dict[str | None, float] = {}
        for entity, limit in quotas.items():
            parts = dict(entity)
            client_id = parts.get(CLIENT_ID, _ABSENT)
            if USER in parts:
                self._by_user.setdefault(parts[USER], {})[client_id] = limit
            else:
                self._by_client[client_id] = limit

    def __bool__(self) -> bool:
        """Return whether there are any quotas."""
        return bool(self._by_user or self._by_client)

    def find(self, user: str, client_id: str) -> tuple[Key, float] | None:
        """Return the key of the client's rate, and its limit; None when it has no quota.

        The key has the beginning and a hash of long names, since keys are remembered and shown.
        """
        found = self._find(user, client_id)
        if found is None or (len(user) <= _NAME_MAX and len(client_id) <= _NAME_MAX):
            return found
        (of_user, of_client), limit = found
        return (_shortened(of_user), _shortened(of_client)), limit

    def _find(self, user: str, client_id: str) -> tuple[Key, float] | None:
        for name in (user, ANY_OTHER) if self._by_user else ():
            of_user = self._by_user.get(name)
            if of_user is None:
                continue
            # A client without an id counts as any other client: "" is the key of a user's limit.
            limit = of_user.get(client_id or ANY_OTHER)
            if limit is None:
                limit = of_user.get(ANY_OTHER)
            if limit is not None:
                return (user, client_id), limit
            limit = of_user.get(_ABSENT)
            if limit is not None:
                return (user, None), limit
        limit = self._by_client.get(client_id or ANY_OTHER)
        if limit is None:
            limit = self._by_client.get(ANY_OTHER)
        return None if limit is None else ((None, client_id), limit)


def _shortened(name: str | None) -> str | None:
    if name is None or len(name) <= _NAME_MAX:  # only the other name may be too long
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{name[:_BEGINNING]}…{digest}"
