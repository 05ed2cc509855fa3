"""The coordinator of transactions: finds a transactional id's shard and asks it for decisions.

Each partition of __transaction_state has a shard (shard.py); coordination/runtime.py carries out
the shard's decisions, and this module writes the markers. On one node the coordinator appends
markers itself, where Kafka's coordinator asks the leaders of the partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol

from odradek.broker.coordination.effects import Producer
from odradek.broker.coordination.expressions import Matching, is_quick, matched
from odradek.broker.coordination.machine import Codec
from odradek.broker.coordination.runtime import Answer, Runtime
from odradek.broker.coordination.seams import InternalTopic, Time
from odradek.broker.errors import Explained, MetadataError, Refusal, code_of
from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.producer_ids import ProducerIds
from odradek.broker.orders.hash_map import concurrent_order
from odradek.broker.transactions import listing
from odradek.broker.transactions.config import TransactionConfig
from odradek.broker.transactions.effects import Granted, WriteMarkers
from odradek.broker.transactions.markers import MarkerWriter
from odradek.broker.transactions.records import TransactionRecord, decode_record, encode_record
from odradek.broker.transactions.shard import TransactionShard
from odradek.broker.transactions.state import (
    Partitions,
    TopicPartition,
    Transaction,
    TransactionState,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import describe_transactions
from odradek.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from odradek.storage.transactions import Marker

logger = logging.getLogger(__name__)

# The time for which a stop waits for markers on their way to the disk.
_DRAIN_S = 2.0


class TransactionLog(InternalTopic, Protocol):
    """The partitions of __transaction_state."""

    def leader_epoch(self, partition: int) -> int:
        """Return the leader epoch of a partition: the coordinator epoch in markers."""


class TransactionCoordinator:
    """Owns the shards, through the runtime that runs them.

    Each operation returns its answer, or an awaitable of it if the answer must wait for the log.
    """

    def __init__(
        self,
        log: TransactionLog,
        markers: MarkerWriter,
        producer_ids: ProducerIds,
        config: TransactionConfig,
        *,
        version: Callable[[], int],
        time: Time,
        matching: Matching,
    ) -> None:
        """`version` returns the cluster's transaction version."""
        self.config = config
        self._markers, self._producer_ids = markers, producer_ids
        self._coordinator_epoch, self._clock = log.leader_epoch, time.clock
        self._log = log
        self._matching = matching
        self._writing: set[asyncio.Task[None]] = set()
        # By transactional id with markers that are tried again: the reasons that were logged.
        self._logged: dict[str, Mapping[TopicPartition, str]] = {}
        self._filling: asyncio.Task[None] | None = None

        def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
            return encode_record(record, version())

        self._runtime: Runtime[TransactionShard] = Runtime(
            "transactions",
            log,
            Codec(encode, decode_record),
            lambda partition: TransactionShard(self.config, version, self._take_id),
            time=time,
            act=self._write_markers,
        )

    def follow(self) -> None:
        """Load the partitions that this broker leads now, and leave those that it has lost."""
        self._runtime.follow()

    def problems(self) -> list[str]:
        """Return the problems that an operator has to look at."""
        return self._runtime.problems()

    async def load(self) -> None:
        """Replay every partition, and begin to serve each as soon as it is replayed."""
        await self._runtime.load()
        self._runtime.do_in_turn(
            "abort timed out transactions",
            lambda: self.config.abort_interval_ms,
            TransactionShard.abort_timed_out,
        )
        self._runtime.do_in_turn(
            "expire transactional ids",
            lambda: self.config.remove_interval_ms,
            TransactionShard.expire,
        )

    async def close(self) -> None:
        """End serving, once the markers that are being written are durable."""
        if self._writing:
            await asyncio.wait(self._writing, timeout=_DRAIN_S)
        self._runtime.close()

    def reconfigure(self, config: TransactionConfig) -> None:
        """Apply other options from the next request on."""
        self.config = config
        for shard in self._runtime.machines:
            shard.config = config

    def coordinates(self, transactional_id: str) -> bool:
        """Return whether this broker is the coordinator of a transactional id."""
        return self._log.leads(self._runtime.partition_of(transactional_id))

    async def initialize(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None
    ) -> Granted:
        """Give a producer its id and epoch, and fence the former producer of the id."""
        await self._have_producer_ids()
        shard = self._runtime.machine_of(transactional_id)
        if isinstance(shard, ErrorCode):
            return Granted(shard)
        caller = self._runtime.caller()
        effects = shard.initialize(
            transactional_id, timeout_ms, expected, caller.token, self._clock.now_ms()
        )
        answer = self._runtime.run(transactional_id, effects, caller, Granted)
        return answer if isinstance(answer, Granted) else await answer

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        added: Partitions,
        *,
        version: int,
    ) -> Answer[ErrorCode]:
        """Add partitions to a producer's transaction; `version` is the producer's."""
        shard = self._runtime.machine_of(transactional_id)
        if isinstance(shard, ErrorCode):
            return shard
        caller = self._runtime.caller()
        effects = shard.add_partitions(
            transactional_id, producer, added, version, caller.token, self._clock.now_ms()
        )
        return self._runtime.run(transactional_id, effects, caller, ErrorCode)

    def verify(
        self, transactional_id: str, producer: Producer, partition: TopicPartition
    ) -> ErrorCode:
        """Return NONE when a producer's transaction has a partition, else the error."""
        shard = self._runtime.machine_of(transactional_id)
        if isinstance(shard, ErrorCode):
            return shard
        return shard.verify(transactional_id, producer, partition)

    async def end(
        self, transactional_id: str, producer: Producer, *, is_commit: bool, version: int
    ) -> Granted:
        """Commit or abort a producer's transaction; answered when the decision is durable."""
        await self._have_producer_ids()
        shard = self._runtime.machine_of(transactional_id)
        if isinstance(shard, ErrorCode):
            return Granted(shard)
        caller = self._runtime.caller()
        effects = shard.end(
            transactional_id, producer, is_commit, version, caller.token, self._clock.now_ms()
        )
        answer = self._runtime.run(transactional_id, effects, caller, Granted)
        return answer if isinstance(answer, Granted) else await answer

    def describe(self, transactional_id: str) -> describe_transactions.TransactionState:
        """Describe a transactional id."""
        shard = self._runtime.machine_of(transactional_id)
        if not transactional_id:
            return listing.not_described(transactional_id, ErrorCode.INVALID_REQUEST)
        if isinstance(shard, ErrorCode):
            return listing.not_described(transactional_id, shard)
        entry = shard.entries.get(transactional_id)
        if entry is None or entry.value.state is TransactionState.DEAD:
            not_found = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            return listing.not_described(transactional_id, not_found)
        return listing.described(transactional_id, entry.value)

    def list_transactions(
        self, request: ListTransactionsRequest
    ) -> Answer[ListTransactionsResponse]:
        """List the transactional ids that pass a request's filters."""
        problem = self._runtime.problem
        if problem is not ErrorCode.NONE:
            return listing.not_listed(problem)
        try:
            pattern = listing.read_pattern(request.transactional_id_pattern)
        except Refusal as refusal:
            return listing.not_listed(refusal.code)
        found = listing.passing(request, self._in_order(), self._clock.now_ms())
        if pattern is None:
            return listing.listed(request, found)
        if not is_quick(pattern, found):
            return self._list_matched(request, pattern, found)
        names = matched(pattern, found)
        return listing.listed(request, {one: found[one] for one in found if one in names})

    async def _list_matched(
        self, request: ListTransactionsRequest, pattern: Any, found: Mapping[str, Transaction]
    ) -> ListTransactionsResponse:
        names = await self._matching.match(pattern, found)
        return listing.listed(request, {one: found[one] for one in found if one in names})

    def count_by_state(self) -> dict[str, int]:
        """Return the number of transactional ids in each state, by Kafka's name of the state."""
        counts = {one.word: 0 for one in TransactionState if one is not TransactionState.DEAD}
        for _, value in self._known():
            counts[value.state.word] += 1
        return counts

    def _known(self) -> list[tuple[str, Transaction]]:
        return [
            (transactional_id, entry.value)
            for shard in self._runtime.machines
            for transactional_id, entry in shard.entries.items()
            if entry.value.state is not TransactionState.DEAD
        ]

    def _in_order(self) -> Iterator[tuple[str, Transaction]]:
        """Iterate over transactional ids in Kafka's order, that of its hash tables.

        After many ids have expired, Kafka's tables stay larger than the ones computed here.
        """
        for shard in self._runtime.machines:
            for transactional_id in concurrent_order(shard.entries):
                value = shard.entries[transactional_id].value
                if value.state is not TransactionState.DEAD:
                    yield transactional_id, value

    async def _have_producer_ids(self) -> None:
        """Make sure that a producer id can be drawn at once.

        If that fails, a client that needs one gets a retriable error, as from Kafka.
        """
        try:
            await self._producer_ids.fill()
        except MetadataError as error:
            logger.error("could not allocate producer ids: %s", error)

    def _take_id(self) -> int | None:
        taken = self._producer_ids.take_now()
        if taken is None and (self._filling is None or self._filling.done()):
            # Aborts without a request find no id either: they are tried again in their turn.
            self._filling = start_task("fill producer ids", self._have_producer_ids())
        return taken

    # --- markers --------------------------------------------------------------------------

    def _write_markers(self, partition: int, asked: WriteMarkers) -> None:
        task = start_task("write markers", self._write(partition, asked))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write(self, partition: int, asked: WriteMarkers) -> None:
        shard = self._runtime.machine_at(partition)
        prepared = asked.prepared
        marker = Marker(
            prepared.producer_id,
            prepared.epoch,
            self._coordinator_epoch(partition),
            prepared.state is TransactionState.PREPARE_COMMIT,
            self._clock.now_ms(),
            prepared.client_version,
        )
        problems: Mapping[TopicPartition, Explained]
        try:
            problems = await self._markers.write(marker, asked.partitions)
        except Exception as error:  # The root of a task; without its markers it never ends.
            logger.exception("could not write markers")
            refusal = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))
            problems = dict.fromkeys(asked.partitions, refusal)
        left = self._note(asked.transactional_id, problems)
        if isinstance(shard, ErrorCode) or shard is not self._runtime.machine_at(partition):
            self._logged.pop(asked.transactional_id, None)
            return  # The partition was loaded again, which also writes the markers again.
        effects = shard.marked(asked, left, self._clock.now_ms())
        self._runtime.perform(partition, effects)

    def _note(
        self, transactional_id: str, problems: Mapping[TopicPartition, Explained]
    ) -> Collection[TopicPartition]:
        """Log new problems; return the partitions whose markers must be tried again."""
        # That is ten times a second: each reason is logged once.
        logged = self._logged.pop(transactional_id, {})
        for one, problem in problems.items():
            if logged.get(one) != str(problem):
                _log(transactional_id, one, problem)
        left = {one: str(problem) for one, problem in problems.items() if _must_retry(problem)}
        if left:
            self._logged[transactional_id] = left
        return left


# Errors after which a transaction is over in a partition: the partition was deleted, or another
# marker has ended the transaction.
_OVER = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    )
)


def _must_retry(problem: Explained) -> bool:
    """Return whether a marker that could not be written must be tried again."""
    return code_of(problem) not in _OVER


def _log(transactional_id: str, partition: TopicPartition, problem: Explained) -> None:
    level = logging.WARNING if _must_retry(problem) else logging.INFO
    logger.log(
        level,
        "%s marker transactional_id=%s partition=%s-%d: %s",
        "will retry" if _must_retry(problem) else "left out",
        transactional_id,
        *partition,
        problem,
    )
