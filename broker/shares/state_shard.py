"""The states of share-partitions in one partition of __share_group_state: a state machine.

It has neither clock nor I/O. It takes in each record as soon as it has decided on it, with the
function that replays the log; the request is answered when the log has the record. If the log
refuses a record, the machine is ahead of the log, and asks for a reload.

Kafka's source: ShareCoordinatorShard.

Invariants:

1. The states are those that a replay of all decided records gives, in their order.
2. An answer leaves when the log has all records that were decided before it.
3. A request of an older leader, or with an older state epoch, is refused until the state is
   deleted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import field, replace

from odradek.broker.coordination.effects import Effect, Persist, Reload, Reply, Timer, Token
from odradek.broker.coordination.seams import InTransaction
from odradek.broker.shares.batches import UNCHANGED_OFFSET, StateBatch, combine
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.state_records import Record, ShareSnapshot, ShareState, ShareUpdate
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.storage.transactions import Marker

NO_EPOCH = -1
_NEGATIVE_PARTITION = "The partition id cannot be a negative number."
_READ_UNINITIALIZED = "Read operation on uninitialized share partition not allowed."
_WRITE_UNINITIALIZED = "Write operation on uninitialized share partition not allowed."
_NO_ROOM = "The limit of share partitions with state is reached: delete share groups."
# The summary of a partition without state: no start, and no count of complete deliveries.
_UNKNOWN = ShareState(0, 0, 0, UNCHANGED_OFFSET, -1)


@dataclass(frozen=True, slots=True)
class StateConfig:
    """The options of the states, with Kafka's defaults."""

    updates_per_snapshot: int = 500
    cold_snapshot_interval_ms: int = 300_000
    # Some 200 MB. A short heartbeat of an invented group begins the state of all partitions of the
    # topics it names, and only an administrator deletes the state. Kafka has no limit.
    states_max: int = 500_000


@dataclass(frozen=True, slots=True)
class StateAnswer:
    """The answer to a request about one share-partition."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: ShareState = _UNKNOWN

    def error_message(self, operation: str) -> str:
        """Return the error message in the words of Kafka's PersisterStateManager."""
        return f"Error in {operation} state RPC. {self.message or self.error.sentence}"


@dataclass(slots=True)
class Ticket:
    """Records on their way to the log, and the replies that wait for them."""

    replies: list[Reply] = field(default_factory=list)


