"""Periodic jobs: checkpoints, removals of files, expiry of silent producers and clients.

Each job has its own interval from the settings, which is read again every time. A failure of a job
is logged, and the job runs again at its next turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from odradek.broker.loop.tasks import start_task
from odradek.config.tokens import TokenConfig
from odradek.storage.errors import StorageError

if TYPE_CHECKING:
    from odradek.broker.composition import Broker
    from odradek.storage.checkpoints import Checkpoints
    from odradek.storage.directory import LogDirectory

logger = logging.getLogger(__name__)

_REMOVALS_INTERVAL_MS = 1_000
_DISKS_INTERVAL_MS = 500
_SAMPLE_INTERVAL_MS = 1_000
_MINUTE_MS = 60_000
# The interval at which a job that is turned off checks whether it still is.
_OFF_INTERVAL_MS = 1_000
# The number of checks of connections in the time that one may be idle, and the bounds of the
# interval between two checks.
_LOOKS_PER_IDLE_TIME = 10
_IDLE_INTERVAL_MIN_MS, _IDLE_INTERVAL_MAX_MS = 10, 30_000

Job = Callable[[], Awaitable[None]]


class Periodic:
    """The jobs and their tasks; owned by the broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the jobs; each first runs after its first interval."""
        config = self._broker.configs
        self._every(
            lambda: config.broker.log_flush_offset_checkpoint_interval_ms, self._checkpoint
        )
        self._every(
            lambda: config.broker.log_flush_start_offset_checkpoint_interval_ms,
            self._checkpoint_starts,
        )
        self._every(lambda: _REMOVALS_INTERVAL_MS, self._remove)
        self._every(lambda: _DISKS_INTERVAL_MS, self._broker.disks.check)
        self._every(
            lambda: config.broker.producer_id_expiration_check_interval_ms, self._expire_producers
        )
        self._every(
            lambda: _idle_interval_ms(config.broker.connections_max_idle_ms), self._close_idle
        )
        self._every(
            lambda: config.shares.share_coordinator_state_topic_prune_interval_ms,
            self._broker.shares.pruner.prune,
        )
        if self._broker.security.tokens is not None:
            self._every(
                lambda: config.of(TokenConfig).delegation_token_expiry_check_interval_ms,
                self._broker.security.tokens.remove_expired,
            )
        self._every(lambda: _SAMPLE_INTERVAL_MS, self._broker.samples.take)
        self._every(lambda: _MINUTE_MS, self._broker.metrics.turn_minute)
        if self._broker.security.tls is not None:
            self._every(lambda: _MINUTE_MS, self._look_at_certificates)

    def stop(self) -> None:
        """End all jobs."""
        for task in self._tasks:
            task.cancel()

    def _every(self, interval_ms: Callable[[], int], job: Job) -> None:
        name = getattr(job, "__name__", str(job))
        self._tasks.append(start_task(name, _repeat(interval_ms, job)))

    async def _checkpoint(self) -> None:
        for directory in self._broker.directories:
            await self._store(directory, directory.take_checkpoints())

    async def _checkpoint_starts(self) -> None:
        for directory in self._broker.directories:
            await self._store(directory, directory.take_start_offsets())

    async def _store(self, directory: LogDirectory, taken: Checkpoints) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, directory.store, taken)
        except StorageError as error:
            self._broker.disks.note_directory(directory.path, error)

    async def _remove(self) -> None:
        now_ms = self._broker.clock.now_ms()
        for directory in self._broker.directories:
            due = directory.take_due_removals(now_ms)
            if due:
                loop = asyncio.get_running_loop()
                try:
                    await loop.run_in_executor(None, directory.remove, due)
                except StorageError as error:  # the next start removes the remaining files
                    self._broker.disks.note_directory(directory.path, error)

    async def _expire_producers(self) -> None:
        now_ms = self._broker.clock.now_ms()
        for log in self._broker.logs():
            log.producers.expire(now_ms, self._broker.config.producer_id_expiration_ms)

    async def _look_at_certificates(self) -> None:
        assert self._broker.security.tls is not None, "the job runs only with TLS"
        self._broker.security.tls.look_at_files()

    async def _close_idle(self) -> None:
        self._broker.server.close_idle()


def _idle_interval_ms(idle_max_ms: int) -> int:
    """Return the interval of checks for idle connections, each a comparison per connection."""
    interval_ms = idle_max_ms // _LOOKS_PER_IDLE_TIME
    return min(max(interval_ms, _IDLE_INTERVAL_MIN_MS), _IDLE_INTERVAL_MAX_MS)


async def _repeat(interval_ms: Callable[[], int], job: Job) -> None:
    while True:
        wanted_ms = interval_ms()
        await asyncio.sleep((wanted_ms or _OFF_INTERVAL_MS) / 1000)
        if wanted_ms == 0:  # never; but the setting may change
            continue
        try:
            await job()
        except StorageError:
            logger.exception("failed periodic job=%s", getattr(job, "__name__", job))
