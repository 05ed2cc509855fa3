"""Authorization of requests: may this client perform this operation on this resource?

The codes are those of Kafka's AclOperation and ResourceType. Handlers call `RequestContext.may`
and similar methods, and these call the authorizer, where there is one.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import field
from typing import Protocol

from odradek.broker.security.principals import Principal
from odradek.dataclass import dataclass
from odradek.protocol.codes import OpenCode


class AclOperation(OpenCode):
    """An operation that an ACL allows or denies; other numbers become UNKNOWN.

    ANY appears in filters of ACLs only, ALL also in ACLs; a request asks for one of the others.
    """

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceKind(OpenCode):
    """The kind of a resource (ResourceType); other numbers become UNKNOWN.

    ANY appears in filters of ACLs only; a request asks about one of the others.
    """

    UNKNOWN = 0
    ANY = 1
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
    """The number of decisions on one request that the audit log has, by level."""

    logged: dict[int, int] = field(default_factory=dict)
    # The number of further decisions, past the bound of lines, that no line has reported yet.
    left_out: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Requester:
    """The client of a request, with the facts for the audit log (AuthorizableRequestContext)."""

    principal: Principal
    host: str  # "127.0.0.1"
    api_key: int
    api_version: int
    client_id: str
    listener: str
    noted: Noted = field(default_factory=Noted, compare=False)


class Authorizer(Protocol):
    """Decides which operations a client may perform. None of its methods waits."""

    def may(
        self,
        requester: Requester,
        operation: AclOperation,
        kind: ResourceKind,
        name: str,
        *,
        logs_allowed: bool = True,
        logs_denied: bool = True,
        references: int = 1,
    ) -> bool:
        """Return whether an operation on a resource is allowed, and write it to the audit log.

        `logs_allowed` and `logs_denied` are Kafka's logIfAllowed and logIfDenied: false where
        the answer filters a list, or where another call decides. `references` is the number of
        times that the request names the resource.
        """

    def has_allowed(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        kind: ResourceKind,
        names: Set[str],
    ) -> bool:
        """Return whether an operation is known to be allowed on all of some resources.

        For checks of every request. False means that the caller has to call `may`, for example
        because the audit log wants each decision.
        """

    def may_any(self, requester: Requester, operation: AclOperation, kind: ResourceKind) -> bool:
        """Return whether an operation is allowed on at least one resource of a kind.

        Authorizer.authorizeByResourceType (KIP-679).
        """
