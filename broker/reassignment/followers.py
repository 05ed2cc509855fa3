"""The brokers of other hosts that copy partitions of this one, by their Fetch requests.

As in Kafka, a follower asks for the offset where its copy ends; all before it is on its disk. Here
only the broker that a partition is to move to may follow, and it never leads unless this broker
lets it (handovers.py). A copy has a number (replica_epoch): that of the move for which it is made,
and that of the attempt, as a time in ms. A copy of an earlier move, or attempt, does not count,
since the follower may have removed it.

    fetches       its copy grows, while this broker serves the partition
    is near       little is missing: the partition is handed over soon
    is leaving    the partition is not served any more, but may be copied to its end

A tombstone that the cleaner removes must have reached the copy, or the records before it would
come back. The cleaner keeps one for at least delete.retention.ms. A copy is begun again when it
was interrupted in the second half of that time (copies.py), and a log that is copied without an
interruption is not cleaned in this half. So a copy never lacks a tombstone that is gone here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from odradek.broker.ids import Partition
from odradek.broker.metadata.configs import Configs
from odradek.broker.metadata.members import Leader
from odradek.broker.reassignment.throttle import Throttle
from odradek.broker.topics.topic import Topic
from odradek.config.replication import ReplicationConfig, is_throttled
from odradek.dataclass import dataclass
from odradek.storage.errors import NotCached, StorageError
from odradek.storage.log import Log

logger = logging.getLogger(__name__)

# A follower that is silent for this time has gone; copies.py counts an interruption earlier.
SILENCE_S = 10.0
# A copy that lacks fewer bytes has its end once the partition is not served any more.
_NEAR_BYTES = 1 << 20
_UNLIMITED_BYTES = 1 << 62
_MS_PER_S = 1_000
# Enough for times until the year 2109, and for two million moves of a partition.
_TIME_BITS = 42


class Cleaner(Protocol):
    """The cleaner's threads."""

    def pause(self, topic: str, partition: int) -> None:
        """Abort a partition's cleaning, and begin none until each pause() has had a resume()."""

    def resume(self, topic: str, partition: int) -> None:
        """Undo one call of pause()."""


def copy_number(move: int, now_ms: int) -> int:
    """Return the number of a copy for a move, begun at a time."""
    return move << _TIME_BITS | now_ms


def move_of(number: int) -> int:
    """Return the move for which a copy is made."""
    return number >> _TIME_BITS


@dataclass(slots=True)
class _Follower:
    node_id: int
    copy_number: int
    log: Log
    begun_s: float  # since when it follows without an interruption
    seen_s: float
    offset: int = -1
    # The end of the log at its last request: a copy with all until there is in sync.
    end_before: int = 1 << 62
    is_near: bool = False
    has_paused: bool = False


