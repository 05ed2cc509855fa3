"""The person behind a request over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import TYPE_CHECKING

from odradek.broker.context import ConnectedClient, RequestContext
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.security.principals import Principal
from odradek.dataclass import dataclass

if TYPE_CHECKING:
    from odradek.broker.web.services import WebServices

CLIENT_ID = "odradek-page"
_ADMIN = Principal("Token", "admin")


@dataclass(frozen=True, slots=True)
class Actor:
    """A person with the admin token, who may do everything, or one who logged in."""

    address: str
    # None with the admin token.
    principal: Principal | None = None

    def __str__(self) -> str:
        return "the admin token" if self.principal is None else str(self.principal)

    def describable(
        self, broker: WebServices, kind: ResourceKind, names: Iterable[str]
    ) -> Set[str]:
        """Return the names that this person may describe."""
        context = self.context(broker)
        return context.permitted(AclOperation.DESCRIBE, kind, names, logs_denied=False)

    def context(self, broker: WebServices, key: int = -1, version: int = 0) -> RequestContext:
        """Return the surroundings of a request of Kafka's protocol that this person makes.

        With the admin token no authorizer is asked.
        """
        principal = self.principal
        return RequestContext(
            None if principal is None else broker.security.authorizer,
            broker.server.listeners[0],
            f"/{self.address}",
            version,
            0,
            CLIENT_ID,
            key,
            ConnectedClient(principal=principal or _ADMIN),
        )
