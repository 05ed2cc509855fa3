"""The identities of clients, as ACLs and quotas name them (KafkaPrincipal)."""

from __future__ import annotations

from dataclasses import dataclass, field

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


def parse_principal(text: str) -> Principal:
    """Read `Type:name`; the name may hold colons. Raises ValueError (SecurityUtils)."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ValueError(
            f"expected a string in format principalType:principalName but got {text}"
        )
    return Principal(kind, name)
