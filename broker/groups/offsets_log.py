"""Reading the offsets log into a shard, and what its failures mean to clients."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections import Counter

from broker import errors
from broker.groups.records import decode_record
from broker.groups.seams import OffsetsLog
from broker.groups.shard import Shard
from protocol.errors import ErrorCode, ProtocolError

logger = logging.getLogger(__name__)

# Records that are replayed before the loop runs others: about ten milliseconds of work.
_REPLAY_SLICE = 2_000

# What a client is told when the log could not take its records, by the log's own error; as
# Kafka's CoordinatorOperationExceptionHelper maps it. Others reach the client as they are.
_TOLD = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


async def replay(log: OffsetsLog, shard: Shard) -> None:
    """Bring a shard to where its partition of the log ends, with pauses for others.

    A damaged record is skipped with a warning; one of a kind that belongs to other group
    protocols is counted and left alone.
    """
    partition = shard.partition
    counts: Counter[str] = Counter()
    for key, value in log.replay(partition):
        counts["records"] += 1
        _replay_one(shard, key, value, counts)
        if counts["records"] % _REPLAY_SLICE == 0:
            await asyncio.sleep(0)
    if counts:
        told = " ".join(f"{name}={count}" for name, count in counts.items())
        logger.info("loaded groups partition=%d groups=%d %s", partition, len(shard.groups), told)


def outcome(appended: Future[None]) -> ErrorCode:
    """Say what a client is told of an append that has come to its end."""
    if appended.cancelled():
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = appended.exception()
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, errors.EXPLAINED):
        code = errors.code_of(error)
        return _TOLD.get(code, code)
    logger.error("failed to append records", exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR


def _replay_one(shard: Shard, key: bytes, value: bytes | None, counts: Counter[str]) -> None:
    try:
        record = decode_record(key, value)
    except ProtocolError as error:
        counts["damaged"] += 1
        partition = shard.partition
        logger.warning("skipped damaged record partition=%d error=%s", partition, error)
        return
    if record is None:
        counts["ignored"] += 1  # Of a group of another protocol (KIP-848, KIP-932).
    else:
        shard.replay(record)
