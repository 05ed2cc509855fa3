"""Finds the ACL that decides on a request, as Kafka's StandardAuthorizerData does.

An entry applies to a resource when its name equals the resource's name, is a prefix of it (type
PREFIXED), or is the literal "*". Among the entries for the client's principal and host, one that
denies wins over all that allow. An entry that allows READ, WRITE, DELETE or ALTER also allows
DESCRIBE, and ALTER_CONFIGS also allows DESCRIBE_CONFIGS; entries that deny imply nothing. The
default decides on a resource that no entry at all applies to.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator

from odradek.broker.security.acls import EVERYBODY, WILDCARD, Acl, PatternType, Permission
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.dataclass import dataclass

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
    """A decision, and its reason in the words of the audit log."""

    allowed: bool
    text: str


SUPER_USER = Rule(True, "SuperUser")
DEFAULT_ALLOW = Rule(True, "DefaultAllow")
DEFAULT_DENY = Rule(False, "DefaultDeny")

# The entries of one pattern, by principal and host, in Kafka's order. One principal and host have
# at most one entry for each operation and permission.
_OfPattern = dict[str, dict[str, list[Acl]]]


class AclIndex:
    """The entries, indexed for decisions; the authorizer owns it.

    The time of a decision depends on the name and on the entries that apply to it, not on the
    number of entries. So does that of a change, except that a new prefix sorts those of its kind.
    """

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._literal: dict[tuple[int, str], _OfPattern] = {}
        self._prefixed: dict[int, _Prefixes] = {}
        # By kind, principal and host, for decisions on any resource of a kind.
        self._of_asker: dict[tuple[int, str, str], set[Acl]] = {}
        self.add(acls)

    def add(self, acls: Iterable[Acl]) -> None:
        """Add entries that are not in the index."""
        for acl in acls:
            by_host = self._pattern_of(acl).setdefault(acl.principal, {})
            insort(by_host.setdefault(acl.host, []), acl, key=_order)
            self._of_asker.setdefault((acl.kind, acl.principal, acl.host), set()).add(acl)

    def remove(self, acls: Iterable[Acl]) -> None:
        """Remove entries that are in the index."""
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
        operation: AclOperation,
        kind: ResourceKind,
        name: str,
        default: Rule,
    ) -> Rule:
        """Return the rule that decides: `default` where no entry applies to the resource."""
        deciding, allowed_by = default, _ALLOWED_BY[operation]
        allowing: Acl | None = None  # the last entry that allows
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
        self, principal: str, host: str, operation: AclOperation, kind: ResourceKind
    ) -> bool:
        """Return whether entries allow an operation on some resource of a kind.

        As in Kafka, implied operations do not count (Authorizer.authorizeByResourceType).
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
        """Return the entries of an entry's pattern, to add it or to remove it."""
        if acl.pattern is PatternType.PREFIXED:
            return self._prefixed.setdefault(acl.kind, _Prefixes()).of(acl.name)
        return self._literal.setdefault((acl.kind, acl.name), {})

    def _forget(self, acl: Acl) -> None:
        if acl.pattern is PatternType.PREFIXED:
            self._prefixed[acl.kind].forget(acl.name)
        else:
            del self._literal[acl.kind, acl.name]

    def _about(self, kind: ResourceKind, name: str) -> Iterator[_OfPattern]:
        """Iterate over the patterns that match a resource, the longest names first, "*" last."""
        literal = self._literal.get((kind, name))
        if literal is not None:
            yield literal
        prefixed = self._prefixed.get(kind)
        if prefixed is not None:
            yield from prefixed.about(name)
        # For a resource whose name begins with "*", Kafka passes over this entry: it takes "*" for
        # a shorter name.
        if not name.startswith(WILDCARD):
            everything = self._literal.get((kind, WILDCARD))
            if everything is not None:
                yield everything


class _Prefixes:
    """The prefixed patterns of one kind, each with its entries.

    The patterns are sorted by name. Take the last pattern that is not greater than a name: every
    prefix of the name is this pattern or a prefix of it. So each pattern keeps the place of its
    own longest prefix, and the search follows these places.
    """

    def __init__(self) -> None:
        self._patterns: dict[str, _OfPattern] = {}
        self._is_in_order = True
        self._names: list[str] = []
        self._in_order: list[_OfPattern] = []
        self._next: list[int] = []  # the place of the longest shorter prefix, -1 for none

    def of(self, name: str) -> _OfPattern:
        """Return the entries of a pattern, for the caller to change."""
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
        """Iterate over the entries of all prefixes of a name, the longest first."""
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
    """Return the entries for a client, in Kafka's order."""
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
    """Return the sort key of Kafka's order in a pattern: it decides which ACL the log names."""
    return acl.operation, acl.principal, acl.host, acl.permission
