"""The records of a share-partition, their stored state, and crashes: what has to hold.

Members fetch, acknowledge and disappear, writes of the state succeed or fail in their order, time
passes, records are appended and deleted; at any time the broker may crash and find only the first
so many records of the state's log. Then:

- nobody gets a record that another one holds, or that is stored as done;
- no record is delivered more often than the limit says;
- the state is the same when it is replayed, and no record is lost in the end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from odradek.broker.coordination.effects import Persist, Reply
from odradek.broker.shares.acknowledging import Acknowledgement, acknowledge, release
from odradek.broker.shares.acquiring import Acquired, Asked, Span, acquire
from odradek.broker.shares.batches import RecordState
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.locks import expire
from odradek.broker.shares.outcomes import Done, Failure, Outcome, Write
from odradek.broker.shares.partition import PartitionConfig, SharePartition
from odradek.broker.shares.state_records import (
    ShareState,
    StateBatch,
    decode_record,
    encode_record,
)
from odradek.broker.shares.state_shard import StateAnswer, StateConfig, StateShard
from odradek.protocol.errors import ErrorCode
from tests.profiles import examples

KEY = SharePartitionKey("g", bytes(15) + b"\1", 0)
LOCK_MS = 1_000
ACCEPT, RENEW = 1, 4
REFUSED = Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "it could not be stored")
members = st.sampled_from("abc")


class Shares(RuleBasedStateMachine):
    """One share-partition, the shard that keeps its state, and the log of that."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.log: list[Span] = []
        self.log_start = 0
        self.records: list[Any] = []
        # After how many records of the state's log each offset is done.
        self.done: dict[int, int] = {}
        self.holders: dict[int, str] = {}
        self.pending: list[Write] = []
        # What has been acknowledged for good with a ticket, by its token.
        self.accepting: dict[object, set[int]] = {}
        self.answered: list[Done] = []

    @initialize(
        deliveries_max=st.integers(2, 6),
        in_flight_max=st.sampled_from((10, 2_000)),
        batch_max=st.sampled_from((2, 5, 10_000)),
        per_snapshot=st.integers(0, 3),
        start=st.sampled_from((0, -1)),
    )
    def begin(
        self,
        deliveries_max: int,
        in_flight_max: int,
        batch_max: int,
        per_snapshot: int,
        start: int,
    ) -> None:
        self.config = PartitionConfig(
            LOCK_MS, deliveries_max, in_flight_max, batch_max=batch_max
        )
        self.state_config = StateConfig(per_snapshot)
        self.shard = self.new_shard()
        self._persist(self.shard.initialize(KEY, 1, start, None, 0))
        self.load()

    def new_shard(self) -> StateShard:
        return StateShard(self.state_config, lambda topic_id: 1)

    def load(self) -> None:
        answer = self._persist(self.shard.read(KEY, 0, None, self.now_ms))
        start = answer.state.start_offset
        if start < 0:
            start = self.log_start
        self.partition = SharePartition(answer.state, start, 0, lambda: self.config)
        self.holders.clear()
        self.pending.clear()
        self.accepting.clear()

    # --- what happens ---------------------------------------------------------------------

    @rule(counts=st.lists(st.integers(1, 6), min_size=1, max_size=4))
    def append(self, counts: list[int]) -> None:
        for count in counts:
            self.log.append(Span(self.log_end, self.log_end + count - 1))

    @precondition(lambda self: self.log_end > self.partition.start_offset)
    @rule(
        member=members,
        is_record_limit=st.booleans(),
        batch_size=st.integers(1, 8),
        records_max=st.integers(1, 12),
        batch_count=st.integers(1, 4),
    )
    def fetch(
        self,
        member: str,
        *,
        is_record_limit: bool,
        batch_size: int,
        records_max: int,
        batch_count: int,
    ) -> None:
        if not self.partition.can_acquire():
            return
        offset = self.partition.next_fetch_offset()
        if offset < self.log_start:
            self.partition.log_begins_at(self.log_start)
            self._ask_who_holds()
            return
        read = [span for span in self.log if span.last_offset >= offset][:batch_count]
        asked = Asked(member, is_record_limit, batch_size, records_max, offset, self.now_ms)
        ranges, _ = acquire(self.partition, asked, read)
        for one in ranges:
            assert 1 <= one.delivery_count <= self.config.deliveries_max
            for at in range(one.first_offset, one.last_offset + 1):
                assert at not in self.holders, "somebody else has it"
                assert at not in self.done, "it is done"
                self.holders[at] = member

    @rule(member=members, data=st.data(), is_strange=st.booleans())
    def acknowledge(self, member: str, data: st.DataObject, *, is_strange: bool) -> None:
        held = sorted(at for at, holder in self.holders.items() if holder == member)
        if is_strange:
            held = sorted(data.draw(st.sets(st.integers(0, self.log_end + 2), max_size=4)))
        if not held:
            return
        ranges = []
        while held:
            first = last = held.pop(0)
            while held and held[0] == last + 1 and data.draw(st.integers(0, 5)):
                last = held.pop(0)
            if data.draw(st.integers(0, 3)):
                count = data.draw(st.sampled_from((1, last - first + 1)))
                types = data.draw(st.lists(st.integers(0, RENEW), min_size=count, max_size=count))
                ranges.append(Acknowledgement(first, last, types))
        token = object()
        outcomes = acknowledge(self.partition, member, ranges, token, self.now_ms)
        is_refused = any(isinstance(one, Done) and one.failure for one in outcomes)
        accepted = set()
        for one in () if is_refused else ranges:
            first = max(one.first_offset, self.partition.start_offset)
            for at in range(first, one.last_offset + 1):
                assert self.holders.get(at) == member, "only who has it may acknowledge it"
                if one.type_of(at) == ACCEPT:
                    accepted.add(at)
                if one.type_of(at) != RENEW:
                    del self.holders[at]
        self.accepting[token] = accepted
        self._go_on(outcomes)

    @rule(member=members)
    def leave(self, member: str) -> None:
        self._go_on(release(self.partition, member, None))
        self.holders = {at: who for at, who in self.holders.items() if who != member}

    @precondition(lambda self: self.pending)
    @rule()
    def store(self) -> None:
        write = self.pending.pop(0)
        self._persist(self.shard.write(KEY, write.change, None, self.now_ms))
        for at in self.accepting.pop(write.ticket.token, ()):
            self.done[at] = len(self.records)
        self._go_on(self.partition.written(write.ticket, None))

    @precondition(lambda self: self.pending)
    @rule()
    def refuse(self) -> None:
        write = self.pending.pop(0)
        self.accepting.pop(write.ticket.token, None)
        self._go_on(self.partition.written(write.ticket, REFUSED))
        self._ask_who_holds()

    @rule(ms=st.sampled_from((1, LOCK_MS // 2, LOCK_MS)))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self._go_on(expire(self.partition, self.now_ms))
        deadline_ms = self.partition.next_deadline_ms()
        assert deadline_ms is None or deadline_ms > self.now_ms
        self._ask_who_holds()

    @precondition(lambda self: self.log_end > self.log_start)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log_start = data.draw(st.integers(self.log_start, self.log_end))
        self.log = [span for span in self.log if span.last_offset >= self.log_start]
        if not self.log:
            self.log = [Span(self.log_start, self.log_start)]

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        kept = data.draw(st.integers(max(len(self.records) - 4, 1), len(self.records)))
        del self.records[kept:]
        self.done = {at: after for at, after in self.done.items() if after <= kept}
        self.shard = self._replayed()
        self.load()

    # --- what holds -----------------------------------------------------------------------

    @invariant()
    def what_is_in_flight_is_in_order(self) -> None:
        partition = self.partition
        former = -1
        for batch in partition.batches:
            assert former < batch.first_offset <= batch.last_offset
            assert batch.count <= self.config.batch_max
            former = batch.last_offset
        if partition.batches:
            assert partition.start_offset <= partition.end_offset + 1
            assert former <= partition.end_offset

    @invariant()
    def what_is_done_is_counted(self) -> None:
        partition = self.partition
        assert partition.delivery_complete_count == sum(
            partition.count_from_start(first, last)
            for batch in partition.batches
            for first, last, delivery in batch.parts()
            if delivery.state.is_terminal
        )

    @invariant()
    def the_log_says_the_same(self) -> None:
        assert self._replayed().states == self.shard.states

    def teardown(self) -> None:
        if not hasattr(self, "partition"):
            return
        while self.pending:
            self.store()
        for member in "abc":
            self.leave(member)
        while self.pending:
            self.store()
        delivered: set[int] = set()
        self.config = PartitionConfig(LOCK_MS, self.config.deliveries_max)
        for _ in range(500):
            if not self.partition.can_acquire():
                break
            offset = self.partition.next_fetch_offset()
            if offset < self.log_start:
                self.partition.log_begins_at(self.log_start)
                continue
            read = [span for span in self.log if span.last_offset >= offset]
            asked = Asked("z", is_record_limit=False, batch_size=100, records_max=500,
                          fetch_offset=offset, now_ms=self.now_ms)  # fmt: skip
            ranges, _ = acquire(self.partition, asked, read)
            if not ranges:
                break
            for one in ranges:
                delivered.update(range(one.first_offset, one.last_offset + 1))
        in_flight = {
            at: delivery.state
            for batch in self.partition.batches
            for first, last, delivery in batch.parts()
            for at in range(first, last + 1)
        }
        for at in range(self.partition.start_offset, self.log_end):
            assert at in delivered or in_flight[at].is_terminal, f"{at} is lost"
        assert not delivered & self.done.keys()

    # --- within ---------------------------------------------------------------------------

    @property
    def log_end(self) -> int:
        return self.log[-1].last_offset + 1 if self.log else self.log_start

    def _go_on(self, outcomes: Any) -> None:
        for outcome in outcomes:
            self._take(outcome)

    def _take(self, outcome: Outcome) -> None:
        if isinstance(outcome, Write):
            self.pending.append(outcome)

    def _persist(self, effects: Any) -> StateAnswer:
        answers = [one for one in effects if isinstance(one, Reply)]
        for effect in effects:
            if isinstance(effect, Persist):
                self.records += [encode_record(one) for one in effect.records]  # type: ignore[arg-type]
                ticket: Any = effect.ticket
                stored = self.shard.stored(ticket, ErrorCode.NONE, self.now_ms)
                answers += [one for one in stored if isinstance(one, Reply)]
        (reply,) = answers
        assert isinstance(reply.response, StateAnswer)
        assert reply.response.error is ErrorCode.NONE, reply.response
        return reply.response

    def _replayed(self) -> StateShard:
        shard = self.new_shard()
        for key, value in self.records:
            record = decode_record(key, value)
            assert record is not None
            shard.replay(record)
        return shard

    def _ask_who_holds(self) -> None:
        """Take over who has what, where the model does not follow: it may only become less."""
        holding = {
            at: delivery.member_id
            for batch in self.partition.batches
            for first, last, delivery in batch.parts()
            for at in range(first, last + 1)
            if delivery.state is RecordState.ACQUIRED
        }
        self.holders = holding


TestShares = Shares.TestCase
TestShares.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)


def test_offsets_of_a_batch_before_the_logs_start_are_not_acquired() -> None:
    """It would be available again in the end, could not be read, and kept all others waiting."""
    partition = SharePartition(ShareState(0, 0, 0, 0, 0, ()), 0, 0, PartitionConfig)
    asked = Asked("a", is_record_limit=True, batch_size=1, records_max=1,
                  fetch_offset=0, now_ms=0)  # fmt: skip
    acquire(partition, asked, [Span(0, 0)])
    partition.log_begins_at(5)
    ranges, count = acquire(partition, replace(asked, fetch_offset=5), [Span(3, 7)])
    assert (ranges, count) == ([Acquired(5, 5, 1)], 1)
    for outcome in release(partition, "a", None):
        assert isinstance(outcome, Write)
        partition.written(outcome.ticket, None)
    assert partition.next_fetch_offset() == 5


def test_offsets_missing_from_a_state_are_read_from_the_logs_start_on() -> None:
    """It was looked for before the start, where there is nothing, again and again."""
    known = StateBatch(8, 9, delivery_count=1, state=RecordState.ARCHIVED)
    partition = SharePartition(ShareState(1, 1, 0, 3, 2, (known,)), 3, 0, PartitionConfig)
    assert partition.next_fetch_offset() == 3
    partition.log_begins_at(5)
    assert partition.next_fetch_offset() == 5
    asked = Asked("a", is_record_limit=False, batch_size=10, records_max=10,
                  fetch_offset=5, now_ms=0)  # fmt: skip
    ranges, _ = acquire(partition, asked, [Span(5, 9)])
    assert ranges == [Acquired(5, 7, 1)]
