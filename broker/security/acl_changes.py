"""Creates and deletes access control entries; each change is durable before its answer.

The checks, their order and their messages are Kafka's (AclApis, AclControlManager). Creating an
entry that exists succeeds and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from odradek.broker.counters.authorization import AuthorizationCounts
from odradek.broker.errors import MetadataError, Refusal
from odradek.broker.loop.repeats import Repeats
from odradek.broker.metadata.changes import Changes
from odradek.broker.metadata.store import MetadataStore, RowChanges, SecurityKind
from odradek.broker.security.acl_search import AclSearch
from odradek.broker.security.acls import Acl, AclFilter, PatternType, Permission, from_row, to_row
from odradek.broker.security.authorization import CLUSTER_NAME, AclOperation, ResourceKind
from odradek.broker.security.authorizer import AclAuthorizer
from odradek.config.acl import AclConfig
from odradek.protocol.errors import ErrorCode
from odradek.protocol.pacing import paced

logger = logging.getLogger(__name__)

# Kafka's MAX_RECORDS_PER_USER_OP: the most entries that one request may change.
_CHANGED_MAX = 10_000
# The number of entries that are put into or out of force in one step.
_PART = 200

_NUMBERS_BYTES = 16  # of an entry in a response: codes, kinds, lengths

_IN_LISTS = attrgetter(
    "kind", "name", "pattern", "principal", "permission", "operation", "host"
)

Created = Refusal | None
"""The outcome of creating an entry: None when it exists now."""
Deleted = Refusal | Sequence[Acl]
"""The outcome of a filter: the entries that it deleted, or why it deleted none."""


class AclChanges:
    """The entries in the store and those in force; the event loop owns it."""

    def __init__(
        self,
        stored: Mapping[str, str],
        config: AclConfig,
        store: MetadataStore,
        changes: Changes,
        counts: AuthorizationCounts,
    ) -> None:
        """Put the stored entries in force. Raises MetadataError when one cannot be read."""
        try:
            acls = [from_row(row) for row in stored]
        except ValueError as error:
            raise MetadataError(
                f"{error}. A later release may have written it; rights would differ without it"
            ) from error
        if not (acls or config.super_user_names or config.allow_everyone_if_no_acl_found):
            logger.warning(
                "nobody may do anything: there is no ACL, and super.users is empty. Set it to the "
                "users who create the first ACLs"
            )
        self._store, self._changes = store, changes
        self.authorizer = AclAuthorizer(
            acls,
            config.super_user_names,
            counts,
            allows_by_default=config.allow_everyone_if_no_acl_found,
        )

    def describe(self, which: AclFilter) -> list[Acl]:
        """Return the entries that match a filter, in an order that is always the same."""
        return _ordered(filter(which.matches, self.authorizer.acls))

    def follow(self, rows: RowChanges) -> None:
        """Put entries in force, or out of force, as they were stored."""
        stored = {from_row(row): value is not None for row, value in rows.items()}
        self.authorizer.change(
            added=[acl for acl, is_there in stored.items() if is_there],
            removed=[acl for acl, is_there in stored.items() if not is_there],
        )

    async def create(self, acls: Sequence[Acl]) -> list[Created]:
        """Create entries, each on its own. Raises MetadataError."""
        return await self._changes.run(lambda: self._create(acls))

    async def delete(self, filters: Sequence[AclFilter]) -> list[Deleted]:
        """Delete the entries that match the filters, in one change.

        Raises MetadataError, and CloseConnection when too many filters match the same entries.
        """
        return await self._changes.run(lambda: self._delete(filters))

    async def _create(self, acls: Sequence[Acl]) -> list[Created]:
        outcomes = [_problem(acl) for acl in paced(acls)]
        valid = [acl for acl, problem in zip(acls, outcomes, strict=True) if problem is None]
        new = dict.fromkeys(acl for acl in paced(valid) if acl not in self.authorizer.acls)
        if len(new) > _CHANGED_MAX:
            message = "Unable to perform excessively large batch operation."
            too_many = Refusal(ErrorCode.POLICY_VIOLATION, message)
            return [problem or too_many for problem in outcomes]
        if new:
            rows = {to_row(acl): "" for acl in paced(new)}
            await self._store.change_security(SecurityKind.ACL, rows)
            for some in paced(_in_parts(new, Permission.DENY)):
                self.authorizer.change(added=some)
        for acl in paced(new):
            logger.info("created %s", acl)
        return outcomes

    async def _delete(self, filters: Sequence[AclFilter]) -> list[Deleted]:
        gone: dict[Acl, None] = {}
        outcomes: list[Deleted] = []
        repeats = Repeats()
        described: dict[AclFilter, list[Acl]] = {}
        search = AclSearch(self.authorizer.acls)
        for which in paced(filters):
            problem = _filter_problem(which)
            if which not in described:
                described[which] = [] if problem is not None else _ordered(search.find(which))
                await asyncio.sleep(0)  # searching many entries takes time
            found = described[which]
            again = [acl for acl in found if acl in gone]
            if len(gone) + len(found) - len(again) > _CHANGED_MAX:
                problem = _invalid(
                    f"Cannot remove more than {_CHANGED_MAX} acls in a single delete operation."
                )
            if problem is None:
                repeats.add(sum(map(_response_bytes, again)))
                gone.update(dict.fromkeys(found))
            outcomes.append(found if problem is None else problem)
        if gone:
            forgotten = dict.fromkeys(to_row(acl) for acl in paced(gone))
            await self._store.change_security(SecurityKind.ACL, forgotten)
            for some in paced(_in_parts(gone, Permission.ALLOW)):
                self.authorizer.change(removed=some)
        for acl in paced(gone):
            logger.info("deleted %s", acl)
        return outcomes


def _in_parts(acls: Iterable[Acl], first: Permission) -> list[list[Acl]]:
    """Divide entries into parts that take effect one after the other; others are served meanwhile.

    One permission comes first, so that at no time is more allowed than before or after.
    """
    ordered = sorted(acls, key=lambda acl: acl.permission is not first)
    return [ordered[at : at + _PART] for at in range(0, len(ordered), _PART)]


def _ordered(acls: Iterable[Acl]) -> list[Acl]:
    return sorted(acls, key=_IN_LISTS)


def _response_bytes(acl: Acl) -> int:
    """Return about how many bytes an entry takes in a response."""
    return len(acl.name) + len(acl.principal) + len(acl.host) + _NUMBERS_BYTES


def _problem(acl: Acl) -> Created:
    """Return why an entry is not valid; None when it is."""
    if acl.kind is ResourceKind.CLUSTER and acl.name != CLUSTER_NAME:
        return _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.name:
        return _invalid("Invalid empty resource name")
    if acl.kind in (ResourceKind.UNKNOWN, ResourceKind.ANY):
        return _invalid(f"Invalid resourceType {acl.kind.name}")
    if acl.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        return _invalid(f"Invalid patternType {acl.pattern.name}")
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return _invalid(f"Invalid operation {acl.operation.name}")
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        return _invalid(f"Invalid permissionType {acl.permission.name}")
    if ":" not in acl.principal:
        return _invalid(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating "
            "the principal type from the principal name)"
        )
    return None


def _filter_problem(which: AclFilter) -> Refusal | None:
    if which.kind is ResourceKind.UNKNOWN or which.pattern is PatternType.UNKNOWN:
        return _invalid("Unknown patternFilter.")
    if which.operation is AclOperation.UNKNOWN or which.permission is Permission.UNKNOWN:
        return _invalid("Unknown entryFilter.")
    return None


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)
