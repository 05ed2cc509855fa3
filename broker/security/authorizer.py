"""Decides by ACLs which operations a client may perform, as Kafka's StandardAuthorizer does.

Super users may do everything. Decisions are remembered until the ACLs change: a client that
produces needs the same decision for each request.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from odradek.broker.counters.authorization import AuthorizationCounts
from odradek.broker.security.acl_index import (
    DEFAULT_ALLOW,
    DEFAULT_DENY,
    SUPER_USER,
    AclIndex,
    Rule,
)
from odradek.broker.security.acls import Acl
from odradek.broker.security.audit import note, notes_allowed
from odradek.broker.security.authorization import AclOperation, Requester, ResourceKind
from odradek.broker.security.principals import Principal

# The number of decisions that are remembered, each some hundred bytes. A decision about a name
# that is too long for a topic is not remembered: clients can make up any number of such names.
_REMEMBERED_MAX = 20_000
_NAME_MAX = 249
# The same for names of principals, which come from providers of tokens and certificates.
_PRINCIPAL_MAX = 1_000
# Authorizer.authorizeByResourceType checks this name first, so that super users are allowed even
# where an entry denies everybody.
_ANY_NAME = "hardcode"


class AclAuthorizer:
    """The ACLs in force; the event loop owns it."""

    def __init__(
        self,
        acls: Iterable[Acl],
        super_users: Set[str],
        counts: AuthorizationCounts,
        *,
        allows_by_default: bool,
    ) -> None:
        """Start with some entries; a super user is written as type:name."""
        self._counts = counts
        self._super_users = super_users
        self._default = DEFAULT_ALLOW if allows_by_default else DEFAULT_DENY
        self._acls = set(acls)
        self._index = AclIndex(self._acls)
        self._forget_decisions()

    @property
    def acls(self) -> Set[Acl]:
        """All entries in force, as a live set: later changes show in it."""
        return self._acls

    def change(self, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()) -> None:
        """Remove and add entries; the next decision takes all the changes into account."""
        gone = self._acls.intersection(removed)
        self._acls -= gone
        self._index.remove(gone)
        new = set(added) - self._acls
        self._acls |= new
        self._index.add(new)
        self._forget_decisions()

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

        `references` is the number of times that the request names the resource.
        """
        key = requester.principal, requester.host, operation, kind, name
        rule = self._rules.get(key)
        if rule is None:
            rule = self._rule(*key)
            if len(self._rules) >= _REMEMBERED_MAX:
                self._rules.clear()
                self._allowed.clear()
            if len(name) <= _NAME_MAX and len(requester.principal.name) <= _PRINCIPAL_MAX:
                self._rules[key] = rule
                if rule.allowed:
                    self._allowed.setdefault(key[:4], set()).add(name)
        if rule.allowed:
            self._counts.allowed += 1
        else:
            self._counts.denied += 1
        is_asked_for = logs_allowed if rule.allowed else logs_denied
        note(
            requester,
            operation,
            kind,
            name,
            rule,
            is_asked_for=is_asked_for,
            references=references,
        )
        return rule.allowed

    def has_allowed(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        kind: ResourceKind,
        names: Set[str],
    ) -> bool:
        """Return whether an operation is known to be allowed on all of some resources.

        One comparison of sets decides, because every produce and fetch waits for the answer.
        """
        allowed = self._allowed.get((principal, host, operation, kind))
        if allowed is None or not names <= allowed or notes_allowed():
            return False
        self._counts.allowed += len(names)
        return True

    def may_any(self, requester: Requester, operation: AclOperation, kind: ResourceKind) -> bool:
        """Return whether an operation is allowed on at least one resource of a kind."""
        if self.may(requester, operation, kind, _ANY_NAME, logs_denied=False, references=0):
            return True
        principal, host = requester.principal, requester.host
        key = principal, host, operation, kind
        allowed = self._any.get(key)
        if allowed is None:
            allowed = self._index.allows_any(str(principal), host, operation, kind)
            if len(self._any) >= _REMEMBERED_MAX:
                self._any.clear()
            self._any[key] = allowed
        return allowed

    def _rule(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        kind: ResourceKind,
        name: str,
    ) -> Rule:
        principal_name = str(principal)
        if principal_name in self._super_users:
            return SUPER_USER
        return self._index.rule(principal_name, host, operation, kind, name, self._default)

    def _forget_decisions(self) -> None:
        self._rules: dict[tuple[Principal, str, AclOperation, ResourceKind, str], Rule] = {}
        # The names of the resources that these decisions allow.
        self._allowed: dict[tuple[Principal, str, AclOperation, ResourceKind], set[str]] = {}
        self._any: dict[tuple[Principal, str, AclOperation, ResourceKind], bool] = {}
