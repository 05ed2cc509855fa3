"""The state of a transactional id, and the functions that change it.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
                     -> PrepareAbort  -> CompleteAbort  ->

Each function takes the present value and returns the next one, or the error that forbids the
change; values are immutable, and nothing is written here. Kafka's source: TransactionMetadata and
TransactionCoordinator. The epoch is raised:

- with transaction version 2 (KIP-890), at each end of a transaction, so that late requests of the
  former transaction are refused;
- with older versions, only when a producer begins again, or when the coordinator aborts a
  transaction without its producer.

The last epoch of a producer id for clients is 32,766: after it the client gets another id. 32,767
is reserved for the markers that end the last transaction of such a producer.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import NamedTuple

from odradek.broker.coordination.effects import Producer
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode

NO_PRODUCER = -1
NO_EPOCH = -1
NO_TIME = -1
EPOCH_MAX = 2**15 - 1
# The timeout of transactions that only their producer ends (KIP-939).
NO_TIMEOUT_MS = 2**31 - 1
# Since this transaction version each end of a transaction raises the epoch.
EPOCH_RAISED_SINCE = 2

TakeId = Callable[[], int | None]
"""Draws a producer id that was never used before; None when none is at hand."""


class TransactionState(enum.IntEnum):
    """The state of a transactional id, with Kafka's name and its number in records."""

    word: str

    def __new__(cls, number: int, word: str) -> TransactionState:
        """Create a member from its number and Kafka's name."""
        member = int.__new__(cls, number)
        member._value_ = number
        member.word = word
        return member

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"


PREPARED = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))
ENDED = frozenset(
    (
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    )
)


class TopicPartition(NamedTuple):
    """A partition by its topic's name."""

    topic: str
    partition: int


Partitions = Mapping[TopicPartition, None]
"""Partitions in the order in which they were added; Kafka's own order depends on it."""

NO_PARTITIONS: Partitions = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id's producer and its transaction: the contents of a record.

    `last_epoch` is the former epoch of the producer, which identifies repeated requests; it is
    not in the log.
    """

    producer_id: int
    timeout_ms: int
    updated_ms: int
    previous_producer_id: int = NO_PRODUCER
    next_producer_id: int = NO_PRODUCER
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    state: TransactionState = TransactionState.EMPTY
    partitions: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    started_ms: int = NO_TIME
    client_version: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no further epoch that a client may use."""
        return _is_exhausted(self.epoch)


def initialize(
    known: Transaction,
    timeout_ms: int,
    expected: Producer | None,
    take_id: TakeId,
    now_ms: int,
) -> Transaction | ErrorCode:
    """Begin again with the next epoch; `expected` is the id and epoch of a continuing producer.

    An open transaction is not ended here: see `abort_behind`.
    """
    if not may_continue(known, expected):
        return ErrorCode.PRODUCER_FENCED
    if known.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if known.state not in ENDED or known.producer_id < 0 or known.epoch < NO_EPOCH:
        return ErrorCode.UNKNOWN_SERVER_ERROR  # Only hostile records bring this about.
    producer_id, epoch, last_epoch = known.producer_id, known.epoch + 1, NO_EPOCH
    if known.is_exhausted and (expected is None or expected.epoch == known.epoch):
        taken = take_id()
        if taken is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        producer_id, epoch = taken, 0
        last_epoch = known.epoch if expected is not None else NO_EPOCH
    elif known.is_exhausted:
        return ErrorCode.UNKNOWN_SERVER_ERROR  # as Kafka answers
    elif expected is None:
        pass
    elif known.epoch == NO_EPOCH or expected.epoch == known.epoch:
        last_epoch = known.epoch
    elif expected.epoch == known.last_epoch:
        epoch, last_epoch = known.epoch, known.last_epoch  # The request is repeated.
    else:
        return ErrorCode.PRODUCER_FENCED
    return _moved(
        known,
        TransactionState.EMPTY,
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=NO_PARTITIONS,
        started_ms=NO_TIME,
        updated_ms=now_ms,
    )


def may_continue(known: Transaction, expected: Producer | None) -> bool:
    """Return whether a producer is the known one, or may have been it before.

    A producer of an id that was just created continues after its id had expired.
    """
    return (
        expected is None
        or known.epoch == NO_EPOCH
        or expected.producer_id == known.producer_id
        or (
            expected.producer_id == known.previous_producer_id and _is_exhausted(expected.epoch)
        )
    )