class Followers:
    """Owned by the event loop."""

    def __init__(self, cleaner: Cleaner, configs: Configs) -> None:
        self._cleaner, self._configs = cleaner, configs
        self._loop = asyncio.get_running_loop()
        self._now_s = self._loop.time
        self._throttle = Throttle(
            lambda: configs.of(ReplicationConfig).leader_replication_throttled_rate, self._now_s
        )
        self._followers: dict[Partition, _Follower] = {}
        # The logs of partitions that are not served any more.
        self._leaving: dict[Partition, Log] = {}
        # Set when a follower has come further.
        self._progress = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        # Called when a partition may be handed over.
        self.on_near: Callable[[], None] = lambda: None

    def close(self) -> None:
        """Stop looking for followers that have gone."""
        if self._timer is not None:
            self._timer.cancel()

    def log_for(self, topic: Topic, number: int, node_id: int) -> Log | None:
        """Return the log of a partition for a broker that copies it; None for any other."""
        leaders = topic.record.leaders
        if not leaders or leaders[number].target != node_id:
            return None
        present = topic.partitions[number]
        return present if isinstance(present, Log) else self._leaving.get(
            (topic.topic_id, number)
        )

    def note(self, log: Log, node_id: int, copy_number: int, offset: int) -> int | None:
        """Note that a copy has all records before an offset; return the bytes it may take now.

        The offset is -1 before there is a copy. A copy that was given up may take nothing: None.
        The first request after a silence does not count: the copy may be too old.
        """
        key, now_s = (log.topic_id, log.partition), self._now_s()
        known = self._followers.get(key)
        if known is not None and known.node_id == node_id and copy_number < known.copy_number:
            return None  # a request that was on its way when the copy was begun again
        if (
            known is None
            or (known.node_id, known.copy_number) != (node_id, copy_number)
            or known.log is not log
        ):
            self._drop(key)
            known = self._followers[key] = _Follower(node_id, copy_number, log, now_s, now_s)
            self._look_later()
        elif now_s - known.seen_s > SILENCE_S:
            known.begun_s, known.offset, known.is_near = now_s, -1, False
        else:
            is_in_sync = offset >= known.end_before
            known.offset, known.is_near = offset, is_in_sync and _is_near(log, offset)
        known.seen_s, known.end_before = now_s, log.log_end_offset
        self._pause_when_due(known)
        self._progress.set()
        if known.is_near:
            self.on_near()
        # As in Kafka, a copy in sync keeps to no rate: the partition waits for its end.
        is_held = not known.is_near and self._is_throttled(log) and self._throttle.wait_s() > 0
        return 0 if is_held else _UNLIMITED_BYTES

    def spend(self, log: Log, size_bytes: int) -> None:
        """Note that a follower gets bytes of a log."""
        if self._is_throttled(log):
            self._throttle.take(size_bytes)

    def is_near(self, log: Log, leader: Leader) -> bool:
        """Return whether the target has copied nearly all of a log, and goes on."""
        known = self._known(log, leader)
        return (
            known is not None and known.is_near and self._now_s() - known.seen_s <= SILENCE_S
        )

    def progress(self, key: Partition) -> int | None:
        """Return the offset that the copy of a partition has reached, None without one."""
        known = self._followers.get(key)
        return None if known is None else known.offset

    async def until_copied(
        self, targets: Mapping[Log, Leader], patience_s: float
    ) -> list[Log]:
        """Wait until targets have copied logs that get no more appends; return those copied.

        From then on the brokers copy nothing more: they may give up no copy that is complete.
        """
        keys = {log: (log.topic_id, log.partition) for log in targets}
        self._leaving |= {key: log for log, key in keys.items()}
        end_s = self._now_s() + patience_s
        try:
            while True:
                self._progress.clear()
                copied = [log for log, one in targets.items() if self._has_all(log, one)]
                left_s = end_s - self._now_s()
                if len(copied) == len(targets) or left_s <= 0:
                    return copied
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._progress.wait()
        finally:
            for key in keys.values():
                del self._leaving[key]
                self._drop(key)

    def _is_throttled(self, log: Log) -> bool:
        replicas = log.config.leader_replication_throttled_replicas
        return bool(replicas) and is_throttled(replicas, log.partition, self._configs.node_id)

    def _pause_when_due(self, one: _Follower) -> None:
        """Keep the tombstones of a log that is being copied for long."""
        log = one.log
        half_s = log.config.delete_retention_ms / _MS_PER_S / 2
        if log.config.compact and not one.has_paused and one.seen_s - one.begun_s >= half_s:
            one.has_paused = True
            self._cleaner.pause(log.topic, log.partition)
            logger.info("paused the cleaning of a log while it is copied log=%s", log.name)

    def _has_all(self, log: Log, leader: Leader) -> bool:
        known = self._known(log, leader)
        return known is not None and known.offset == log.log_end_offset

    def _known(self, log: Log, leader: Leader) -> _Follower | None:
        """Return the follower of a log, if it is the target of the present move."""
        known = self._followers.get((log.topic_id, log.partition))
        if known is None or known.log is not log or known.node_id != leader.target:
            return None
        return known if move_of(known.copy_number) == leader.move else None

    def _drop(self, key: Partition) -> None:
        known = self._followers.pop(key, None)
        if known is not None and known.has_paused:
            self._cleaner.resume(known.log.topic, known.log.partition)

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(SILENCE_S, self._look)

    def _look(self) -> None:
        """Forget the followers that have gone."""
        self._timer = None
        now_s = self._now_s()
        for key, one in list(self._followers.items()):
            if now_s - one.seen_s > SILENCE_S:
                self._drop(key)
        if self._followers:
            self._look_later()


def _is_near(log: Log, offset: int) -> bool:
    if offset < 0:
        return False
    try:
        found = log.read(offset, _UNLIMITED_BYTES, at_least_one=True, may_wait=False)
    except (StorageError, NotCached):
        return False
    return found is None or (
        found.base_offset == log.active.base_offset and found.size <= _NEAR_BYTES
    )
