"""The person behind a request for an action."""

from __future__ import annotations

from odradek.broker.security.principals import Principal
from odradek.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Actor:
    """A person with the admin token, who may do everything, or one who logged in."""

    address: str
    # None with the admin token.
    principal: Principal | None = None

    def __str__(self) -> str:
        return "the admin token" if self.principal is None else str(self.principal)
