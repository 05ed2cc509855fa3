"""The errors that clients get when a coordinator's log has failed."""

from __future__ import annotations

import logging
from asyncio import Future

from odradek.broker import errors
from odradek.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

# The client's error by the log's own error, when the log could not take the records; as
# Kafka's CoordinatorOperationExceptionHelper maps them. Other errors reach the client unchanged.
_CLIENT_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def outcome(appended: Future[None]) -> ErrorCode:
    """Return the client's error for an append that has ended."""
    if appended.cancelled():
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = appended.exception()
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, errors.EXPLAINED):
        code = errors.code_of(error)
        return _CLIENT_ERRORS.get(code, code)
    logger.error("failed to append records", exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR
