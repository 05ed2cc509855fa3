"""The responses of batches, accepted or refused, with Kafka's codes and fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from odradek.broker.counters.metrics import Metrics
from odradek.broker.errors import code_of, message_of
from odradek.broker.topics.disks import Disks
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import PRODUCE_KEY
from odradek.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceResponse,
)
from odradek.storage.errors import InvalidRecord, NotOneBatch, StorageError
from odradek.storage.log import Log

# Errors that Kafka reports without the log start offset (ReplicaManager.appendToLocalLog). It
# also leaves it out for records that are not one batch (ProduceRequest.validateRecords).
_WITHOUT_START_OFFSET = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    )
)


class RefusalServices(Protocol):
    """The parts of a broker that count the batches that a log refuses."""

    disks: Disks
    metrics: Metrics


def accepted(
    index: int, base_offset: int, log_append_time_ms: int, log_start_offset: int
) -> PartitionProduceResponse:
    """Return the response for a partition whose batch was appended."""
    return PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )


def explain(
    services: RefusalServices, log: Log, index: int, error: StorageError
) -> PartitionProduceResponse:
    """Return the response for a batch that a log refuses, and note a failure of its disk."""
    services.metrics.refused_batches += 1
    services.disks.note(log, error)
    refused = refusal(index, code_of(error), message_of(error))
    if refused.error_code not in _WITHOUT_START_OFFSET and not isinstance(error, NotOneBatch):
        refused.log_start_offset = log.log_start_offset
    if isinstance(error, InvalidRecord):
        refused.record_errors = [
            BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=text)
            for at, text in error.record_errors
        ]
    return refused


def refusal(index: int, code: ErrorCode, message: str | None) -> PartitionProduceResponse:
    """Return the response for a partition whose batch was not appended."""
    return PartitionProduceResponse(
        index=index,
        error_code=code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        error_message=message or code.sentence,
    )


def not_permitted(partition: PartitionProduceData, code: ErrorCode) -> PartitionProduceResponse:
    """Return the response for a partition that the client may not write to."""
    refused = refusal(partition.index, code, None)
    refused.error_message = None  # as in Kafka
    return refused


def all_refused(response: ProduceResponse) -> Iterator[PartitionProduceResponse]:
    """Iterate over the partitions of a response whose batches were not appended."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                yield partition


def fail_unflushed(
    metrics: Metrics, appended: Iterable[tuple[Log, PartitionProduceResponse]]
) -> None:
    """Turn the responses for batches whose flush has failed into errors."""
    for log, partition in appended:
        if log.failure is not None:
            refused = refusal(partition.index, code_of(log.failure), message_of(log.failure))
            partition.error_code = refused.error_code
            partition.error_message = refused.error_message
            partition.base_offset = partition.log_append_time_ms = -1
            partition.log_start_offset = -1
            metrics.count_error(PRODUCE_KEY, refused.error_code)
