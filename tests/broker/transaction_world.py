"""A shard of transactions in a world whose log, partitions and crashes a test steers.

What the shard asks for is carried out when the test says so: the next append of the log, or the
next markers. A crash keeps what was answered for, and of the rest a prefix that the test chooses;
then another shard replays the log. Partitions keep who wrote what, so that a test can tell what a
reader sees of each transaction.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import count

from odradek.broker.coordination.effects import (
    Act,
    CancelTimer,
    Effect,
    Persist,
    Reply,
    StartTimer,
    Timer,
)
from odradek.broker.transactions.config import TransactionConfig
from odradek.broker.transactions.effects import Granted, WriteMarkers
from odradek.broker.transactions.records import TransactionRecord, decode_record, encode_record
from odradek.broker.transactions.shard import TransactionShard
from odradek.broker.transactions.state import Producer, TopicPartition, TransactionState
from odradek.protocol.errors import ErrorCode

PARTITIONS = tuple(TopicPartition("t", index) for index in range(3))
START_MS = 1_700_000_000_000


@dataclass(slots=True)
class PartitionLog:
    """What a partition holds: open writes by producer, and what became of those that ended."""

    epochs: dict[int, int] = field(default_factory=dict)
    open: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    ended: dict[str, set[bool]] = field(default_factory=lambda: defaultdict(set))

    def write(self, producer: Producer, tag: str) -> bool:
        """Take a batch of a transaction, unless its producer is fenced here."""
        if producer.epoch < self.epochs.get(producer.producer_id, -1):
            return False
        self.epochs[producer.producer_id] = producer.epoch
        self.open[producer.producer_id].add(tag)
        return True

    def end(self, producer_id: int, epoch: int, is_commit: bool) -> None:
        """Take a marker."""
        assert epoch >= self.epochs.get(producer_id, -1), "a marker of an epoch that is past"
        self.epochs[producer_id] = epoch
        for tag in self.open.pop(producer_id, ()):
            self.ended[tag].add(is_commit)


class World:
    """The shard and all that is around it."""

    def __init__(self, version: int, config: TransactionConfig | None = None) -> None:
        self.version = version
        self.config = config or TransactionConfig()
        self.now_ms = START_MS
        self.durable: list[tuple[bytes, bytes | None]] = []
        self.appends: deque[Persist] = deque()
        self.markers: deque[WriteMarkers] = deque()
        self.partitions = {one: PartitionLog() for one in PARTITIONS}
        self.answers: dict[int, object] = {}
        self.tokens = count(1)
        self.ids = count(100)
        self.timers: set[Timer] = set()
        self.shard = self._new_shard()

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(self.config, lambda: self.version, lambda: next(self.ids))

    def perform(self, effects: Collection[Effect]) -> None:
        """Take effects in, to be carried out later where they take time."""
        for effect in effects:
            if isinstance(effect, Reply):
                assert isinstance(effect.token, int) and effect.token not in self.answers
                self.answers[effect.token] = effect.response
            elif isinstance(effect, Persist):
                self.appends.append(effect)
            elif isinstance(effect, Act):
                assert isinstance(effect.action, WriteMarkers)
                self.markers.append(effect.action)
            elif isinstance(effect, StartTimer):
                self.timers.add(effect.timer)
            elif isinstance(effect, CancelTimer):
                self.timers.discard(effect.timer)

    # --- requests -----------------------------------------------------------------------------

    def initialize(
        self, who: str, expected: Producer | None = None, timeout_ms: int = 60_000
    ) -> int:
        token = next(self.tokens)
        self.perform(self.shard.initialize(who, timeout_ms, expected, token, self.now_ms))
        return token

    def add(self, who: str, producer: Producer, *partitions: TopicPartition) -> int:
        token = next(self.tokens)
        added = dict.fromkeys(partitions)
        self.perform(
            self.shard.add_partitions(who, producer, added, self.version, token, self.now_ms)
        )
        return token

    def end(self, who: str, producer: Producer, commit: bool) -> int:
        token = next(self.tokens)
        self.perform(
            self.shard.end(who, producer, commit, self.version, token, self.now_ms)
        )
        return token

    def granted(self, token: int) -> Granted:
        answer = self.answers[token]
        assert isinstance(answer, Granted)
        return answer

    def code(self, token: int) -> ErrorCode:
        answer = self.answers[token]
        assert isinstance(answer, ErrorCode)
        return answer

    # --- what takes time ------------------------------------------------------------------------

    def append(self, error: ErrorCode = ErrorCode.NONE, *, kept: bool = False) -> None:
        """End the oldest append; one that fails may be in the log all the same."""
        one = self.appends.popleft()
        if error is ErrorCode.NONE or kept:
            self._keep(one)
        self.perform(self.shard.stored(one.ticket, error, self.now_ms))  # type: ignore[arg-type]

    def write_markers(self, offline: Collection[TopicPartition] = ()) -> None:
        """Write the oldest markers, but for the partitions that cannot be written to."""
        asked = self.markers.popleft()
        prepared = asked.prepared
        for one in asked.partitions:
            if one not in offline:
                self.partitions[one].end(
                    prepared.producer_id,
                    prepared.epoch,
                    prepared.state is TransactionState.PREPARE_COMMIT,
                )
        missing = [one for one in asked.partitions if one in offline]
        self.perform(self.shard.marked(asked, missing, self.now_ms))

    def retry(self) -> None:
        """Let all timers fire."""
        timers, self.timers = self.timers, set()
        for timer in timers:
            self.perform(self.shard.timer_fired(timer, self.now_ms))

    def settle(self) -> None:
        """Let everything end that has begun."""
        while self.appends or self.markers or self.timers:
            while self.appends:
                self.append()
            while self.markers:
                self.write_markers()
            self.retry()

    def crash(self, kept: int, marked: int) -> None:
        """Lose what was not answered for, but for some of it; then begin again.

        Of the appends on their way so many are in the log, and of the markers so many in theirs.
        """
        for one in list(self.appends)[:kept]:
            self._keep(one)
        for asked in list(self.markers)[:marked]:
            first = min(asked.partitions)
            self.partitions[first].end(
                asked.prepared.producer_id,
                asked.prepared.epoch,
                asked.prepared.state is TransactionState.PREPARE_COMMIT,
            )
        self.appends.clear()
        self.markers.clear()
        self.timers.clear()
        self.shard = self._new_shard()
        for key, value in self.durable:
            record = decode_record(key, value)
            assert record is not None
            self.shard.replay(record)
        self.perform(self.shard.loaded(self.now_ms))

    def _keep(self, one: Persist) -> None:
        for record in one.records:
            assert isinstance(record, TransactionRecord)
            self.durable.append(encode_record(record, self.version))
