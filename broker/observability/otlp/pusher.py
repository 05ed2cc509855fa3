"""Pushes the metrics of /metrics to an OpenTelemetry collector, at an interval.

The event loop takes a snapshot as for /metrics; a thread of its own encodes and sends it. A failed
push loses no counts: all counts are since the start, and the next push includes them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.broker.loop.garbage import uncollected
from odradek.broker.loop.priority import give_way
from odradek.broker.loop.tasks import start_task
from odradek.broker.observability.exposition.render import collect
from odradek.broker.observability.exposition.snapshot import Snapshot, take_snapshot
from odradek.broker.observability.otlp.encoding import Origin, requests
from odradek.broker.observability.otlp.sending import Collector, PushRefused, pack
from odradek.broker.version import VERSION

if TYPE_CHECKING:
    from odradek.broker.observability.observed import Observed
    from odradek.config.otlp import OtlpConfig

logger = logging.getLogger(__name__)

T = TypeVar("T")

_TIMEOUT_S = 10.0  # OpenTelemetry's default
# The time between two lines in the log about a collector that keeps refusing.
_LOG_INTERVAL_MS = 60_000


class Trouble:
    """Decides which refusals of a collector are logged: the first one, then one a minute."""

    def __init__(self, where: str, now_ms: Callable[[], int]) -> None:
        self._where, self._now_ms = where, now_ms
        self._logged_ms: int | None = None
        self._unlogged_count = 0

    def refused(self, cause: str) -> None:
        """Note that a push was refused."""
        now_ms = self._now_ms()
        self._unlogged_count += 1
        if self._logged_ms is not None and now_ms - self._logged_ms < _LOG_INTERVAL_MS:
            return
        logger.warning(
            "could not push metrics endpoint=%s count=%d: %s",
            self._where, self._unlogged_count, cause,
        )  # fmt: skip
        self._logged_ms, self._unlogged_count = now_ms, 0

    def taken(self) -> None:
        """Note that a push was taken."""
        if self._logged_ms is not None:
            logger.info("pushed metrics again endpoint=%s", self._where)
        self._logged_ms, self._unlogged_count = None, 0


class Pusher:
    """The task that pushes; owned by the broker."""

    def __init__(self, broker: Observed, config: OtlpConfig) -> None:
        self._broker = broker
        self._interval_s = config.odradek_otlp_interval_ms / 1000
        self._collector = Collector(config.url, config.headers, _TIMEOUT_S)
        self._trouble = Trouble(self._collector.shown, broker.clock.now_ms)
        attributes = {
            "service.name": "odradek",
            "service.version": VERSION,
            "service.instance.id": f"{broker.cluster_id}/{broker.node_id}",
        }
        self._origin = Origin(attributes, "odradek", VERSION, broker.started_ms)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; the first push is one interval from now."""
        logger.info(
            "pushing metrics endpoint=%s interval_s=%g", self._collector.shown, self._interval_s
        )
        self._task = start_task("push metrics", self._run())

    def stop(self) -> None:
        """Stop pushing; a thread that waits for an answer is not waited for."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            with uncollected():
                bodies = await self._written()
            refusal = await _in_thread(partial(self._send, bodies))
            self._broker.metrics.otlp_pushes += 1
            if refusal is None:
                self._trouble.taken()
            else:
                self._broker.metrics.otlp_failures += 1
                self._trouble.refused(refusal)

    async def _written(self) -> list[bytes]:
        snapshot = await take_snapshot(self._broker)
        return await _in_thread(partial(self._write, snapshot))

    def _write(self, snapshot: Snapshot) -> list[bytes]:
        """Return the compressed bodies to send. Runs in a thread."""
        give_way()
        bodies = requests(collect(snapshot), self._origin, snapshot.now_ms)
        return [pack(body) for body in bodies]

    def _send(self, bodies: Sequence[bytes]) -> str | None:
        """Send bodies; return why one was refused, None if all were taken. Runs in a thread."""
        try:
            self._collector.send(bodies)
        except PushRefused as refusal:
            return str(refusal)
        except TimeoutError:
            return f"no answer within {_TIMEOUT_S:g} s"
        except OSError as error:
            return error.strerror or type(error).__name__
        return None


async def _in_thread(work: Callable[[], T]) -> T:
    """Run some work in a daemon thread, which does not delay a stop, unlike one of a pool."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def finish(result: Any, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:  # The root of a thread.
            failure = error
        try:
            loop.call_soon_threadsafe(finish, result, failure)
        except RuntimeError:
            logger.debug("the event loop ended before a push of metrics")

    threading.Thread(target=run, name="otlp", daemon=True).start()
    result: T = await done
    return result