def add_partitions(
    known: Transaction,
    producer: Producer,
    added: Partitions,
    *,
    client_version: int,
    now_ms: int,
) -> Transaction | ErrorCode:
    """Add partitions, beginning a transaction if none is open; NONE when it has them all."""
    error = _stranger(known, producer)
    if error is not ErrorCode.NONE:
        return error
    if known.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_ongoing = known.state is TransactionState.ONGOING
    if is_ongoing and added.keys() <= known.partitions.keys():
        return ErrorCode.NONE
    return _moved(
        known,
        TransactionState.ONGOING,
        partitions={**known.partitions, **added},
        started_ms=known.started_ms if is_ongoing else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


def verify(known: Transaction, producer: Producer, partition: TopicPartition) -> ErrorCode:
    """Return NONE when a producer's transaction has a partition, else the error."""
    error = _stranger(known, producer)
    if error is not ErrorCode.NONE:
        return error
    if known.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if partition not in known.partitions:
        return ErrorCode.TRANSACTION_ABORTABLE
    return ErrorCode.NONE


def abort_behind(
    known: Transaction, *, version: int, take_id: TakeId, now_ms: int
) -> Transaction | None:
    """Prepare to abort an open transaction without its producer, and fence the producer.

    Return None when the producer id must be replaced and no other id is at hand.
    """
    raised = min(known.epoch + 1, EPOCH_MAX)
    if version < EPOCH_RAISED_SINCE:
        return _prepared(known, False, Producer(NO_PRODUCER, raised), NO_EPOCH, 0, now_ms)
    next_id = NO_PRODUCER
    if known.is_exhausted:
        taken = take_id()
        if taken is None:
            return None
        next_id = taken
    return _prepared(known, False, Producer(next_id, raised), known.epoch, version, now_ms)


def end(
    known: Transaction,
    producer: Producer,
    *,
    is_commit: bool,
    version: int,
    take_id: TakeId,
    now_ms: int,
) -> Transaction | ErrorCode:
    """Prepare the end that a producer asks for; NONE when an earlier request has completed it."""
    if version < EPOCH_RAISED_SINCE:
        return _end_in_one_epoch(known, producer, is_commit, now_ms)
    return _end_and_raise(known, producer, is_commit, version, take_id, now_ms)


def complete(known: Transaction, now_ms: int) -> Transaction:
    """End a prepared transaction, after all its partitions have the marker."""
    is_commit = known.state is TransactionState.PREPARE_COMMIT
    changed = _moved(
        known,
        TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        next_producer_id=NO_PRODUCER,
        partitions=NO_PARTITIONS,
        updated_ms=now_ms,
    )
    if known.client_version >= EPOCH_RAISED_SINCE and known.next_producer_id != NO_PRODUCER:
        return replace(changed, producer_id=known.next_producer_id, epoch=0)
    return changed


def _end_in_one_epoch(
    known: Transaction, producer: Producer, is_commit: bool, now_ms: int
) -> Transaction | ErrorCode:
    error = _stranger(known, producer)
    if error is not ErrorCode.NONE:
        return error
    if known.state is TransactionState.ONGOING:
        same = Producer(NO_PRODUCER, known.epoch)
        return _prepared(known, is_commit, same, known.last_epoch, 0, now_ms)
    return _repeated(known.state, is_commit)


def _end_and_raise(
    known: Transaction,
    producer: Producer,
    is_commit: bool,
    version: int,
    take_id: TakeId,
    now_ms: int,
) -> Transaction | ErrorCode:
    state = known.state
    # A repeated request has the old epoch: the first one has raised it, or replaced the id.
    has_replaced = (
        known.previous_producer_id == producer.producer_id
        and producer.epoch == EPOCH_MAX - 1
        and known.epoch == 0
    )
    is_repeated = has_replaced or known.epoch == producer.epoch + 1
    is_current = producer.epoch == known.epoch
    if known.producer_id != producer.producer_id and not has_replaced:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if state in PREPARED:
        is_valid = known.epoch == producer.epoch + 1
    elif state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        is_valid = is_repeated or is_current
    else:
        is_valid = is_current
    if not is_valid:
        return ErrorCode.PRODUCER_FENCED
    is_empty = state in ENDED and not is_repeated
    if state is not TransactionState.ONGOING and (is_commit or not is_empty):
        # A transaction without partitions cannot be committed, but can be aborted (see below).
        return ErrorCode.INVALID_TXN_STATE if is_empty else _repeated(state, is_commit)
    next_id = NO_PRODUCER
    if known.is_exhausted:
        taken = take_id()
        if taken is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        next_id = taken
    raised = Producer(next_id, min(known.epoch + 1, EPOCH_MAX))
    prepared = _prepared(known, is_commit, raised, known.epoch, version, now_ms)
    # The start of a transaction without partitions is the time of its end.
    return replace(prepared, started_ms=now_ms) if is_empty else prepared


def _repeated(state: TransactionState, is_commit: bool) -> ErrorCode:
    """Return the answer to a request for an end that is prepared or done."""
    prepared = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
    done = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    if state is done:
        return ErrorCode.NONE
    if state is prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if state in ENDED or state in PREPARED:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.UNKNOWN_SERVER_ERROR


def _prepared(
    known: Transaction,
    is_commit: bool,
    then: Producer,
    last_epoch: int,
    client_version: int,
    now_ms: int,
) -> Transaction:
    return _moved(
        known,
        TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
        next_producer_id=then.producer_id,
        epoch=then.epoch,
        last_epoch=last_epoch,
        updated_ms=now_ms,
        client_version=client_version,
    )


def _stranger(known: Transaction, producer: Producer) -> ErrorCode:
    if known.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.epoch != producer.epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def _is_exhausted(epoch: int) -> bool:
    return epoch >= EPOCH_MAX - 1


def _moved(known: Transaction, state: TransactionState, **changes: object) -> Transaction:
    # mypy cannot check the names of the changes; dataclasses check them at run time.
    return replace(
        known,
        state=state,
        previous_producer_id=known.producer_id,
        **changes,  # type: ignore[arg-type]
    )
