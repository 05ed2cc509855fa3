"""Copies the partitions that are to move here from other hosts, as Kafka's followers do.

    fetch      from the leader, by requests on a connection of their own (Fetch, KIP-903)
    append     to a copy in one of the log directories, and sync it
    again      from the offset where the copy ends: all before it is on the disk
    lead       the leader hands over once the copy is complete (handovers.py), and the copy is
               closed and becomes the log

A copy is begun again when the leader's log diverges from it, or has been deleted up to a later
offset; and when it was interrupted after half of delete.retention.ms has passed (followers.py).
Its fetches then have a higher number (replica_epoch), so that the leader ignores earlier ones. The
old copy is given up once the leader has answered them: by then it does not count on that copy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from odradek.broker.ids import Partition
from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.members import ANY_HOST, NO_LEADER, Leader
from odradek.broker.peers.errors import PeerAway
from odradek.broker.peers.peers import Peers
from odradek.broker.reassignment.fetching import Refused, Wanted, diverges, fetch
from odradek.broker.reassignment.followers import copy_number
from odradek.broker.reassignment.parts import Parts
from odradek.broker.reassignment.throttle import Throttle
from odradek.broker.topics.topic import Topic
from odradek.config.replication import ReplicationConfig, is_throttled
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.legacy import read_stored_header
from odradek.protocol.messages.fetch import PartitionData
from odradek.storage.checkpoints import LeftLog
from odradek.storage.copied_log import (
    CopiedLog,
    Owner,
    begin_copy,
    discard_copies,
    find_copies,
    resume_copy,
)
from odradek.storage.errors import StorageError
from odradek.storage.readable_log import LogIdentity

logger = logging.getLogger(__name__)

# Partitions that are copied at the same time.
_AT_ONCE = 4
_FETCH_BYTES = 4 << 20
# The pause of a copy that has all, and of one whose leader refuses or is away.
_IDLE_S, _RETRY_S = 0.02, 0.2
# The pause after an error of the disk, or damage: the copy is read again from its start.
_TROUBLE_S = 5.0
# A leader that lets this broker copy nothing for this time is a problem.
_PATIENCE_S = 30.0
# An interruption; followers.py counts one of more than 10 s.
_INTERRUPTED_S = 3.0
_MS_PER_S = 1_000

T = TypeVar("T")


@dataclass(slots=True)
class _Move:
    """A partition that is to move here."""

    topic_id: bytes
    number: int
    move: int
    # Ends once the copy of the former move is given up.
    former: asyncio.Task[None] | None = None
    task: asyncio.Task[None] | None = None
    # The last operation on the copy: a thread ends it also when the task is cancelled.
    operation: asyncio.Future[Any] | None = None
    copy: CopiedLog | None = None
    copy_number: int = 0
    # When the last request was sent that the leader has answered, by the event loop's time.
    asked_s: float = 0.0
    # When this broker could copy last, or wait for it.
    copied_s: float = 0.0
    log_start_offset: int = 0
    # Whether the last answer has all that the leader had.
    is_in_sync: bool = False
    has_looked: bool = False  # for a copy that the last stop interrupted
    trouble: str = ""


class Copies:
    """Owned by the event loop."""

    def __init__(self, broker: Parts, peers: Peers, on_thread: Callable[[], None]) -> None:
        """`on_thread` is called in each thread that starts."""
        self._fs, self._now_ms, self._peers = broker.fs, broker.clock.now_ms, peers
        self._brokers, self._topics = broker.brokers, broker.topics
        self._partitions, self._configs = broker.partitions, broker.configs
        self._loop = asyncio.get_running_loop()
        self._moves: dict[Partition, _Move] = {}
        self._starting: asyncio.Task[None] | None = None
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._pool = ThreadPoolExecutor(_AT_ONCE, "copy", initializer=on_thread)
        self._throttle = Throttle(self._rate, self._loop.time)

    def start(self) -> None:
        """Begin to remove the copies of moves that were cancelled meanwhile; resume the others."""
        self._starting = start_task("look for copies", self._start())

    async def _start(self) -> None:
        for home in list(self._partitions.local_directories):
            try:
                for found in await asyncio.to_thread(find_copies, self._fs, home):
                    if self._is_useless(found.topic_id, found.key[1]):
                        await asyncio.to_thread(home.remove, [home.path / found.name])
            except StorageError as error:
                logger.warning("left alone the copies of moves path=%s: %s", home.path, error)
        self._loop.call_soon(self.look)

    def look(self) -> None:
        """Begin the copies of partitions that are to move here, and give up the others."""
        if self._starting is None or not self._starting.done():
            return
        wanted = dict(self._wanted())
        ended = {
            key: start_task("give up a copy", self._give_up(move))
            for key, move in self._moves.items()
            if wanted.get(key) != move.move
        }
        for key in ended:
            del self._moves[key]
        for (topic_id, number), count in wanted.items():
            key = topic_id, number
            if key not in self._moves:
                move = self._moves[key] = _Move(topic_id, number, count, ended.get(key))
                move.copied_s = self._loop.time()
                move.task = start_task("copy a partition", self._run(move))

    async def finish(self, keys: Iterable[Partition]) -> dict[Partition, LeftLog]:
        """Close the copies of partitions that this broker leads now; return how they are left."""
        left: dict[Partition, LeftLog] = {}
        for key in keys:
            move = self._moves.pop(key, None)
            if move is None:
                continue
            await self._stop(move)
            if move.copy is not None:
                try:
                    left[key] = await asyncio.to_thread(move.copy.close, move.log_start_offset)
                except StorageError as error:  # it is opened as after a crash
                    logger.error("could not close a copy: %s", error)
        return left

    async def close(self) -> None:
        """Stop; the next start resumes the copies."""
        if self._starting is not None:
            self._starting.cancel()
        moves = list(self._moves.values())
        self._moves.clear()
        await asyncio.gather(*map(self._stop, moves))
        self._pool.shutdown()

    def problems(self) -> list[str]:
        """Return the problems that an operator has to look at."""
        return [one.trouble for one in self._moves.values() if one.trouble]

    @property
    def is_busy(self) -> bool:
        """Whether partitions move here."""
        return bool(self._moves)

    def copied(self) -> Iterator[tuple[Topic, int, CopiedLog]]:
        """Iterate over the copies under way, with their topics and partitions."""
        for move in self._moves.values():
            topic = self._topics.by_id(move.topic_id)
            if topic is not None and move.copy is not None:
                yield topic, move.number, move.copy

    # --- one partition ------------------------------------------------------------------------

    def _wanted(self) -> Iterator[tuple[Partition, int]]:
        """Iterate over the partitions that are to move here, and the numbers of the moves."""
        own = self._brokers.own
        for topic in self._topics:
            for number, leader in enumerate(topic.record.leaders):
                if leader.target == own.node_id and leader.host not in (own.host, ANY_HOST):
                    yield (topic.topic_id, number), leader.move

    def _is_useless(self, topic_id: bytes, number: int) -> bool:
        """Return whether no broker of this host copies or leads a partition."""
        topic, own = self._topics.by_id(topic_id), self._brokers.own
        if topic is None or number >= len(topic.record.leaders):
            return True
        leader = topic.record.leaders[number]
        target = self._brokers.get(leader.target)
        is_for_other = leader.target == NO_LEADER or (target and target.host != own.host)
        return leader.host != own.host and bool(is_for_other)

    async def _run(self, move: _Move) -> None:
        if move.former is not None:
            await asyncio.wait([move.former])
        while True:
            topic = self._topics.by_id(move.topic_id)
            leader = None if topic is None else topic.record.leaders[move.number]
            if topic is None or leader is None or leader.node_id == NO_LEADER:
                move.copied_s = self._loop.time()
                await asyncio.sleep(_RETRY_S)
                continue
            try:
                async with self._turns:
                    while self._topics.by_id(move.topic_id) is topic:
                        await self._carry_on(move, topic, leader)
            except (PeerAway, Refused) as error:
                # For a moment a leader refuses while it, or this broker, follows a change.
                if self._loop.time() - move.copied_s > _PATIENCE_S:
                    self._note(move, topic, leader, error)
            except StorageError as error:
                move.copy = None  # it is loaded again
                move.has_looked = False
                self._note(move, topic, leader, error)
                await asyncio.sleep(_TROUBLE_S)
            await asyncio.sleep(_RETRY_S)

    def _note(self, move: _Move, topic: Topic, leader: Leader, error: Exception) -> None:
        name = f"{topic.name}-{move.number}"
        trouble = f"cannot copy {name} from broker {leader.node_id}: {error}"
        if trouble != move.trouble:
            logger.error("%s", trouble)
        move.trouble = trouble

    async def _carry_on(self, move: _Move, topic: Topic, leader: Leader) -> None:
        """Fetch once, and append. Raises PeerAway, Refused or StorageError."""
        if not move.has_looked:
            move.copy = await self._resume(move, topic)
            self._count(move)
            move.has_looked = True
        # As in Kafka, a copy in sync keeps to no rate: the partition waits for its end.
        wait_s = 0.0 if move.is_in_sync else self._wait_s(topic, move.number)
        if wait_s > 0:
            await asyncio.sleep(wait_s)
            return
        sent_s = self._loop.time()
        is_new = move.copy is None
        data = await self._fetch(move, topic, leader, is_new=is_new)
        if not is_new and (diverges(data) or self._is_too_old(move, topic)):
            logger.warning("begins a copy again partition=%s-%d", topic.name, move.number)
            self._count(move)
            data = await self._fetch(move, topic, leader, is_new=True)
            is_new = True
        if is_new and data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            move.log_start_offset = data.log_start_offset
            data = await self._fetch(move, topic, leader, is_new=True)
        if data.error_code:
            raise Refused(f"error {data.error_code}")
        move.asked_s = sent_s
        move.log_start_offset = data.log_start_offset
        records = bytes(data.records or b"")
        if is_new:
            move.copy = await self._begin(move, topic, data.log_start_offset, records)
        assert move.copy is not None
        move.is_in_sync = False
        if records:
            await self._in_thread(move, move.copy.append, records, self._now_ms())
            self._spend(topic, move.number, len(records))
            move.is_in_sync = move.copy.end_offset >= data.high_watermark
        elif move.copy.end_offset >= data.high_watermark:
            move.is_in_sync = True
            await asyncio.sleep(_IDLE_S)
        else:  # the leader keeps to its rate
            await asyncio.sleep(_RETRY_S)
        move.copied_s, move.trouble = self._loop.time(), ""

    def _count(self, move: _Move) -> None:
        """Give a copy a higher number than those before it."""
        number = copy_number(move.move, self._now_ms())
        move.copy_number = max(number, move.copy_number + 1)

    async def _fetch(
        self, move: _Move, topic: Topic, leader: Leader, *, is_new: bool
    ) -> PartitionData:
        """Ask the leader for the batches after a copy, or for the first ones."""
        copy = None if is_new else move.copy
        bytes_max = _FETCH_BYTES
        if self._is_throttled(topic, move.number):
            bytes_max = min(bytes_max, max(self._rate(), 1))  # the next one is soon due
        # Without a copy, the leader does not count this broker as one that has the offset.
        wanted = Wanted(
            move.topic_id,
            move.number,
            offset=move.log_start_offset if copy is None else copy.end_offset,
            last_epoch=-1 if copy is None else copy.last_epoch,
            log_start_offset=-1 if copy is None else move.log_start_offset,
            bytes_max=bytes_max,
        )
        return await fetch(
            self._peers, leader, self._brokers.own.node_id, move.copy_number, wanted
        )

    async def _resume(self, move: _Move, topic: Topic) -> CopiedLog | None:
        """Continue the copy that the last stop interrupted, if there is one."""
        identity = LogIdentity(topic.name, move.number, topic.topic_id)
        for home in list(self._partitions.local_directories):
            resumed = await self._in_thread(
                move, resume_copy,
                self._fs, home, identity, self._owner(move), topic.config, self._now_ms(),
            )  # fmt: skip
            if resumed is not None:
                name, end_offset = f"{topic.name}-{move.number}", resumed.end_offset
                logger.info("resumed a copy partition=%s end=%d", name, end_offset)
                return resumed
        return None

    async def _begin(
        self, move: _Move, topic: Topic, start_offset: int, records: bytes
    ) -> CopiedLog:
        """Begin a copy instead of those that there are; it starts where the first batch does."""
        if records:
            start_offset = min(start_offset, read_stored_header(records).base_offset)
        homes, move.copy = list(self._partitions.local_directories), None
        home = min(homes, key=lambda one: len(one.logs))
        identity = LogIdentity(topic.name, move.number, topic.topic_id)
        await self._in_thread(move, discard_copies, self._fs, homes, identity)
        made = await self._in_thread(
            move, begin_copy, self._fs, home, identity, self._owner(move), topic.config,
            start_offset, self._now_ms(),
        )  # fmt: skip
        logger.info("copies partition=%s-%d to=%s", topic.name, move.number, home.path)
        return made

    def _owner(self, move: _Move) -> Owner:
        return Owner(self._brokers.own.node_id, move.move)

    def _is_too_old(self, move: _Move, topic: Topic) -> bool:
        """Return whether the leader may have removed tombstones that a copy lacks."""
        assert move.copy is not None
        if not topic.config.compact or self._loop.time() - move.asked_s <= _INTERRUPTED_S:
            return False
        return abs(self._now_ms() - move.copy.begun_ms) > topic.config.delete_retention_ms / 2

    def _wait_s(self, topic: Topic, number: int) -> float:
        return self._throttle.wait_s() if self._is_throttled(topic, number) else 0.0

    def _rate(self) -> int:
        return self._configs.of(ReplicationConfig).follower_replication_throttled_rate

    def _spend(self, topic: Topic, number: int, size_bytes: int) -> None:
        if self._is_throttled(topic, number):
            self._throttle.take(size_bytes)

    def _is_throttled(self, topic: Topic, number: int) -> bool:
        replicas = topic.config.follower_replication_throttled_replicas
        return bool(replicas) and is_throttled(replicas, number, self._brokers.own.node_id)

    async def _give_up(self, move: _Move) -> None:
        """Remove the copy of a partition that moves here no longer."""
        await self._stop(move)
        if move.copy is None or not self._is_useless(move.topic_id, move.number):
            return  # the next start looks for one
        try:
            await asyncio.to_thread(move.copy.discard)
        except StorageError as error:
            logger.warning("left a copy until the next start: %s", error)
        logger.info("gave up a copy partition=%s", move.copy.name)

    async def _in_thread(self, move: _Move, work: Callable[..., T], *args: object) -> T:
        operation = self._loop.run_in_executor(self._pool, lambda: work(*args))
        move.operation = operation
        return await asyncio.shield(operation)

    async def _stop(self, move: _Move) -> None:
        if move.task is not None:
            move.task.cancel()
            await asyncio.gather(move.task, return_exceptions=True)
        if move.operation is not None:
            await asyncio.wait([move.operation])
            if move.operation.exception() is not None:
                move.copy = None  # its end is not known
