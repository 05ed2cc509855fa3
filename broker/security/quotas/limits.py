"""Which quota counts for a client: the one that says most of it.

    user and client id    user and any other client id    user
    any other user and client id    any other user and any other client id    any other user
    client id    any other client id

In this order (KIP-55). Who shares a quota shares its rate, too: one for a user is of all that
user's clients together; one for any other user, of each such user by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from broker.security.quotas.entities import CLIENT_ID, USER, Entity

ANY_OTHER = None
Key = tuple[str | None, str | None]
"""Who shares a rate: a user and a client id, or one of the two."""

# In place of a name: the entity does not speak of it.
_ABSENT = ""
# A client id may have 32,767 bytes, 128 KiB in memory, and clients make them up.
_NAME_MAX = 128
_BEGINNING = 64


class Limits:
    """The quotas of one kind, by entity."""

    __slots__ = ("_by_client", "_by_user")

    def __init__(self, quotas: Mapping[Entity, float]) -> None:
        # By user, then by client id; names cannot be empty, so that "" stands for no name.
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
        """Return whether there are any."""
        return bool(self._by_user or self._by_client)

    def find(self, user: str, client_id: str) -> tuple[Key, float] | None:
        """Return who shares the client's rate, and the limit; None when it has none.

        Of long names the key has the beginning and a hash: keys are remembered, and shown.
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
            # A client without an id is any other one: "" is where a user's own limit is.
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
    if name is None or len(name) <= _NAME_MAX:  # whatever stands beside it
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{name[:_BEGINNING]}…{digest}"
