"""Kafka's error codes, by which a client gets the broker's errors.

The storage reports errors of logs and files, the configuration of values, the metadata store of
its database. One table here has the code of each kind of error.
"""

from __future__ import annotations

from typing import TypeVar

from odradek.config.errors import ConfigError
from odradek.protocol.errors import ErrorCode
from odradek.storage import errors as storage

E = TypeVar("E", bound=Exception)


class MetadataError(Exception):
    """The metadata cannot be read or written; the message names the database."""


class CloseConnection(Exception):
    """No response can express the error: the connection is closed, for the reason given."""


class Refusal(Exception):
    """A request, or a part of one, that the broker refuses; the message says what to change."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.sentence)
        self.code = code


Explained = Refusal | storage.StorageError | ConfigError | MetadataError
"""The errors that a response can report; any other error is a bug, which dispatch logs."""

EXPLAINED = (Refusal, storage.StorageError, ConfigError, MetadataError)

_CODES: tuple[tuple[type[Exception], ErrorCode], ...] = (
    (ConfigError, ErrorCode.INVALID_CONFIG),
    (MetadataError, ErrorCode.KAFKA_STORAGE_ERROR),
    (storage.OffsetOutOfRange, ErrorCode.OFFSET_OUT_OF_RANGE),
    (storage.CorruptBatch, ErrorCode.CORRUPT_MESSAGE),
    (storage.NotOneBatch, ErrorCode.INVALID_RECORD),
    (storage.BatchTooLarge, ErrorCode.MESSAGE_TOO_LARGE),
    (storage.BatchLargerThanSegment, ErrorCode.RECORD_LIST_TOO_LARGE),
    # Producers send the batch again, in a request with fewer before it.
    (storage.UnpackedTooMuch, ErrorCode.NOT_ENOUGH_REPLICAS),
    (storage.InvalidRecord, ErrorCode.INVALID_RECORD),
    (storage.InvalidTimestamp, ErrorCode.INVALID_TIMESTAMP),
    (storage.OutOfOrderSequence, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (storage.InvalidProducerEpoch, ErrorCode.INVALID_PRODUCER_EPOCH),
    (storage.InvalidTransactionState, ErrorCode.INVALID_TXN_STATE),
    (storage.TransactionCoordinatorFenced, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    # As Kafka's CorruptRecordException: a consumer gets the error instead of retrying for good.
    (storage.CorruptFile, ErrorCode.CORRUPT_MESSAGE),
    (storage.DiskFailure, ErrorCode.KAFKA_STORAGE_ERROR),
    # Consumers refresh their metadata and try again, without an error for the application.
    (storage.StoreFailure, ErrorCode.KAFKA_STORAGE_ERROR),
    (storage.DirectoryOffline, ErrorCode.KAFKA_STORAGE_ERROR),
    (storage.BucketFailure, ErrorCode.KAFKA_STORAGE_ERROR),
    (storage.NotLeader, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (storage.DirectoryInUse, ErrorCode.KAFKA_STORAGE_ERROR),
    (storage.NewerFormat, ErrorCode.KAFKA_STORAGE_ERROR),
    (storage.UnknownDirectory, ErrorCode.KAFKA_STORAGE_ERROR),
    # Errors between a thread and the log; a client that gets one has found a bug.
    (storage.StaleSegments, ErrorCode.UNKNOWN_SERVER_ERROR),
    (storage.CopyCancelled, ErrorCode.UNKNOWN_SERVER_ERROR),
)

# Messages quote texts of the client. A string of the older versions holds no more bytes.
_MESSAGE_BYTES_MAX = 32_767

_CODE_OF = dict(_CODES)

# With two lines for one kind their order would matter, and a missing kind would reach clients as
# an unknown error: both mistakes are found when the program starts.
assert len(_CODE_OF) == len(_CODES), "an error has two codes"
_unmapped = set(storage.StorageError.__subclasses__()) - set(_CODE_OF)
assert not _unmapped, f"errors without a code: {_unmapped}"


def as_value(error: E) -> E:
    """Return an error that is kept in place of a result, without its traceback.

    The traceback's frames refer to the request, and to the results: a cycle that holds all
    objects of a large request, until a search for garbage frees them in one piece.
    """
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


def code_of(error: Explained) -> ErrorCode:
    """Return the error code that a client gets for an error."""
    if isinstance(error, Refusal):
        return error.code
    for kind in type(error).__mro__:
        if kind in _CODE_OF:
            return _CODE_OF[kind]
    return ErrorCode.UNKNOWN_SERVER_ERROR


def message_of(error: Explained) -> str:
    """Return the sentence that goes with the code, short enough for any version's string."""
    text = str(error)
    encoded = text.encode(errors="replace")
    if len(encoded) <= _MESSAGE_BYTES_MAX:
        return text
    mark = "…"
    return encoded[: _MESSAGE_BYTES_MAX - len(mark.encode())].decode(errors="ignore") + mark
