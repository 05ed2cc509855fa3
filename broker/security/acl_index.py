"""Finds what the ACLs say of a request: the decisions of Kafka's StandardAuthorizerData.

An entry is about a resource when it names it, names the beginning of its name, or, being
literal, names "*". Of those for the client's principal and host one that denies wins over all
that allow. An entry that allows to read, write, delete or alter also allows to describe, and
one that allows to alter configurations to describe them; entries that deny imply nothing.
A resource that no entry at all is about falls to the default.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from broker.security.acls import (
    EVERYBODY,
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    Permission,
)
from broker.security.authorization import ResourceKind
from broker.security.authorized_operations import Operation

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

# The entries about one pattern, by principal and host, in Kafka's order. Of one principal and host
# there are as many at most as there are operations and permissions.
_OfPattern = dict[str, dict[str, list[Acl]]]


class AclIndex:
    """The entries, ready to be asked; the authorizer owns it.

    A question takes a time that depends on the name and on the entries about it, not on how many
    there are. So does a change, but that a new prefix has those of its kind put in order.
    """

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._literal: dict[tuple[int, str], _OfPattern] = {}
        self._prefixed: dict[int, _Prefixes] = {}
        # By kind, principal and host, for questions about any resource.
        self._of_asker: dict[tuple[int, str, str], set[Acl]] = {}
        self.add(acls)

    def add(self, acls: Iterable[Acl]) -> None:
        """Let entries count that are not there yet."""
        for acl in acls:
            by_host = self._pattern_of(acl).setdefault(acl.principal, {})
            insort(by_host.setdefault(acl.host, []), acl, key=_order)
            self._of_asker.setdefault((acl.kind, acl.principal, acl.host), set()).add(acl)

    def remove(self, acls: Iterable[Acl]) -> None:
        """Let entries count no more that are there."""
        for acl in acls:
            of_pattern = self._pattern_of(acl)
            of_pattern[acl.principal][acl.host].remove(acl)
            if not of_pattern[acl.principal][acl.host]:
                del of_pattern[acl.principal][acl.host]
            if not of_pattern[acl.principal]:
                del of_pattern[acl.principal]
            if not of_pattern:
                self._forget(acl)
            asker = acl.kind, acl.principal, acl.host
            self._of_asker[asker].remove(acl)
            if not self._of_asker[asker]:
                del self._of_asker[asker]

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
        allowing: Acl | None = None  # the last one
        for of_pattern in self._about(kind, name):
            if deciding is default:
                deciding = DEFAULT_DENY
            for acl in _of_client(of_pattern, principal, host):
                if acl.permission is Permission.DENY:
                    if acl.operation in (AclOperation.ALL, operation):
                        return Rule(False, f"MatchingAcl(acl={acl})")
                elif acl.operation in allowed_by:
                    allowing = acl
        return deciding if allowing is None else Rule(True, f"MatchingAcl(acl={allowing})")

    def allows_any(
        self, principal: str, host: str, operation: Operation, kind: ResourceKind
    ) -> bool:
        """Return whether entries allow an operation on some resource of a kind.

        Entries that imply it do not count, as in Kafka (Authorizer.authorizeByResourceType).
        """
        allowed: dict[PatternType, set[str]] = {one: set() for one in PatternType}
        denied: dict[PatternType, set[str]] = {one: set() for one in PatternType}
        for asker in itertools.product((kind,), (principal, EVERYBODY), (host, WILDCARD)):
            for acl in self._of_asker.get(asker, ()):
                if acl.operation in (AclOperation.ALL, operation):
                    sides = denied if acl.permission is Permission.DENY else allowed
                    sides[acl.pattern].add(acl.name)
        if WILDCARD in denied[PatternType.LITERAL]:
            return False
        if WILDCARD in allowed[PatternType.LITERAL]:
            return True
        allowed[PatternType.LITERAL] -= denied[PatternType.LITERAL]
        prefixes = denied[PatternType.PREFIXED]
        lengths = {len(one) for one in prefixes}
        return any(
            not any(end <= len(name) and name[:end] in prefixes for end in lengths)
            for names in allowed.values()
            for name in names
        )

    def _pattern_of(self, acl: Acl) -> _OfPattern:
        """Return the entries about the pattern of one, which is to be among them."""
        if acl.pattern is PatternType.PREFIXED:
            return self._prefixed.setdefault(acl.kind, _Prefixes()).of(acl.name)
        return self._literal.setdefault((acl.kind, acl.name), {})

    def _forget(self, acl: Acl) -> None:
        if acl.pattern is PatternType.PREFIXED:
            self._prefixed[acl.kind].forget(acl.name)
        else:
            del self._literal[acl.kind, acl.name]

    def _about(self, kind: ResourceKind, name: str) -> Iterator[_OfPattern]:
        """Yield what is about a resource, the longest names first, "*" last."""
        literal = self._literal.get((kind, name))
        if literal is not None:
            yield literal
        prefixed = self._prefixed.get(kind)
        if prefixed is not None:
            yield from prefixed.about(name)
        # Kafka takes it for a name that is too short where the resource's begins with it.
        if not name.startswith(WILDCARD):
            everything = self._literal.get((kind, WILDCARD))
            if everything is not None:
                yield everything


class _Prefixes:
    """The patterns of one kind that are beginnings of names, each with its entries.

    In the order of their names all that a name begins with is found from the last one that is not
    behind it: that is one itself, or begins with them, as all do that stand between. So each
    knows the longest of the others that it begins with.
    """

    def __init__(self) -> None:
        self._patterns: dict[str, _OfPattern] = {}
        self._is_in_order = True
        self._names: list[str] = []
        self._in_order: list[_OfPattern] = []
        self._next: list[int] = []  # the place of the longest other one, -1 for none

    def of(self, name: str) -> _OfPattern:
        """Return the entries about a pattern, to be changed."""
        found = self._patterns.get(name)
        if found is None:
            found = self._patterns[name] = {}
            self._is_in_order = False
        return found

    def forget(self, name: str) -> None:
        """Forget a pattern without entries."""
        del self._patterns[name]
        self._is_in_order = False

    def about(self, name: str) -> Iterator[_OfPattern]:
        """Yield the entries of all that a name begins with, the longest first."""
        if not self._is_in_order:
            self._put_in_order()
        at = bisect_right(self._names, name) - 1
        while at >= 0:
            if name.startswith(self._names[at]):
                yield self._in_order[at]
            at = self._next[at]

    def _put_in_order(self) -> None:
        self._names = sorted(self._patterns)
        self._in_order = [self._patterns[one] for one in self._names]
        self._next = []
        above: list[int] = []
        for at, name in enumerate(self._names):
            while above and not name.startswith(self._names[above[-1]]):
                above.pop()
            self._next.append(above[-1] if above else -1)
            above.append(at)
        self._is_in_order = True


def _of_client(of_pattern: _OfPattern, principal: str, host: str) -> Iterable[Acl]:
    """Return the entries that are for a client, in Kafka's order."""
    found = [
        entries
        for one in ((principal, EVERYBODY) if principal != EVERYBODY else (EVERYBODY,))
        if (by_host := of_pattern.get(one)) is not None
        for where in (WILDCARD, host)
        if (entries := by_host.get(where)) is not None
    ]
    if len(found) < 2:
        return found[0] if found else ()
    return sorted(itertools.chain(*found), key=_order)


def _order(acl: Acl) -> tuple[AclOperation, str, str, Permission]:
    """Kafka's order among entries about one pattern: it decides which the audit log names."""
    return acl.operation, acl.principal, acl.host, acl.permission
