"""FindCoordinator: who coordinates a group or a transaction, or keeps the state of a
share-partition. There is one broker, so: this one.
"""

from __future__ import annotations

from broker.context import RequestContext
from broker.shares.key import SharePartitionKey
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_GROUP = 0
_TRANSACTION = 1
_SHARE = 2
_BATCH_VERSION = 4
_SHARE_VERSION = 6
_NO_NODE_ID = -1
_NO_PORT = -1


def handle(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Name this node for every key."""
    version = context.api_version
    if version >= _BATCH_VERSION:
        found = [
            _coordinator(context, key, _problem(request.key_type, key, version))
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(
            error_message=None, node_id=0, host="", port=0, error_code=0, coordinators=found
        )
    error = _problem(request.key_type, request.key, version)
    found_one = _coordinator(context, request.key, error)
    return FindCoordinatorResponse(
        error_code=error,
        error_message=found_one.error_message or error.name,
        node_id=found_one.node_id,
        host=found_one.host,
        port=found_one.port,
        coordinators=[],
    )


def _problem(key_type: int, key: str, api_version: int) -> ErrorCode:
    if key_type in (_GROUP, _TRANSACTION):
        return ErrorCode.NONE
    if key_type == _SHARE and api_version >= _SHARE_VERSION:
        try:
            SharePartitionKey.parse(key)
        except ValueError:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE
    return ErrorCode.INVALID_REQUEST


def _coordinator(context: RequestContext, key: str, error: ErrorCode) -> Coordinator:
    if error is not ErrorCode.NONE:
        return Coordinator(
            key=key,
            node_id=_NO_NODE_ID,
            host="",
            port=_NO_PORT,
            error_code=error,
            error_message=error.sentence,
        )
    host, port = context.advertised()
    return Coordinator(
        key=key,
        node_id=context.broker.node_id,
        host=host,
        port=port,
        error_code=ErrorCode.NONE,
        error_message="",
    )
