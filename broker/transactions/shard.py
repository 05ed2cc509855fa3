"""The transactional ids of one partition of __transaction_state: a machine without clock or I/O.

Every operation takes the time and returns its decisions (coordination/effects.py). A decision
takes effect once the log has it (`stored`); until then the transactional id is busy. It is also
busy from the moment when an end is prepared until all partitions have the marker (`marked`). A
request for a busy id waits until the id is no longer busy, where Kafka answers
CONCURRENT_TRANSACTIONS at once and lets the client ask again; here that is the answer only while
a partition cannot be written to.

    end -> [Persist] -> stored -> [Reply, WriteMarkers] -> marked -> [Persist] -> stored

After the log is replayed, prepared ends are completed: `loaded` asks for their markers, which may
then be written a second time. Kafka's source: TransactionCoordinator, TransactionStateManager.

Invariants:

1. An id has at most one pending decision; requests that come meanwhile wait in their order.
2. A prepared end is never taken back: it is completed, after a replay if need be.
3. A client is answered once the log has the decision that its answer depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial

from odradek.broker.coordination.effects import (
    Act,
    CancelTimer,
    Effect,
    Note,
    Persist,
    Producer,
    Reply,
    StartTimer,
    Timer,
    Token,
)
from odradek.broker.coordination.seams import InTransaction
from odradek.broker.transactions import state
from odradek.broker.transactions.config import TransactionConfig
from odradek.broker.transactions.effects import (
    Completed,
    Expired,
    Granted,
    Moved,
    Ticket,
    TimerKind,
    WriteMarkers,
)
from odradek.broker.transactions.entry import Entry
from odradek.broker.transactions.records import TransactionRecord
from odradek.broker.transactions.state import (
    NO_TIMEOUT_MS,
    PREPARED,
    Partitions,
    TakeId,
    TopicPartition,
    Transaction,
    TransactionState,
)
from odradek.protocol.errors import ErrorCode
from odradek.storage.transactions import Marker

# Kafka's interval of retries: its coordinator sends markers again at once, but its network client
# waits for this time.
_MARKERS_RETRY_MS = 100
# Bytes of tombstones in one append: Kafka's limit, below any useful max.message.bytes.
_TOMBSTONES_BYTES_MAX = 16_384
_TOMBSTONE_OVERHEAD_BYTES = 32

Answer = Granted | ErrorCode


class TransactionShard:
    """Owns the transactional ids of one partition."""

    __slots__ = ("_take_id", "_version", "config", "entries")

    def __init__(
        self, config: TransactionConfig, version: Callable[[], int], take_id: TakeId
    ) -> None:
        """`version` returns the cluster's transaction version."""
        self.config = config
        self._version, self._take_id = version, take_id
        self.entries: dict[str, Entry] = {}

    # --- requests -------------------------------------------------------------------------

    def initialize(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Producer | None,
        token: Token,
        now_ms: int,
    ) -> list[Effect]:
        """Give an id to a producer, and fence the id's former producer; answered with Granted."""
        if not transactional_id:
            return [Reply(token, Granted(ErrorCode.INVALID_REQUEST))]
        if not 0 < timeout_ms <= self.config.max_timeout_ms:
            return [Reply(token, Granted(ErrorCode.INVALID_TRANSACTION_TIMEOUT))]
        entry = self.entries.get(transactional_id)
        if entry is None:
            taken = self._take_id()
            if taken is None:
                return [Reply(token, Granted(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))]
            entry = self.entries[transactional_id] = Entry(Transaction(taken, timeout_ms, now_ms))
        if entry.is_busy:
            again = partial(self.initialize, transactional_id, timeout_ms, expected, token)
            return entry.wait(again, lambda error: Reply(token, Granted(error)))
        known = entry.value
        if known.state is TransactionState.ONGOING:
            if not state.may_continue(known, expected):
                return [Reply(token, Granted(ErrorCode.PRODUCER_FENCED))]
            # The client asks again, and gets another epoch then.
            return self._abort(transactional_id, token, now_ms)
        changed = state.initialize(known, timeout_ms, expected, self._take_id, now_ms)
        if isinstance(changed, ErrorCode):
            return [Reply(token, Granted(changed))]
        granted = Granted(ErrorCode.NONE, changed.producer_id, changed.epoch)
        return self._move(transactional_id, changed, token, granted)

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        added: Partitions,
        client_version: int,
        token: Token,
        now_ms: int,
    ) -> list[Effect]:
        """Add partitions to a producer's transaction; answered with an ErrorCode when stored."""
        entry, error = self._find(transactional_id)
        if entry is None:
            return [Reply(token, error)]
        if entry.is_busy:
            again = partial(
                self.add_partitions, transactional_id, producer, added, client_version, token
            )
            return entry.wait(again, lambda error: Reply(token, error))
        changed = state.add_partitions(
            entry.value, producer, added, client_version=client_version, now_ms=now_ms
        )
        if isinstance(changed, ErrorCode):
            return [Reply(token, changed)]
        return self._move(transactional_id, changed, token, ErrorCode.NONE)

    def verify(
        self, transactional_id: str, producer: Producer, partition: TopicPartition
    ) -> ErrorCode:
        """Return NONE when a producer's transaction has a partition, else the error."""
        entry, error = self._find(transactional_id)
        return error if entry is None else state.verify(entry.value, producer, partition)

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        is_commit: bool,
        client_version: int,
        token: Token,
        now_ms: int,
    ) -> list[Effect]:
        """End a producer's transaction; answered with Granted when the end is prepared."""
        entry, error = self._find(transactional_id)
        if entry is None:
            return [Reply(token, Granted(error))]
        if entry.is_busy:
            again = partial(
                self.end, transactional_id, producer, is_commit, client_version, token
            )
            return entry.wait(again, lambda error: Reply(token, Granted(error)))
        changed = state.end(
            entry.value,
            producer,
            is_commit=is_commit,
            version=client_version,
            take_id=self._take_id,
            now_ms=now_ms,
        )
        if changed is ErrorCode.NONE:  # A former request has ended it.
            done = entry.value
            return [Reply(token, Granted(changed, done.producer_id, done.epoch))]
        if isinstance(changed, ErrorCode):
            return [Reply(token, Granted(changed))]
        then = state.complete(changed, now_ms)
        granted = Granted(ErrorCode.NONE, then.producer_id, then.epoch)
        return self._move(transactional_id, changed, token, granted)

    # --- events without a request -----------------------------------------------------------

    def abort_timed_out(self, now_ms: int) -> list[Effect]:
        """Abort the transactions that have been open for longer than their timeouts."""
        effects: list[Effect] = []
        for transactional_id, entry in self.entries.items():
            value = entry.value
            if value.state is not TransactionState.ONGOING or entry.pending is not None:
                continue
            if value.timeout_ms == NO_TIMEOUT_MS or value.started_ms + value.timeout_ms >= now_ms:
                continue
            effects += self._abort(transactional_id, None, now_ms)
            effects.append(Note(f"transaction timed out transactional_id={transactional_id}"))
        return effects

    def expire(self, now_ms: int) -> list[Effect]:
        """Remove the ids that have been unused for too long."""
        expired: list[str] = []
        for transactional_id, entry in self.entries.items():
            unused_since_ms = now_ms - self.config.expiration_ms
            is_unused = entry.value.updated_ms <= unused_since_ms
            if is_unused and entry.pending is None and entry.value.state in state.ENDED:
                entry.pending = TransactionState.DEAD
                expired.append(transactional_id)
        return [
            Persist(tuple(TransactionRecord(one, None) for one in chunk), Expired(chunk))
            for chunk in _chunks(expired)
        ]

    def marked(
        self, asked: WriteMarkers, missing: Collection[TopicPartition], now_ms: int
    ) -> list[Effect]:
        """Continue after markers have been written to all partitions except `missing`."""
        entry = self.entries.get(asked.transactional_id)
        if entry is None or entry.completed is None:
            return []
        left = dict.fromkeys(missing)
        entry.value = replace(entry.value, partitions=left)
        retry = Timer(asked.transactional_id, TimerKind.MARKERS)
        if left:
            entry.is_stuck = True
            return [StartTimer(retry, _MARKERS_RETRY_MS), *entry.settle(now_ms)]
        effects: list[Effect] = [CancelTimer(retry)] if entry.is_stuck else []
        effects += self._complete(asked.transactional_id, entry)
        return effects + entry.settle(now_ms)

    def timer_fired(self, timer: Timer, now_ms: int) -> list[Effect]:
        """Try again to write markers."""
        entry = self.entries.get(timer.owner)
        if entry is None or entry.completed is None:
            return []
        return [Act(WriteMarkers(timer.owner, entry.value, entry.value.partitions))]

    # --- the log ------------------------------------------------------------------------------

    def stored(self, ticket: Ticket, error: ErrorCode, now_ms: int) -> list[Effect]:
        """Continue after the log has a ticket's records (NONE), or could not take them."""
        if isinstance(ticket, Moved):
            return self._moved(ticket, error, now_ms)
        if isinstance(ticket, Expired):
            return self._expired(ticket, error, now_ms)
        return _note_failure(ticket, error)

    def replay(self, record: TransactionRecord | InTransaction | Marker) -> None:
        """Take in a record while the log is loaded; records within transactions are ignored."""
        if not isinstance(record, TransactionRecord):
            return
        if record.value is None:
            self.entries.pop(record.transactional_id, None)
        else:
            self.entries[record.transactional_id] = Entry(record.value)

    def loaded(self, now_ms: int) -> list[Effect]:
        """Begin to serve the replayed ids: complete the prepared ends."""
        effects: list[Effect] = []
        for transactional_id, entry in self.entries.items():
            if entry.value.state in PREPARED:
                effects += self._write_markers(transactional_id, entry, now_ms)
        return effects

    def unload(self, now_ms: int) -> list[Effect]:
        """End serving: answer waiting requests so that clients look for the coordinator again."""
        effects: list[Effect] = []
        for entry in self.entries.values():
            effects += [one.refuse(ErrorCode.NOT_COORDINATOR) for one in entry.waiting]
            entry.waiting.clear()
        return effects

    # --- parts --------------------------------------------------------------------------------

    def _find(self, transactional_id: str) -> tuple[Entry | None, ErrorCode]:
        if not transactional_id:
            return None, ErrorCode.INVALID_REQUEST
        return self.entries.get(transactional_id), ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def _abort(self, transactional_id: str, token: Token | None, now_ms: int) -> list[Effect]:
        """Abort an open transaction without its producer."""
        changed = state.abort_behind(
            self.entries[transactional_id].value,
            version=self._version(),
            take_id=self._take_id,
            now_ms=now_ms,
        )
        if changed is None:
            refused = Granted(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return [] if token is None else [Reply(token, refused)]
        answer = Granted(ErrorCode.CONCURRENT_TRANSACTIONS)
        return self._move(transactional_id, changed, token, answer)

    def _move(
        self, transactional_id: str, changed: Transaction, token: Token | None, answer: Answer
    ) -> list[Effect]:
        self.entries[transactional_id].pending = changed.state
        record = TransactionRecord(transactional_id, changed)
        return [Persist((record,), Moved(transactional_id, changed, token, answer))]

    def _moved(self, ticket: Moved, error: ErrorCode, now_ms: int) -> list[Effect]:
        entry = self.entries[ticket.transactional_id]
        entry.pending = None
        answer = ticket.answer
        if error is not ErrorCode.NONE:
            answer = Granted(error) if isinstance(answer, Granted) else error
            effects = _reply(ticket.token, answer)
            return effects + entry.settle(now_ms)
        entry.value = ticket.value
        effects = _reply(ticket.token, answer)
        if entry.value.state in PREPARED:
            effects += self._write_markers(ticket.transactional_id, entry, now_ms)
        return effects + entry.settle(now_ms)

    def _write_markers(self, transactional_id: str, entry: Entry, now_ms: int) -> list[Effect]:
        entry.completed = state.complete(entry.value, now_ms)
        entry.is_stuck = False
        if not entry.value.partitions:
            return self._complete(transactional_id, entry)
        return [Act(WriteMarkers(transactional_id, entry.value, entry.value.partitions))]

    def _complete(self, transactional_id: str, entry: Entry) -> list[Effect]:
        """End a transaction after all its partitions have the marker.

        No request waits for the record: if it is lost, the markers are written once more when
        the log is loaded. Later records of the id follow it in the log.
        """
        assert entry.completed is not None
        entry.value, entry.completed, entry.is_stuck = entry.completed, None, False
        record = TransactionRecord(transactional_id, entry.value)
        return [Persist((record,), Completed(transactional_id, entry.value))]

    def _expired(self, ticket: Expired, error: ErrorCode, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for transactional_id in ticket.transactional_ids:
            entry = self.entries[transactional_id]
            entry.pending = None
            if error is ErrorCode.NONE:
                del self.entries[transactional_id]
            effects += entry.settle(now_ms)
        return effects


def _note_failure(ticket: Completed, error: ErrorCode) -> list[Effect]:
    if error is ErrorCode.NONE:
        return []
    # The end is prepared in the log, so it is completed again when the log is loaded.
    fields = f"transactional_id={ticket.transactional_id} error={error.name}"
    return [Note(f"failed to store the end of a transaction {fields}", is_warning=True)]


def _reply(token: Token | None, answer: Answer | None) -> list[Effect]:
    return [] if token is None else [Reply(token, answer)]


def _chunks(transactional_ids: Collection[str]) -> Iterator[tuple[str, ...]]:
    """Yield tuples of ids whose tombstones go into one batch."""
    chunk: list[str] = []
    size = 0
    for one in transactional_ids:
        added = len(one.encode()) + _TOMBSTONE_OVERHEAD_BYTES
        if chunk and size + added > _TOMBSTONES_BYTES_MAX:
            yield tuple(chunk)
            chunk, size = [], 0
        chunk.append(one)
        size += added
    if chunk:
        yield tuple(chunk)
