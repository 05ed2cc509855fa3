"""This broker's part in a cluster: its session, and the changes of the other brokers.

    joined       the lease is extended every broker.heartbeat.interval.ms
    suspended    it could not be extended until it ended: nothing is served, since another broker
                 may close the session at any time
    lost         the session is closed: the broker joins again, and leads again

The broker goes by its own clock, and counts a lease from before the request that extended it, so
it stops no later than the catalog lets others act.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from odradek.broker.catalog.changes import News
from odradek.broker.catalog.engines import CatalogAway
from odradek.broker.catalog.sessions import SessionClosed
from odradek.broker.catalog.store import CatalogStore
from odradek.broker.errors import MetadataError
from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.changes import Changes
from odradek.broker.metadata.members import Brokers
from odradek.broker.topics.registry import Topics
from odradek.config.catalog import CatalogConfig
from odradek.config.values import INT64_MAX
from odradek.dataclass import dataclass

logger = logging.getLogger(__name__)

# Other brokers' changes are in force here within twice this time.
_FOLLOW_S = 0.04
# After a failure it is longer: each try is a new connection, for which the database may start a
# process and check a password.
_RETRY_S = 0.5
_MS_PER_S, _NS_PER_S = 1_000, 1_000_000_000


@dataclass(frozen=True, slots=True)
class Standing:
    """The session of this broker at one moment."""

    epoch: int
    lease_ms: int  # its length
    lease_left_ms: int
    since_extended_ms: int
    is_suspended: bool
    trouble: str  # "" while the catalog can be used


class Membership:
    """Keeps the session and follows the others. The event loop owns it."""

    def __init__(
        self,
        store: CatalogStore,
        brokers: Brokers,
        changes: Changes,
        topics: Topics,
        config: CatalogConfig,
        apply: Callable[[News], Awaitable[None]],
        *,
        shares_host: bool,
    ) -> None:
        """`apply` puts other brokers' changes into memory."""
        self._shares_host = shares_host
        self._store, self._brokers, self._changes = store, brokers, changes
        self._topics, self._config, self._apply = topics, config, apply
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._deadline: asyncio.TimerHandle | None = None
        # When the request began that last extended the lease.
        self._extended_at = 0.0
        # Set by each heartbeat that has extended it.
        self._extended = asyncio.Event()
        # By the event loop's time.
        self._lease_end = 0.0
        self._is_suspended = False
        self._is_stopping = False
        self._resuming: asyncio.Future[None] = self._loop.create_future()
        self._resuming.set_result(None)
        # Called with the epoch of a session that follows a lost one.
        self.on_joined: Callable[[int], None] = lambda epoch: None
        # Called when this broker serves again.
        self.on_serving: Callable[[], None] = lambda: None
        # The reason why the catalog cannot be used, "" while it can.
        self._trouble = ""
        changes.follow, changes.refuse = self._follow, self._refuse
        changes.catch_up = self._catch_up
        brokers.lease.on_end = self._suspend

    @property
    def store(self) -> CatalogStore:
        """The catalog."""
        return self._store

    @property
    def lease_ms(self) -> int:
        """The length of the lease."""
        return self._config.broker_session_timeout_ms

    def start(self, joined_at: float) -> None:
        """Begin to extend the lease, which began at a time of the event loop."""
        self._extend(joined_at)
        self._tasks = [
            start_task("extend the session", self._heartbeats()),
            start_task("replace silent brokers", self._replace_silent()),
            start_task("follow the catalog", self._follow_on()),
        ]

    async def confirm(self) -> None:
        """Extend the lease once more, after the system refuses no connections any more.

        Until then, other brokers may have taken this one for one whose process has ended
        (probes.py), and have closed its session. Without an answer nothing is served yet.
        """
        began = self._loop.time()
        try:
            async with asyncio.timeout_at(self._lease_end):
                await self._store.renew(self.lease_ms)
        except MetadataError as error:
            self.lose(error)
        except TimeoutError:
            self._suspend()
        else:
            self._extend(began)

    async def stop_following(self) -> None:
        """Ignore the changes of others, and only extend the session: this broker stops.

        Its logs are closed one after another, and must not be opened again for a change.
        """
        self._is_stopping = True
        following = self._tasks[-1]
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    async def stop(self) -> None:
        """Leave the cluster; a catalog that is away is left alone."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._deadline is not None:
            self._deadline.cancel()
        self._brokers.lease.end_ns = INT64_MAX
        try:
            await self._store.leave(self._brokers.own.node_id)
        except MetadataError as error:
            logger.error("could not leave the cluster, the session ends by itself: %s", error)

    def problems(self) -> list[str]:
        """Return the problems that an operator has to look at."""
        if self._is_suspended:
            return [f"the session in the catalog has ended, nothing is served: {self._trouble}"]
        return [self._trouble] if self._trouble else []

    def standing(self) -> Standing:
        """Return the state of the session."""
        since_ms = int((self._loop.time() - self._extended_at) * _MS_PER_S)
        return Standing(
            epoch=self._store.session_epoch,
            lease_ms=self.lease_ms,
            lease_left_ms=max(self.lease_ms - since_ms, 0),
            since_extended_ms=since_ms,
            is_suspended=self._is_suspended,
            trouble=self._trouble,
        )

    def lose(self, error: Exception) -> None:
        """Stop serving: the session was found closed. The next heartbeat joins again."""
        if not self._is_suspended:
            self._trouble = str(error)
            logger.error("stopped serving: %s", error)
            self._stop_serving()

    # --- the session ----------------------------------------------------------------------------

    async def _heartbeats(self) -> None:
        interval_s = self._config.broker_heartbeat_interval_ms / _MS_PER_S
        while True:
            await asyncio.sleep(interval_s)
            began = self._loop.time()
            try:
                await self._store.renew(self.lease_ms)
                self._recovered()
                self._extend(began)
                self._extended.set()
                self._resume_soon()
            except SessionClosed as error:
                self._trouble = str(error)
                if self._is_stopping:
                    return  # others lead its partitions now
                await self._changes.run(self._join_again)
                self._resume_soon()
            except MetadataError as error:
                self._note(error)

    async def _replace_silent(self) -> None:
        """Close the sessions of silent brokers, beside the heartbeats: it may take long.

        Each look follows an extension of the own lease: where this broker could not extend it,
        others could not either.
        """
        late_ms = 2 * self._config.broker_heartbeat_interval_ms
        while True:
            await self._extended.wait()
            self._extended.clear()
            try:
                for member in await self._store.expel(self.lease_ms, late_ms):
                    logger.warning("closed the session of broker=%d: it is silent", member.node_id)
            except SessionClosed:
                pass  # the next heartbeat finds it
            except MetadataError as error:
                self._note(error)

    def _extend(self, began: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._extended_at = began
        self._lease_end = began + self.lease_ms / _MS_PER_S
        self._deadline = self._loop.call_at(self._lease_end, self._suspend)
        self._brokers.lease.end_ns = int(self._lease_end * _NS_PER_S)

    def _suspend(self) -> None:
        if not self._is_suspended:
            if not self._trouble:  # a database that hangs reports nothing
                self._trouble = f"the catalog {self._store.address} has not answered in time"
            logger.error("stopped serving, the session could not be extended: %s", self._trouble)
            self._stop_serving()

    def _stop_serving(self) -> None:
        self._is_suspended = True
        self._brokers.lease.end_ns = INT64_MAX
        self._topics.resign()

    def _resume_soon(self) -> None:
        """Serve again beside the heartbeats: other changes, and logs to open, may take long."""
        if self._is_suspended and self._resuming.done() and not self._is_stopping:
            self._resuming = start_task("serve again", self._changes.run(self._resume))

    async def _resume(self) -> None:
        try:
            # A handover whose answer was lost may still be under way: its partitions must not be
            # opened here.
            await self._store.wait_for_changes()
            await self._follow()  # others may have raised the epochs meanwhile
        except MetadataError as error:
            self._note(error)
            return
        if self._loop.time() >= self._lease_end:
            return  # the lease has ended while this waited: the next heartbeat tries again
        self._is_suspended = False
        await self._topics.restore()
        if not self._is_suspended:
            logger.info("serves again, the session was extended in time")
            self.on_serving()

    async def _join_again(self) -> None:
        logger.error("lost the session in the catalog, joining again: %s", self._trouble)
        self._stop_serving()
        self._lease_end = 0.0
        began = self._loop.time()
        try:
            await self._store.join(
                self._brokers.own, self.lease_ms, shares_host=self._shares_host
            )
            self.on_joined(self._store.session_epoch)
            await self._follow()
        except MetadataError as error:
            self._note(error)
            return
        self._extend(began)
        self._recovered()

    # --- other brokers' changes -----------------------------------------------------------------

    async def _follow_on(self) -> None:
        pause_s = _FOLLOW_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self._follow_news()
            except MetadataError as error:
                self._note(error)
                pause_s = _RETRY_S
            else:
                pause_s = _FOLLOW_S

    async def _follow_news(self) -> None:
        if await self._store.has_news():
            await self._changes.run(self._follow)

    async def _catch_up(self) -> None:
        """Know the changes that other brokers have acknowledged, while the catalog answers."""
        with contextlib.suppress(MetadataError):  # a change that needs the catalog reports it
            await self._follow_news()

    async def _follow(self) -> None:
        """Put the changes of other brokers into memory, within a change."""
        found = await self._store.news()
        if found is None:
            return
        revision, change_id, news = found
        if news.sessions is not None:
            self._brokers.follow((one.member for one in news.sessions), news.absent)
        await self._apply(news)
        self._store.advance(revision, change_id)

    def _refuse(self, error: MetadataError) -> None:
        self._store.refusal = error

    # --- troubles -------------------------------------------------------------------------------

    def _note(self, error: MetadataError) -> None:
        if str(error) != self._trouble:
            level = logging.WARNING if isinstance(error, CatalogAway) else logging.ERROR
            logger.log(level, "%s", error)
        self._trouble = str(error)

    def _recovered(self) -> None:
        if self._trouble:
            logger.info("the catalog %s can be used again", self._store.address)
        self._trouble = ""