class StateShard:
    """Owns the states of one partition."""

    __slots__ = (
        "_appending",
        "_leader_epochs",
        "_state_epochs",
        "_update_counts",
        "config",
        "partition_count",
        "states",
    )

    def __init__(self, config: StateConfig, partition_count: Callable[[bytes], int]) -> None:
        """`partition_count` returns the number of partitions of a topic, 0 for an unknown id."""
        self.config = config
        self.partition_count = partition_count
        self.states: dict[SharePartitionKey, ShareState] = {}
        # The highest epochs that were seen.
        self._leader_epochs: dict[SharePartitionKey, int] = {}
        self._state_epochs: dict[SharePartitionKey, int] = {}
        self._update_counts: dict[SharePartitionKey, int] = {}
        self._appending: deque[Ticket] = deque()

    # --- requests -------------------------------------------------------------------------

    def initialize(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        start_offset: int,
        token: Token,
        now_ms: int,
    ) -> list[Effect]:
        """Begin the state of a share-partition, or begin it again."""
        problem = self._negative(key)
        if problem is None and _is_past(self._state_epochs, key, state_epoch):
            problem = _refusal(ErrorCode.FENCED_STATE_EPOCH)
        problem = problem or self._unknown_topic(key)
        if problem is not None:
            return self._answer(token, problem)
        known = self.states.get(key)
        if known is None and len(self.states) >= self.config.states_max:
            refusal = StateAnswer(ErrorCode.POLICY_VIOLATION, _NO_ROOM)
            return self._answer(token, refusal)
        is_known_start = start_offset != UNCHANGED_OFFSET
        state = ShareState(
            snapshot_epoch=known.snapshot_epoch + 1 if known else 0,
            state_epoch=state_epoch,
            leader_epoch=0,
            start_offset=start_offset,
            delivery_complete_count=0 if is_known_start else -1,
            create_timestamp_ms=now_ms,
            write_timestamp_ms=now_ms,
        )
        return self._store([ShareSnapshot(key, state)], token, StateAnswer())

    def read(
        self, key: SharePartitionKey, leader_epoch: int, token: Token, now_ms: int
    ) -> list[Effect]:
        """Return the state of a share-partition to its leader; store a new leader's epoch."""
        problem = self._negative(key)
        if problem is None and key not in self.states:
            problem = StateAnswer(ErrorCode.INVALID_REQUEST, _READ_UNINITIALIZED)
        problem = problem or self._fenced_leader(key, leader_epoch) or self._unknown_topic(key)
        if problem is not None:
            return self._answer(token, problem)
        state = self.states[key]
        answer = StateAnswer(state=state)
        if leader_epoch in (NO_EPOCH, self._leader_epochs.get(key, NO_EPOCH)):
            return self._answer(token, answer)
        update = replace(state, leader_epoch=leader_epoch, batches=())
        return self._store([self._record(key, update, now_ms)], token, answer)

    def write(
        self,
        key: SharePartitionKey,
        change: ShareState,
        token: Token,
        now_ms: int,
        flaw: str | None = None,
    ) -> list[Effect]:
        """Store a change of a share-partition, unless the change has a flaw."""
        problem = self._negative(key)
        if problem is None and key not in self.states:
            problem = StateAnswer(ErrorCode.INVALID_REQUEST, _WRITE_UNINITIALIZED)
        problem = problem or self._fenced_leader(key, change.leader_epoch)
        if problem is None and _is_past(self._state_epochs, key, change.state_epoch):
            problem = _refusal(ErrorCode.FENCED_STATE_EPOCH)
        problem = problem or self._unknown_topic(key)
        if problem is None and flaw is not None:
            problem = StateAnswer(ErrorCode.INVALID_REQUEST, flaw)
        if problem is not None:
            return self._answer(token, problem)
        update = replace(change, leader_epoch=self.states[key].leader_epoch)
        return self._store([self._record(key, update, now_ms)], token, StateAnswer())

    def summarize(self, key: SharePartitionKey, token: Token) -> list[Effect]:
        """Return a summary of a share-partition; one without state is no error."""
        problem = self._negative(key) or self._unknown_topic(key)
        return self._answer(token, problem or StateAnswer(state=self.states.get(key, _UNKNOWN)))

    def delete(self, key: SharePartitionKey, token: Token) -> list[Effect]:
        """Delete the state of a share-partition; one without state is no error."""
        problem = self._negative(key) or self._unknown_topic(key)
        if problem is not None or key not in self.states:
            return self._answer(token, problem or StateAnswer())
        return self._store([ShareSnapshot(key, None)], token, StateAnswer())

    def topics_deleted(self, topic_ids: Collection[bytes]) -> list[Effect]:
        """Delete the states of the partitions of deleted topics."""
        gone = [ShareSnapshot(key, None) for key in self.states if key.topic_id in topic_ids]
        return self._store(gone) if gone else []

    def snapshot_cold(self, now_ms: int) -> list[Effect]:
        """Write snapshots of states without a recent one, so that old records can be pruned.

        A state whose last record is such a snapshot does not start a further round by itself.
        """
        states = self.states
        if all(one.create_timestamp_ms != one.write_timestamp_ms for one in states.values()):
            return []
        interval_ms = self.config.cold_snapshot_interval_ms
        cold = [
            ShareSnapshot(
                key,
                replace(
                    state, snapshot_epoch=state.snapshot_epoch + 1, write_timestamp_ms=now_ms
                ),
            )
            for key, state in states.items()
            if now_ms - state.write_timestamp_ms >= interval_ms
        ]
        return self._store(cold) if cold else []

    # --- the log --------------------------------------------------------------------------

    def replay(self, record: Record | InTransaction | Marker) -> None:
        """Take in a record; records within transactions count at once, too."""
        if isinstance(record, Marker):
            return
        if isinstance(record, InTransaction):
            stored = record.record
            assert isinstance(stored, ShareSnapshot | ShareUpdate), "the codec decodes no others"
            record = stored
        key = record.key
        if isinstance(record, ShareUpdate):
            _raise(self._leader_epochs, key, record.change.leader_epoch)
            known = self.states.get(key)
            self.states[key] = _merge(known, record.change) if known else record.change
            self._update_counts[key] = self._update_counts.get(key, 0) + 1
        elif record.state is None:
            self.states.pop(key, None)
            self._leader_epochs.pop(key, None)
            self._state_epochs.pop(key, None)
            self._update_counts.pop(key, None)
        else:
            _raise(self._leader_epochs, key, record.state.leader_epoch)
            _raise(self._state_epochs, key, record.state.state_epoch)
            self.states[key] = record.state
            if self._update_counts.get(key, 0) >= self.config.updates_per_snapshot:
                self._update_counts[key] = 0

    def loaded(self, now_ms: int) -> Sequence[Effect]:
        """Begin to serve the replayed states."""
        return []

    def unload(self, now_ms: int) -> Sequence[Effect]:
        """End serving: waiting requests are answered when their appends have ended."""
        return []

    def stored(self, ticket: Ticket, error: ErrorCode, now_ms: int) -> Sequence[Effect]:
        """Answer after the log has a ticket's records (NONE), or could not take them."""
        assert self._appending.popleft() is ticket, "tickets come back in their order"
        if error is ErrorCode.NONE:
            return ticket.replies
        return [*(Reply(one.token, _refusal(error)) for one in ticket.replies), Reload()]

    def timer_fired(self, timer: Timer, now_ms: int) -> Sequence[Effect]:
        """Do nothing: there are no timers."""
        return []

    # --- deciding -------------------------------------------------------------------------

    def _record(self, key: SharePartitionKey, change: ShareState, now_ms: int) -> Record:
        """Return the record of a change: a snapshot after many updates, else an update."""
        known = self.states[key]
        if self._update_counts.get(key, 0) < self.config.updates_per_snapshot:
            batches = combine(change.batches, change.start_offset)
            epoch = known.snapshot_epoch
            return ShareUpdate(key, replace(change, snapshot_epoch=epoch, batches=batches))
        merged = _merge(known, change)
        return ShareSnapshot(
            key,
            replace(
                merged,
                snapshot_epoch=known.snapshot_epoch + 1,
                leader_epoch=change.leader_epoch,
                create_timestamp_ms=now_ms,
                write_timestamp_ms=now_ms,
            ),
        )

    def _store(
        self, records: Sequence[Record], token: Token = None, answer: StateAnswer | None = None
    ) -> list[Effect]:
        for record in records:
            self.replay(record)
        ticket = Ticket([] if answer is None else [Reply(token, answer)])
        self._appending.append(ticket)
        return [Persist(tuple(records), ticket)]

    def _answer(self, token: Token, answer: StateAnswer) -> list[Effect]:
        """Answer without a record, but after the records on which the answer may depend."""
        reply = Reply(token, answer)
        if self._appending:
            self._appending[-1].replies.append(reply)
            return []
        return [reply]

    def _negative(self, key: SharePartitionKey) -> StateAnswer | None:
        if key.partition < 0:
            return StateAnswer(ErrorCode.INVALID_REQUEST, _NEGATIVE_PARTITION)
        return None

    def _fenced_leader(self, key: SharePartitionKey, leader_epoch: int) -> StateAnswer | None:
        if _is_past(self._leader_epochs, key, leader_epoch):
            return _refusal(ErrorCode.FENCED_LEADER_EPOCH)
        return None

    def _unknown_topic(self, key: SharePartitionKey) -> StateAnswer | None:
        if key.partition >= self.partition_count(key.topic_id):
            return _refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return None


def _is_past(epochs: dict[SharePartitionKey, int], key: SharePartitionKey, epoch: int) -> bool:
    return NO_EPOCH != epoch < epochs.get(key, epoch)


def _raise(epochs: dict[SharePartitionKey, int], key: SharePartitionKey, epoch: int) -> None:
    epochs[key] = max(epochs.get(key, epoch), epoch)


def _merge(known: ShareState, change: ShareState) -> ShareState:
    start_offset = change.start_offset
    if start_offset == UNCHANGED_OFFSET:
        start_offset = known.start_offset
    leader_epoch = change.leader_epoch if change.leader_epoch != NO_EPOCH else known.leader_epoch
    both: list[StateBatch] = [*known.batches, *change.batches]
    return replace(
        known,
        start_offset=start_offset,
        delivery_complete_count=change.delivery_complete_count,
        leader_epoch=leader_epoch,
        batches=combine(both, start_offset),
    )


def _refusal(error: ErrorCode) -> StateAnswer:
    return StateAnswer(error, error.sentence)
