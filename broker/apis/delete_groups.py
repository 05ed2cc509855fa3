"""DeleteGroups (42): remove empty groups and their offsets.

Versions 0 to 2. v2: flexible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import groupby

from odradek.broker.context import RequestContext
from odradek.broker.coordination.runtime import Answer
from odradek.broker.orders.java import copied_capacity, hash_order
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from odradek.protocol.pacing import paced


async def handle(
    services: Services, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Answer when the tombstones of all groups that can be removed are stored."""
    # All deletions begin before the first is awaited, so that one flush serves them all.
    names = dict.fromkeys(paced(request.groups_names))
    groups = services.groups
    permitted = context.permitted(AclOperation.DELETE, ResourceKind.GROUP, names)
    asked = groups.in_asking_order(group_id for group_id in paced(names) if group_id in permitted)
    begun = {group_id: _delete(services, group_id) for group_id in paced(asked)}
    errors: dict[str, ErrorCode] = {}
    for group_id, answer in paced(begun.items()):
        errors[group_id] = answer if isinstance(answer, ErrorCode) else await answer
    results = [
        DeletableGroupResult(group_id=group_id, error_code=errors[group_id])
        for _, some in paced(groupby(asked, groups.partition_of))
        for group_id in paced(_in_order(services, list(paced(some)), errors))
    ]
    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
    results += [
        DeletableGroupResult(group_id=group_id, error_code=denied)
        for group_id in paced(names)
        if group_id not in permitted
    ]
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)


def _in_order(
    services: Services, group_ids: list[str], errors: Mapping[str, ErrorCode]
) -> Iterable[str]:
    """Sort the groups of a partition as Kafka does: share groups that failed come first.

    Kafka's source: GroupCoordinatorService.updateResponseAndGetNonErrorGroupList.
    """
    refused = [
        group_id
        for group_id in paced(group_ids)
        if errors[group_id] is not ErrorCode.NONE and services.share_groups.has(group_id)
    ]
    kept = set(refused)
    others = [group_id for group_id in paced(group_ids) if group_id not in kept]
    # Kafka puts the refused groups into a map one by one. The others are left in a set that is
    # created from all groups at once.
    room = max(copied_capacity(len(group_ids)), 16)
    return [*hash_order(refused, pace=paced), *hash_order(others, capacity=room, pace=paced)]


def _delete(services: Services, group_id: str) -> Answer[ErrorCode]:
    if services.share_groups.has(group_id):
        return asyncio.ensure_future(services.share_groups.delete(group_id))
    return services.groups.delete(group_id)
