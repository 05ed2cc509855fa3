"""What is asked before a request is carried out: may this client do that, to this resource?

The codes are those of Kafka's AclOperation and ResourceType. Handlers ask by
`RequestContext.may` and its like, and those ask the authorizer, where there is one.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from broker.security.authorized_operations import Operation
from broker.security.principals import Principal


class ResourceKind(IntEnum):
    """What an ACL is about (ResourceType)."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


# The name of the one resource of kind CLUSTER (Resource.CLUSTER_NAME).
CLUSTER_NAME = "kafka-cluster"


@dataclass(slots=True)
class Noted:
    """How many decisions about one request the audit log has been told, by level."""

    told: dict[int, int] = field(default_factory=dict)
    # What nobody has told of yet, since the request has so many.
    left_out: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Requester:
    """Who asks, and what the audit log says of it (AuthorizableRequestContext)."""

    principal: Principal
    host: str  # "127.0.0.1"
    api_key: int
    api_version: int
    client_id: str
    listener: str
    noted: Noted = field(default_factory=Noted, compare=False)


class Authorizer(Protocol):
    """Decides who may do what. None of its methods waits."""

    @property
    def generation(self) -> int:
        """A number that grows when decisions may have changed: remember none beyond that."""

    def may(
        self,
        requester: Requester,
        operation: Operation,
        kind: ResourceKind,
        name: str,
        *,
        logs_allowed: bool = True,
        logs_denied: bool = True,
        references: int = 1,
    ) -> bool:
        """Return whether an operation on a resource is allowed, and note it in the audit log.

        `logs_allowed` and `logs_denied` are Kafka's logIfAllowed and logIfDenied: false where
        the answer filters a list, or where another question decides. `references` is how often
        the request names the resource.
        """

    def has_allowed(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        kind: ResourceKind,
        names: Set[str],
    ) -> bool:
        """Return whether an operation is known to be allowed on all of some resources.

        For what is asked with every request: false where `may` has to be asked, as the audit log
        is to have each answer.
        """

    def may_any(self, requester: Requester, operation: Operation, kind: ResourceKind) -> bool:
        """Return whether an operation is allowed on at least one resource of a kind.

        Authorizer.authorizeByResourceType (KIP-679).
        """
