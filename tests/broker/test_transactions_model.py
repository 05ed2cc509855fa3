"""Producers, time, a slow or failing log, partitions offline and crashes, in any order.

What always holds: a transaction that was said to be committed is committed in every partition,
one that was not is aborted in every one, nothing stays open, and no id and epoch is ever told
twice: not to two producers, and with version 2 not for two transactions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from odradek.broker.transactions import state
from odradek.broker.transactions.config import TransactionConfig
from odradek.broker.transactions.effects import Granted
from odradek.broker.transactions.entry import Entry
from odradek.broker.transactions.state import (
    Producer,
    TopicPartition,
    Transaction,
    TransactionState,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.transaction_world import PARTITIONS, World
from tests.profiles import examples

NAMES = ("a", "b")
FAILURES = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
CONFIG = TransactionConfig(expiration_ms=500_000)

whose = st.sampled_from(NAMES)
which = st.sampled_from(PARTITIONS)
ENDINGS = (True, False, None)
# Mostly what begins comes to its end before the next, so that much can happen.
soon = st.sampled_from((True, True, False))


@dataclass(slots=True)
class Client:
    """A producer: what it was told, what it waits for, and what it has written."""

    producer: Producer | None = None
    init: int = 0
    expected: Producer | None = None
    add: int = 0
    added: TopicPartition | None = None
    end: int = 0
    is_commit: bool = False
    # The transaction that it is in, and where it has written.
    tag: str = ""
    written: set[TopicPartition] = field(default_factory=set)

    @property
    def waits(self) -> bool:
        return bool(self.init or self.add or self.end)


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(2, CONFIG)
        self.clients = {name: Client() for name in NAMES}
        self.granted: set[tuple[str, Producer]] = set()
        self.count = 0
        # What became of transactions, where that is known: True for committed.
        self.promised: dict[str, bool] = {}
        self.undecided: set[str] = set()

    @initialize(version=st.sampled_from((0, 1, 2)), epochs_left=st.sampled_from((0, 2, 3, 5)))
    def begin(self, version: int, epochs_left: int) -> None:
        self.world.version = version
        for name in NAMES if epochs_left else ():
            value = Transaction(
                next(self.world.ids),
                60_000,
                self.world.now_ms,
                epoch=state.EPOCH_MAX - epochs_left,
            )
            self.world.shard.entries[name] = Entry(value)

    # --- what producers do ----------------------------------------------------------------------

    @rule(name=whose, goes_on=st.booleans(), at_once=soon)
    def init(self, name: str, goes_on: bool, at_once: bool) -> None:
        client = self._ready(name)
        if not goes_on:
            self._give_up(client)
        client.expected = client.producer if goes_on and not client.tag else None
        client.init = self.world.initialize(name, client.expected)
        self._go_on(at_once)

    @rule(name=whose, where=which, at_once=soon)
    def write(self, name: str, where: TopicPartition, at_once: bool) -> None:
        client = self._ready(name)
        if client.producer is None:
            return
        if not client.tag:
            self.count += 1
            client.tag = f"{name}{self.count}"
        client.added = where
        client.add = self.world.add(name, client.producer, where)
        self._go_on(at_once)

    @rule(name=whose, commit=st.booleans(), at_once=soon)
    def end(self, name: str, commit: bool, at_once: bool) -> None:
        client = self._ready(name)
        if client.producer is None or not client.written:
            return
        client.is_commit = commit
        client.end = self.world.end(name, client.producer, commit)
        self._go_on(at_once)

    @rule(
        name=whose,
        places=st.lists(which, min_size=1, max_size=3),
        ending=st.sampled_from(ENDINGS),
        offline=st.none() | st.sets(which, max_size=2),
    )
    def transact(
        self,
        name: str,
        places: list[TopicPartition],
        ending: bool | None,
        offline: set[TopicPartition] | None,
    ) -> None:
        """A producer goes through a transaction, or a part of one, while nothing goes wrong."""
        for _ in range(2):  # what is open of another producer is aborted first
            if self.clients[name].producer is None:
                self.init(name, goes_on=False, at_once=True)
        for where in places:
            self.write(name, where, at_once=True)
        if ending is not None:
            self.end(name, ending, at_once=False)
        while offline is not None and self.world.appends:
            self.world.append()
        while offline is not None and self.world.markers:
            self.world.write_markers(offline)
        self._hear()

    @rule(name=whose)
    def vanish(self, name: str) -> None:
        """Another instance takes over, which knows nothing."""
        self._give_up(self.clients[name])
        self.clients[name] = Client()

    # --- what takes time ------------------------------------------------------------------------

    @precondition(lambda self: self.world.appends)
    @rule()
    def the_log_takes_it(self) -> None:
        self.world.append()
        self._hear()

    @precondition(lambda self: self.world.appends)
    @rule(error=st.sampled_from(FAILURES), kept=st.booleans())
    def the_log_fails(self, error: ErrorCode, kept: bool) -> None:
        self.world.append(error, kept=kept)
        self._hear()

    @precondition(lambda self: self.world.markers)
    @rule(offline=st.sets(which, max_size=2))
    def markers_are_written(self, offline: set[TopicPartition]) -> None:
        self.world.write_markers(offline)
        self._hear()

    @precondition(lambda self: self.world.timers)
    @rule()
    def markers_are_tried_again(self) -> None:
        self.world.retry()

    @rule(ms=st.sampled_from((1, 61_000, 600_000)), at_once=soon)
    def time_passes(self, ms: int, at_once: bool) -> None:
        self.world.now_ms += ms
        self.world.perform(self.world.shard.abort_timed_out(self.world.now_ms))
        self._go_on(at_once)

    @rule()
    def ids_expire(self) -> None:
        self.world.perform(self.world.shard.expire(self.world.now_ms))

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        kept = data.draw(st.integers(0, len(self.world.appends)))
        marked = data.draw(st.integers(0, len(self.world.markers)))
        self.world.crash(kept, marked)
        for client in self.clients.values():
            # A client that waited has no answer, and begins again.
            if client.waits:
                self._give_up(client)
                client.init = client.add = client.end = 0
                client.producer = None

    # --- what must hold -------------------------------------------------------------------------

    @rule()
    def all_comes_to_its_end(self) -> None:
        self.world.settle()
        self._hear()
        for client in self.clients.values():
            assert not client.waits, "somebody was never answered"
        outcomes: dict[str, set[bool]] = {}
        for log in self.world.partitions.values():
            for tag, ended in log.ended.items():
                outcomes.setdefault(tag, set()).update(ended)
        for tag, ended in outcomes.items():
            assert len(ended) == 1, f"{tag} was committed here and aborted there"
            if tag in self.promised:
                assert ended == {self.promised[tag]}
        open_ids = {
            entry.value.producer_id
            for entry in self.world.shard.entries.values()
            if entry.value.state is TransactionState.ONGOING
        }
        for log in self.world.partitions.values():
            left = {one for one, tags in log.open.items() if tags}
            assert left <= open_ids, "what nobody will end is open"

    def _ready(self, name: str) -> Client:
        """Return a client that waits for nothing: all comes to its end if need be."""
        if self.clients[name].waits:
            self._go_on(True)
        return self.clients[name]

    def _go_on(self, at_once: bool) -> None:
        """Let producers hear what they were answered, after all has come to its end if so."""
        if at_once:
            self.world.settle()
        self._hear()

    def _hear(self) -> None:
        """Let producers take in what they were answered."""
        for name, client in self.clients.items():
            if client.init in self.world.answers:
                self._hear_init(name, client)
            if client.add in self.world.answers:
                self._hear_add(name, client)
            if client.end in self.world.answers:
                self._hear_end(name, client)

    def _hear_init(self, name: str, client: Client) -> None:
        answer, client.init = self.world.granted(client.init), 0
        if answer.error is not ErrorCode.NONE:
            assert answer.error in (
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.PRODUCER_FENCED,
                *FAILURES,
            )
            client.producer = None
            self._give_up(client)
            return
        client.producer = self._granted_to(name, answer)
        self._give_up(client)

    def _hear_add(self, name: str, client: Client) -> None:
        error, client.add = self.world.code(client.add), 0
        where, producer = client.added, client.producer
        assert where is not None and producer is not None
        if error is ErrorCode.NONE:
            error = self.world.shard.verify(name, producer, where)
        if error is ErrorCode.NONE and self.world.partitions[where].write(producer, client.tag):
            client.written.add(where)
        elif error is not ErrorCode.NONE and error not in FAILURES:
            self._give_up(client)
            client.producer = None

    def _hear_end(self, name: str, client: Client) -> None:
        answer: Granted = self.world.granted(client.end)
        client.end = 0
        if answer.error is ErrorCode.NONE:
            self.promised[client.tag] = client.is_commit
            client.tag = ""
            client.written.clear()
            if self.world.version >= 2:
                client.producer = self._granted_to(name, answer)
        elif answer.error in FAILURES:
            # It may be in the log or not: the producer must abort, or ask again the same.
            self._give_up(client)
            client.producer = None
        else:
            self._give_up(client)
            client.producer = None

    def _granted_to(self, name: str, answer: Granted) -> Producer:
        producer = Producer(answer.producer_id, answer.epoch)
        assert (name, producer) not in self.granted, "told twice"
        self.granted.add((name, producer))
        return producer

    def _give_up(self, client: Client) -> None:
        client.tag = ""
        client.written = set()


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(
    max_examples=examples(150), stateful_step_count=50, deadline=None
)
