"""Finds what the ACLs say of a request: the decisions of Kafka's StandardAuthorizerData.

An entry is about a resource when it names it, names the beginning of its name, or, being
literal, names "*". Of those for the client's principal and host one that denies wins over all
that allow. An entry that allows to read, write, delete or alter also allows to describe, and
one that allows to alter configurations to describe them; entries that deny imply nothing.
A resource that no entry at all is about falls to the default.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from broker.authorized_operations import Operation
from broker.security.acls import (
    EVERYBODY,
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    Permission,
)
from broker.security.authorization import ResourceKind

# The operations of entries that allow an operation (IMPLIES_DESCRIBE and its like).
_ALLOWED_BY: dict[int, frozenset[int]] = {
    one: frozenset((AclOperation.ALL, one)) for one in AclOperation
}
_ALLOWED_BY[AclOperation.DESCRIBE] |= {
    AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER,
}  # fmt: skip
_ALLOWED_BY[AclOperation.DESCRIBE_CONFIGS] |= {AclOperation.ALTER_CONFIGS}


@dataclass(frozen=True, slots=True)
class Rule:
    """What decides, as the audit log tells it."""

    allowed: bool
    text: str


SUPER_USER = Rule(True, "SuperUser")
DEFAULT_ALLOW = Rule(True, "DefaultAllow")
DEFAULT_DENY = Rule(False, "DefaultDeny")

# The entries about one pattern, by principal, in Kafka's order.
_OfPattern = dict[str, list[Acl]]


class AclIndex:
    """A set of entries, ready to be asked. It does not change: another set is another index."""

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._literal: defaultdict[tuple[int, str], _OfPattern] = defaultdict(dict)
        self._prefixed: defaultdict[tuple[int, str], _OfPattern] = defaultdict(dict)
        self._of_kind: defaultdict[int, list[Acl]] = defaultdict(list)
        lengths: defaultdict[int, set[int]] = defaultdict(set)
        for acl in sorted(acls, key=_order):
            of_type = self._literal
            if acl.pattern is PatternType.PREFIXED:
                of_type = self._prefixed
                lengths[acl.kind].add(len(acl.name))
            of_type[acl.kind, acl.name].setdefault(acl.principal, []).append(acl)
            self._of_kind[acl.kind].append(acl)
        self._lengths = {kind: sorted(found, reverse=True) for kind, found in lengths.items()}

    def rule(
        self,
        principal: str,
        host: str,
        operation: Operation,
        kind: ResourceKind,
        name: str,
        default: Rule,
    ) -> Rule:
        """Return what decides; `default` does where no entry is about the resource."""
        deciding, allowed_by = default, _ALLOWED_BY[operation]
        for of_pattern in self._about(kind, name):
            if deciding is default:
                deciding = DEFAULT_DENY
            for acl in _of_principal(of_pattern, principal):
                if acl.host not in (WILDCARD, host):
                    continue
                if acl.permission is Permission.DENY:
                    if acl.operation in (AclOperation.ALL, operation):
                        return Rule(False, f"MatchingAcl(acl={acl})")
                elif acl.operation in allowed_by:
                    deciding = Rule(True, f"MatchingAcl(acl={acl})")
        return deciding

    def allows_any(
        self, principal: str, host: str, operation: Operation, kind: ResourceKind
    ) -> bool:
        """Tell whether entries allow an operation on some resource of a kind.

        Entries that imply it do not count, as in Kafka (Authorizer.authorizeByResourceType).
        """
        allowed: dict[PatternType, set[str]] = {one: set() for one in PatternType}
        denied: dict[PatternType, set[str]] = {one: set() for one in PatternType}
        for acl in self._of_kind.get(kind, ()):
            if (
                acl.principal in (principal, EVERYBODY)
                and acl.host in (WILDCARD, host)
                and acl.operation in (AclOperation.ALL, operation)
            ):
                sides = denied if acl.permission is Permission.DENY else allowed
                sides[acl.pattern].add(acl.name)
        if WILDCARD in denied[PatternType.LITERAL]:
            return False
        if WILDCARD in allowed[PatternType.LITERAL]:
            return True
        allowed[PatternType.LITERAL] -= denied[PatternType.LITERAL]
        return any(
            not any(name[:end] in denied[PatternType.PREFIXED] for end in range(1, len(name) + 1))
            for names in allowed.values()
            for name in names
        )

    def _about(self, kind: ResourceKind, name: str) -> Iterator[_OfPattern]:
        """Yield what is about a resource, the longest names first, "*" last."""
        literal = self._literal.get((kind, name))
        if literal is not None:
            yield literal
        for length in self._lengths.get(kind, ()):
            if length <= len(name):
                prefixed = self._prefixed.get((kind, name[:length]))
                if prefixed is not None:
                    yield prefixed
        # Kafka takes it for a name that is too short where the resource's begins with it.
        if not name.startswith(WILDCARD):
            everything = self._literal.get((kind, WILDCARD))
            if everything is not None:
                yield everything


def _of_principal(of_pattern: _OfPattern, principal: str) -> Iterable[Acl]:
    own = of_pattern.get(principal, [])
    if principal == EVERYBODY:
        return own
    everybodys = of_pattern.get(EVERYBODY, [])
    return sorted(own + everybodys, key=_order) if own and everybodys else own or everybodys


def _order(acl: Acl) -> tuple[AclOperation, str, str, Permission]:
    """Kafka's order among entries about one pattern: it decides which the audit log names."""
    return acl.operation, acl.principal, acl.host, acl.permission
