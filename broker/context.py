"""The context of a request, which a handler gets with the body."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import field
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, TypeVar

from odradek.broker.security.authorization import (
    CLUSTER_NAME,
    AclOperation,
    Authorizer,
    Noted,
    Requester,
    ResourceKind,
)
from odradek.broker.security.authorized_operations import (
    OF_CLUSTER,
    OF_GROUP,
    OF_TOPIC,
    bit_field,
)
from odradek.broker.security.principals import ANONYMOUS, Principal
from odradek.dataclass import dataclass
from odradek.protocol.pacing import Pace, paced, unpaced

if TYPE_CHECKING:
    from odradek.broker.hosts.listener import Listener
    from odradek.broker.security.quotas.charge import Charge


T = TypeVar("T")

# The operations in a bit field of authorized operations (AclEntry.supportedOperations).
_SUPPORTED: Mapping[ResourceKind, tuple[AclOperation, ...]] = {
    ResourceKind.TOPIC: OF_TOPIC,
    ResourceKind.GROUP: OF_GROUP,
    ResourceKind.CLUSTER: OF_CLUSTER,
}


@dataclass(slots=True, eq=False)
class ConnectedClient:
    """The known facts of a connection's client; ApiVersions has the names of its software."""

    port: int = 0
    software_name: str = "unknown"
    software_version: str = "unknown"
    principal: Principal = ANONYMOUS
    # Called when the connection is lost, by the name of the subscriber.
    on_lost: dict[str, Callable[[], None]] = field(default_factory=dict)


@dataclass(slots=True)
class RequestContext:
    """A request's surroundings: the connection, the header, the client's rights."""

    authorizer: Authorizer | None
    listener: Listener
    client_host: str  # "/127.0.0.1", as Kafka prints addresses
    api_version: int
    correlation_id: int
    client_id: str
    api_key: int = -1
    client: ConnectedClient = field(default_factory=ConnectedClient)
    # Charges the request to its client's quotas; None when no quota is set.
    charge: Charge | None = None
    noted: Noted | None = None  # created by the first check of a permission

    def advertised(self) -> tuple[str, int]:
        """Return the host and port that clients of this listener shall connect to."""
        return self.listener.advertised_host, self.listener.advertised_port

    @property
    def principal(self) -> Principal:
        """The principal of the client, anonymous unless the connection is authenticated."""
        return self.client.principal

    def may(
        self,
        operation: AclOperation,
        kind: ResourceKind,
        name: str,
        *,
        logs_allowed: bool = True,
        logs_denied: bool = True,
    ) -> bool:
        """Return whether the client may perform an operation on a resource."""
        authorizer = self.authorizer
        return authorizer is None or authorizer.may(
            self._requester(),
            operation,
            kind,
            name,
            logs_allowed=logs_allowed,
            logs_denied=logs_denied,
        )

    def may_to_cluster(self, operation: AclOperation, *, logs_denied: bool = True) -> bool:
        """Return whether the client may perform an operation on the cluster."""
        return self.may(
            operation, ResourceKind.CLUSTER, CLUSTER_NAME, logs_denied=logs_denied
        )

    def permitted(
        self,
        operation: AclOperation,
        kind: ResourceKind,
        names: Iterable[str],
        *,
        logs_denied: bool = True,
        pace: Pace = paced,
    ) -> Set[str]:
        """Return the names on which the client may perform an operation; each is checked once.

        `pace` is `unpaced` where the checks must run in one piece.
        """
        authorizer = self.authorizer
        asked = list(pace(names))
        distinct = dict.fromkeys(pace(asked)).keys()
        if authorizer is None or authorizer.has_allowed(
            self.client.principal, self.client_host.removeprefix("/"), operation, kind, distinct
        ):
            return distinct
        requester = self._requester()
        times: Iterable[tuple[str, int]] = zip(asked, repeat(1))
        if len(distinct) < len(asked):
            times = Counter(pace(asked)).items()
        return {
            name
            for name, count in pace(times)
            if authorizer.may(
                requester, operation, kind, name, logs_denied=logs_denied, references=count
            )
        }

    @property
    def describable(self) -> Callable[[Iterable[str]], Set[str]] | None:
        """A later filter of the topics that the client may describe; None if it may all."""
        if self.authorizer is None:
            return None
        return partial(
            self.permitted,
            AclOperation.DESCRIBE,
            ResourceKind.TOPIC,
            logs_denied=False,
            pace=unpaced,
        )

    def authorized_operations(self, kind: ResourceKind, name: str) -> int:
        """Return a bit field of the operations that the client may perform (AuthHelper)."""
        authorizer = self.authorizer
        if authorizer is None:
            return bit_field(*_SUPPORTED[kind])
        requester = self._requester()  # once: a request may have 100,000 names
        return bit_field(
            *(
                operation
                for operation in _SUPPORTED[kind]
                if authorizer.may(
                    requester, operation, kind, name, logs_allowed=False, logs_denied=False
                )
            )
        )

    def cluster_operations(self) -> int:
        """Return a bit field of operations on the cluster: none, unless it may be described."""
        if not self.may_to_cluster(AclOperation.DESCRIBE):
            return 0
        return self.authorized_operations(ResourceKind.CLUSTER, CLUSTER_NAME)

    def may_any(self, operation: AclOperation, kind: ResourceKind) -> bool:
        """Return whether the client may perform an operation on at least one resource."""
        authorizer = self.authorizer
        return authorizer is None or authorizer.may_any(self._requester(), operation, kind)

    def _requester(self) -> Requester:
        if self.noted is None:
            self.noted = Noted()
        return Requester(
            self.client.principal,
            self.client_host.removeprefix("/"),
            self.api_key,
            self.api_version,
            self.client_id,
            self.listener.name,
            self.noted,
        )
