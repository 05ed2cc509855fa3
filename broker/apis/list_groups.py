"""ListGroups: the groups that this broker coordinates."""

from __future__ import annotations

from broker.context import RequestContext
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def handle(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """List the groups that pass the request's filters."""
    error, groups = context.broker.groups.list_groups(request.states_filter, request.types_filter)
    return ListGroupsResponse(error_code=error, groups=groups)
