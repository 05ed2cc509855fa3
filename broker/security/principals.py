"""The identities of clients, as ACLs and quotas name them (KafkaPrincipal)."""

from __future__ import annotations

from dataclasses import field

from odradek.dataclass import dataclass

USER = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """A type and a name; `by_token` when a delegation token stood for the password."""

    kind: str
    name: str
    by_token: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


# The principal of a client that has not logged in.
ANONYMOUS = Principal(USER, "ANONYMOUS")
