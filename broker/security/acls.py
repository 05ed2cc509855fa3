"""Access control entries: each allows or denies one operation on resources to a principal.

The codes are those of the protocol, as in Kafka's PatternType and AclPermissionType; other
numbers become UNKNOWN.
"""

from __future__ import annotations

import json
from dataclasses import astuple
from enum import IntEnum

from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.dataclass import dataclass
from odradek.protocol.codes import OpenCode

# In an ACL, any host; as a literal name, any resource of its kind.
WILDCARD = "*"
# The principal of ACLs for everybody; "*" of another type is an ordinary name.
EVERYBODY = "User:*"


class PatternType(OpenCode):
    """How the name of a resource is compared; ANY and MATCH appear in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(OpenCode):
    """Whether an ACL denies or allows; ANY appears in filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True)
class Acl:
    """An entry (StandardAcl). Equal entries are the same entry."""

    kind: ResourceKind
    name: str
    pattern: PatternType
    principal: str  # "User:ann"
    host: str
    operation: AclOperation
    permission: Permission

    @property
    def is_vague(self) -> bool:
        """Whether it contains ANY or MATCH, which are for filters only."""
        return (
            self.kind is ResourceKind.ANY
            or self.pattern in (PatternType.ANY, PatternType.MATCH)
            or self.operation is AclOperation.ANY
            or self.permission is Permission.ANY
        )

    def __str__(self) -> str:
        # The same text as in Kafka's audit log.
        return (
            f"StandardAcl[resourceType={self.kind.name}, resourceName={self.name}, "
            f"patternType={self.pattern.name}, principal={self.principal}, host={self.host}, "
            f"operation={self.operation.name}, permissionType={self.permission.name}]"
        )


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter of entries; None and ANY match every value (AclBindingFilter)."""

    kind: ResourceKind
    name: str | None
    pattern: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: Permission

    def matches(self, acl: Acl) -> bool:
        """Return whether an entry matches."""
        return (
            (self.kind is ResourceKind.ANY or self.kind is acl.kind)
            and self._matches_name(acl)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and (self.operation is AclOperation.ANY or self.operation is acl.operation)
            and (self.permission is Permission.ANY or self.permission is acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        any_pattern = self.pattern in (PatternType.ANY, PatternType.MATCH)
        if not any_pattern and self.pattern is not acl.pattern:
            return False
        if self.name is None:
            return True
        if self.pattern is not PatternType.MATCH:
            return self.name == acl.name
        # MATCH finds the entries that apply to a resource of this name.
        if acl.pattern is PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name in (self.name, WILDCARD)


def to_row(acl: Acl) -> str:
    """Return the name of an entry's row: the whole entry, so that it is stored only once."""
    return json.dumps([one.name if isinstance(one, IntEnum) else one for one in astuple(acl)])


def from_row(text: str) -> Acl:
    """Read a row that `to_row` wrote. Raises ValueError, also for rows of a later release."""
    try:
        kind, name, pattern, principal, host, operation, permission = json.loads(text)
        return Acl(
            ResourceKind[kind], name, PatternType[pattern], principal, host,
            AclOperation[operation], Permission[permission],
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not an access control entry: {text}") from error
