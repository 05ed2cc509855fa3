"""Finds the access control entries that match filters, without comparing each with every entry.

A request may contain 100,000 filters, and a broker may have 10,000 entries: comparing all of them
took 52 seconds for a request of a megabyte. An entry that matches a filter has the filter's
principal, host and name, so only the smallest of these sets is searched. A filter without any of
them has only kinds and codes, of which there are 2,048 combinations; it is compared with the
combinations that the entries have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from odradek.broker.security.acls import WILDCARD, Acl, AclFilter, PatternType

_Combination = tuple[int, int, int, int]
_Bucket = list[Acl]


class AclSearch:
    """A set of entries, ready to be searched; made for one request."""

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._by_name: defaultdict[str, _Bucket] = defaultdict(list)
        self._by_principal: defaultdict[str, _Bucket] = defaultdict(list)
        self._by_host: defaultdict[str, _Bucket] = defaultdict(list)
        self._by_combination: defaultdict[_Combination, _Bucket] = defaultdict(list)
        prefixes: set[int] = set()
        for acl in acls:
            self._by_name[acl.name].append(acl)
            self._by_principal[acl.principal].append(acl)
            self._by_host[acl.host].append(acl)
            combination = acl.kind, acl.pattern, acl.operation, acl.permission
            self._by_combination[combination].append(acl)
            if acl.pattern is PatternType.PREFIXED:
                prefixes.add(len(acl.name))
        self._prefix_lengths = sorted(prefixes)

    def find(self, which: AclFilter) -> list[Acl]:
        """Return the entries that match a filter, in no order."""
        if which.name is None and which.principal is None and which.host is None:
            return [
                acl
                for bucket in self._by_combination.values()
                if which.matches(bucket[0])
                for acl in bucket
            ]
        return [acl for acl in self._candidates(which) if which.matches(acl)]

    def _candidates(self, which: AclFilter) -> Sequence[Acl]:
        """Return the smallest set that contains all entries that match a filter."""
        found: list[Sequence[Acl]] = []
        if which.principal is not None:
            found.append(self._by_principal.get(which.principal, ()))
        if which.host is not None:
            found.append(self._by_host.get(which.host, ()))
        if which.name is not None:
            found.append(self._named(which, which.name))
        return min(found, key=len)

    def _named(self, which: AclFilter, name: str) -> Sequence[Acl]:
        if which.pattern is not PatternType.MATCH:
            return self._by_name.get(name, ())
        found: list[Acl] = []
        for one in {name, WILDCARD}:
            found += self._by_name.get(one, ())
        for length in self._prefix_lengths:
            if length >= len(name):
                break
            if name[:length] != WILDCARD:
                found += self._by_name.get(name[:length], ())
        return found
