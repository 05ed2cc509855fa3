"""Keeps a provider's keys: fetched when the broker starts, at intervals, and on demand.

A token with an unknown key makes the broker fetch the keys at once, since providers change keys;
that happens at most once in a few seconds, for all clients together. A file is read again when it
has changed. When a fetch fails, the last keys stay in use, and it is tried again later, with a
growing delay (RefreshingHttpsJwks).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import TypeVar

from odradek.broker.loop.tasks import start_task
from odradek.broker.security.oauth.fetching import FetchFailed, fetch, file_of, read_file, state_of
from odradek.broker.security.oauth.jwks import (
    ALGORITHMS,
    BadKeySet,
    KeySet,
    VerificationKey,
    read_key_set,
)
from odradek.broker.security.oauth.validation import Header
from odradek.config.oauth import OAuthConfig

logger = logging.getLogger(__name__)

T = TypeVar("T")

_FETCH = "fetch keys"
# The least time between two fetches for tokens with unknown keys.
_ON_DEMAND_INTERVAL_S = 10.0
# The number of unusable keys that have a line in the log.
_PASSED_OVER_SHOWN_MAX = 10


class Keys:
    """The keys at one address; the event loop owns it."""

    def __init__(
        self, url: str, config: OAuthConfig, fetch: Callable[[str], bytes] = fetch
    ) -> None:
        """Begin without keys; start() fetches them."""
        self.url, self._config, self._fetch = url, config, fetch
        self._file = file_of(url)
        self._file_state: object = None
        self._keys = KeySet(())
        self._problem: str | None = None
        # The work under way, by its name: others that need the same work wait for it.
        self._doing: dict[str, asyncio.Task[None]] = {}
        self._demanded_at_s: float | None = None
        self._repeating: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to fetch the keys, again at each interval."""
        if self._repeating is None:
            self._repeating = start_task("refresh keys", self._repeat())

    def close(self) -> None:
        """Stop fetching."""
        for task in (self._repeating, *self._doing.values()):
            if task is not None:
                task.cancel()

    @property
    def problem(self) -> str | None:
        """Why the last fetch of the keys failed; None when it succeeded."""
        return self._problem

    async def candidates(self, header: Header) -> Sequence[VerificationKey]:
        """Return the keys that may have signed a token; fetches keys when none is known."""
        if header.algorithm not in ALGORITHMS:
            return ()  # no key will ever do
        if self._file is not None:
            await self._once("look at the file of keys", self._look_at_file)
        found = self._keys.candidates(header.algorithm, header.key_id)
        if not found and self._may_fetch():
            await self._refresh()
            found = self._keys.candidates(header.algorithm, header.key_id)
        return found

    def _may_fetch(self) -> bool:
        if _FETCH in self._doing:
            return True  # wait for it
        now_s = asyncio.get_running_loop().time()
        last_s = self._demanded_at_s
        if last_s is not None and now_s - last_s < _ON_DEMAND_INTERVAL_S:
            return False
        self._demanded_at_s = now_s
        return True

    async def _repeat(self) -> None:
        backoff_ms = self._config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms
        while True:
            await self._refresh()
            wait_ms = self._config.sasl_oauthbearer_jwks_endpoint_refresh_ms
            if self._problem is not None:
                wait_ms = min(wait_ms, backoff_ms)
                most_ms = self._config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms
                backoff_ms = min(2 * backoff_ms, most_ms)
            else:
                backoff_ms = self._config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms
            await asyncio.sleep(wait_ms / 1000)

    async def _refresh(self) -> None:
        await self._once(_FETCH, self._fetch_keys)

    async def _look_at_file(self) -> None:
        if await _in_thread(self._has_changed):
            await self._refresh()

    async def _once(self, name: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do some work, or wait until it is done if it is under way: one thread for all."""
        task = self._doing.get(name)
        if task is None:
            task = self._doing[name] = start_task(name, work())
            task.add_done_callback(lambda _: self._doing.pop(name, None))
        # The connection of one waiter may be lost; others wait, too.
        await asyncio.shield(task)

    async def _fetch_keys(self) -> None:
        try:
            keys = await _in_thread(self._read)
        except (FetchFailed, BadKeySet) as error:
            if self._problem != str(error):
                logger.error("could not fetch the keys of tokens url=%s: %s", self.url, error)
            self._problem = str(error)
            return
        except Exception:  # the root of this work: the next fetch must not fail with it
            logger.exception("failed to fetch the keys of tokens url=%s", self.url)
            self._problem = "an internal error (see the log)"
            return
        if self._problem is not None or keys != self._keys:
            ids = ",".join(str(one.key_id) for one in keys.keys)
            logger.info("fetched the keys of tokens url=%s kids=%.500s", self.url, ids)
            for why in keys.passed_over[:_PASSED_OVER_SHOWN_MAX]:
                logger.warning("ignored a key of tokens url=%s: %s", self.url, why)
            more = len(keys.passed_over) - _PASSED_OVER_SHOWN_MAX
            if more > 0:
                logger.warning("ignored %d more keys of tokens url=%s", more, self.url)
        self._keys, self._problem = keys, None

    def _read(self) -> KeySet:
        if self._file is None:
            return read_key_set(self._fetch(self.url))
        self._file_state = state_of(self._file)  # before reading, to detect later changes
        return read_key_set(read_file(self._file))

    def _has_changed(self) -> bool:
        assert self._file is not None
        return state_of(self._file) != self._file_state


async def _in_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a daemon thread, which does not delay a stop of the broker."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    threading.Thread(target=run, name="keys", daemon=True).start()
    return await done
