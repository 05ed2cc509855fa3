"""DeleteGroups: remove empty groups and their offsets."""

from __future__ import annotations

import asyncio

from broker.authorized_operations import Operation
from broker.composition import Broker
from broker.context import RequestContext
from broker.coordination.runtime import Answer
from broker.security.authorization import ResourceKind
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Answer when the tombstones of all groups that can be removed are stored."""
    # All are begun before the first is waited for: one flush serves them all.
    names = dict.fromkeys(request.groups_names)
    permitted = context.permitted(Operation.DELETE, ResourceKind.GROUP, names)
    begun = {
        group_id: _delete(context.broker, group_id) for group_id in names if group_id in permitted
    }
    results = []
    for group_id, answer in begun.items():
        error = answer if isinstance(answer, ErrorCode) else await answer
        results.append(DeletableGroupResult(group_id=group_id, error_code=error))
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    results += [
        DeletableGroupResult(group_id=group_id, error_code=refused)
        for group_id in names
        if group_id not in permitted
    ]
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)


def _delete(broker: Broker, group_id: str) -> Answer[ErrorCode]:
    if broker.share_groups.has(group_id):
        return asyncio.ensure_future(broker.share_groups.delete(group_id))
    return broker.groups.delete(group_id)
