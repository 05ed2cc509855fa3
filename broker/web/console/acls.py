"""The access control lists: the operations that principals may perform, and from where.

    GET  /api/acls
    POST /api/acls/create, /api/acls/delete
        {"principal", "operation", "permission", "host", "resource", "name", "pattern"}

Words stand for Kafka's numbers: READ, ALLOW, TOPIC, LITERAL and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TypeVar

from odradek.broker.security.acls import PatternType, Permission
from odradek.broker.security.authorization import CLUSTER_NAME, AclOperation, ResourceKind
from odradek.broker.web.console.actor import Actor
from odradek.broker.web.console.asking import Asker, ConsoleServices, require
from odradek.broker.web.console.body import Body
from odradek.broker.web.console.plan import Action, Plan
from odradek.broker.web.requests import Parameters, Problem
from odradek.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from odradek.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from odradek.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from odradek.protocol.pacing import paced

C = TypeVar("C", bound=IntEnum)

_MEMBERS = ("principal", "operation", "permission", "host", "resource", "name", "pattern")
_IN_FILTERS_ONLY = ("UNKNOWN", "ANY", "MATCH")


def make(broker: ConsoleServices, asker: Asker) -> Sequence[Action]:
    """Return the actions on entries."""
    plans = AclActions(asker)
    return (
        Action("create", _MEMBERS, plans.create),
        Action("delete", _MEMBERS, plans.delete),
    )


async def show(asker: Asker, actor: Actor, parameters: Parameters) -> Mapping[str, object]:
    """Return all entries, for an answer. Raises Problem."""
    answer = await _all(asker, actor)
    return {
        "acls": [
            {
                "principal": one.principal,
                "operation": AclOperation(one.operation).name,
                "permission": Permission(one.permission_type).name,
                "host": one.host,
                "resource": ResourceKind(resource.resource_type).name,
                "name": resource.resource_name,
                "pattern": PatternType(resource.pattern_type).name,
            }
            for resource in paced(answer.resources)
            for one in paced(resource.acls)
        ]
    }


async def _all(asker: Asker, actor: Actor) -> DescribeAclsResponse:
    request = DescribeAclsRequest(
        resource_type_filter=ResourceKind.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=Permission.ANY,
    )
    answer = await asker.ask(actor, request, DescribeAclsResponse)
    require(answer.error_code, answer.error_message)
    return answer


class AclActions:
    """Plans actions on entries."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def create(self, actor: Actor, body: Body) -> Plan:
        """Create an entry."""
        entry, text = _entry(body)
        self._asker.require_right(actor, AclOperation.ALTER, ResourceKind.CLUSTER)
        await _all(self._asker, actor)  # refused where there is no authorizer

        async def carry_out() -> Sequence[str]:
            request = CreateAclsRequest(creations=[entry])
            answer = await self._asker.ask(actor, request, CreateAclsResponse)
            require(answer.results[0].error_code, answer.results[0].error_message)
            return [f"The entry is in force: {text}."]

        return Plan([f"Create an entry: {text}."], carry_out)

    async def delete(self, actor: Actor, body: Body) -> Plan:
        """Delete an entry."""
        entry, text = _entry(body)
        self._asker.require_right(actor, AclOperation.ALTER, ResourceKind.CLUSTER)
        chosen = DeleteAclsFilter(
            resource_type_filter=entry.resource_type,
            resource_name_filter=entry.resource_name,
            pattern_type_filter=entry.resource_pattern_type,
            principal_filter=entry.principal,
            host_filter=entry.host,
            operation=entry.operation,
            permission_type=entry.permission_type,
        )

        async def carry_out() -> Sequence[str]:
            request = DeleteAclsRequest(filters=[chosen])
            answer = await self._asker.ask(actor, request, DeleteAclsResponse)
            result = answer.filter_results[0]
            require(result.error_code, result.error_message)
            if not result.matching_acls:
                raise Problem(404, f"there is no such entry: {text}")
            return [f"The entry was deleted: {text}."]

        return Plan([f"Delete the entry: {text}."], carry_out)


def _entry(body: Body) -> tuple[AclCreation, str]:
    """Read an entry, and write it as a sentence. Raises Problem."""
    kind = _word(ResourceKind, body, "resource")
    name = CLUSTER_NAME if kind is ResourceKind.CLUSTER else body.text("name")
    operation = _word(AclOperation, body, "operation")
    permission = _word(Permission, body, "permission", Permission.ALLOW)
    pattern = _word(PatternType, body, "pattern", PatternType.LITERAL)
    principal, host = body.text("principal"), body.optional_text("host") or "*"
    if ":" not in principal:
        raise Problem(400, f"principal {principal!r} has no type: write User:{principal}")
    entry = AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )
    verb = "may" if permission is Permission.ALLOW else "may not"
    where = "" if host == "*" else f" from {host}"
    prefix = "names that begin with " if pattern is PatternType.PREFIXED else ""
    words = kind.name.lower().replace("_", " ")
    subject = words if kind is ResourceKind.CLUSTER else f"{words} {prefix}{name}"
    return entry, f"{principal} {verb} {operation.name} on {subject}{where}"


def _word(codes: type[C], body: Body, name: str, default: C | None = None) -> C:
    text = body.optional_text(name)
    if text is None and default is not None:
        return default
    known = [one.name for one in codes if one.name not in _IN_FILTERS_ONLY]
    if text is None or text.upper() not in known:
        raise Problem(400, f"{name} must be one of {', '.join(known)}")
    return codes[text.upper()]
