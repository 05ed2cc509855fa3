"""The errors of a log; the broker maps each kind to one of Kafka's error codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path


class StorageError(Exception):
    """A log could not carry out an operation; the message says what to change."""


class OffsetOutOfRange(StorageError):
    """The offset lies outside [log start offset, log end offset]."""


class CorruptBatch(StorageError):
    """The bytes are not those that the producer sent: an impossible size, or a wrong CRC."""


class NotOneBatch(StorageError):
    """The bytes are not exactly one whole batch of magic 2."""


class BatchTooLarge(StorageError):
    """The batch is larger than the topic's max.message.bytes."""


class BatchLargerThanSegment(StorageError):
    """The batch is larger than the topic's segment.bytes."""


class UnpackedTooMuch(StorageError):
    """The batches before this one in the request unpacked to the limit for all of them."""


class InvalidRecord(StorageError):
    """Records break a rule of the topic; `record_errors` lists (index in the batch, message)."""

    def __init__(self, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.record_errors = tuple(record_errors)


class InvalidTimestamp(InvalidRecord):
    """A record's timestamp is outside the range that the topic allows."""


class OutOfOrderSequence(StorageError):
    """An idempotent producer's sequence does not follow its last one."""


class InvalidProducerEpoch(StorageError):
    """A producer of an older epoch is still writing."""


class InvalidTransactionState(StorageError):
    """The batch is outside the transaction that its producer has open."""


class TransactionCoordinatorFenced(StorageError):
    """The marker is from a transaction coordinator that another has replaced."""


class NotCached(Exception):
    """The read would wait for the disk, which the caller did not allow.

    `warm` waits for the disk, and may run in a thread; after it the caller may try again.
    """

    def __init__(self, warm: Callable[[], object]) -> None:
        super().__init__("not in memory")
        self.warm = warm


class StaleSegments(StorageError):
    """Segments to replace are no longer current: the log was truncated, trimmed or deleted."""


class CorruptFile(StorageError):
    """A file of the log is damaged; the message names the file, the position and the cause.

    `offset` is the first offset that cannot be read, where that is known.
    """

    def __init__(
        self, path: Path, position: int, cause: str, *, offset: int | None = None
    ) -> None:
        super().__init__(f"{path} is damaged at position {position}: {cause}")
        self.path, self.position, self.cause = path, position, cause
        self.offset = offset

    @classmethod
    def differing(cls, path: Path, found: bytes, intact: bytes, cause: str) -> CorruptFile:
        """Return the error for a file whose intact bytes are known, at the first difference."""
        pairs = enumerate(zip(found, intact, strict=False))
        first = (at for at, (a, b) in pairs if a != b)
        return cls(path, next(first, min(len(found), len(intact))), cause)


class DiskFailure(StorageError):
    """The operating system refused a file operation."""

    def __init__(self, path: Path, cause: OSError) -> None:
        super().__init__(f"{path}: {cause.strerror or cause}")
        self.path, self.cause = path, cause


class StoreFailure(StorageError):
    """The object store did not answer, or refused to; its objects may well be intact.

    No disk is to blame. Clients get a retriable code, as the same read may succeed later.
    """

    def __init__(self, path: Path, key: str, cause: Exception) -> None:
        super().__init__(f"{path}: object {key}: {cause}")
        self.path, self.key, self.cause = path, key, cause


class DirectoryOffline(StorageError):
    """A log directory, or a log in it, cannot be used for now; the message says why."""


class BucketFailure(StorageError):
    """The object store of shared topics refuses, or does not answer."""


class NotLeader(StorageError):
    """Another broker has the log, or none has it for now."""


class DirectoryInUse(StorageError):
    """Another process holds the log directory."""


class CopyCancelled(StorageError):
    """The copy of a log to another directory was cancelled."""


class NewerFormat(StorageError):
    """A newer release, of this program or of Kafka, wrote the file."""


class UnknownDirectory(StorageError):
    """The directory's meta.properties belongs to another cluster or node."""
