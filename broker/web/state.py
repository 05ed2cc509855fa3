"""The broker as a whole over HTTP: its state, its load, and a stream of events.

    GET /api/broker     version, cluster, addresses, data directories, problems
    GET /api/samples[?since_ms=T]   its load, second by second, for a quarter of an hour
    GET /api/events     server-sent events, until the listener leaves

    event: tick         once a second: the present state
    event: cleaner      a cleaning or a quarantine has begun or ended: read /api/cleaner again

Events say that something has changed and little more; listeners read the other routes for details.
So a listener that falls behind loses no data, and its unread events are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiohttp import web

from odradek.broker.loop.tasks import start_task
from odradek.broker.version import VERSION
from odradek.broker.web import cleaner_json
from odradek.broker.web.access import Access
from odradek.broker.web.limits import address_of
from odradek.broker.web.requests import Parameters, Problem, answer_from_thread

if TYPE_CHECKING:
    from asyncio import Queue, Task

    from odradek.broker.web.services import WebServices

Json = dict[str, object]
Unite = Callable[[Json], Awaitable[Json]]

LISTENERS_MAX = 64
# From one address, so that others have places, too.
LISTENERS_PER_ADDRESS_MAX = 32
# The delay until an event reports that a cleaning has begun or ended.
_LOOK_S = 0.25
_LOOKS_PER_TICK = 4
# The events that a listener may leave unread.
_UNREAD_MAX = 8


def add_state_routes(
    app: web.Application, broker: WebServices, access: Access, unite: Unite | None = None
) -> None:
    """Add the routes about the broker to an application.

    `unite` adds the state of the machine's other workers to this one's.
    """
    routes = StateRoutes(broker, access, unite)
    app.router.add_get("/api/broker", routes.broker)
    app.router.add_get("/api/samples", routes.samples)
    app.router.add_get("/api/events", routes.events)
    app.on_shutdown.append(routes.stop)


class StateRoutes:
    """Answers, and the task that looks for changes; the event loop owns both."""

    def __init__(self, broker: WebServices, access: Access, unite: Unite | None) -> None:
        self._broker, self._access, self._unite = broker, access, unite
        self._listeners: set[Queue[bytes]] = set()
        self._counts: Counter[str] = Counter()
        self._looking: Task[None] | None = None
        self._is_stopping = False

    async def stop(self, app: web.Application) -> None:
        """End all streams."""
        self._is_stopping = True
        if self._looking is not None:
            self._looking.cancel()
        self._send(b"")

    async def broker(self, request: web.Request) -> web.Response:
        """Answer with the broker's identity and state."""
        Parameters(request, ())
        broker = self._broker
        shown = {
            "version": VERSION,
            "cluster_id": broker.cluster_id,
            "node_id": broker.node_id,
            "started_ms": broker.started_ms,
            "listeners": [str(one) for one in broker.server.listeners],
            "token_file": None if self._access.path is None else str(self._access.path),
            **self._now(),
        }
        paths = [one.path for one in broker.directories]

        def body() -> Json:
            directories = []
            for path in paths:
                total_bytes, free_bytes = broker.fs.space(path)
                sizes = {"total_bytes": total_bytes, "free_bytes": free_bytes}
                directories.append({"path": str(path), **sizes})
            return {**shown, "directories": directories}

        return await answer_from_thread(body)

    async def samples(self, request: web.Request) -> web.Response:
        """Answer with the samples of the load after a moment, column by column."""
        since_ms = Parameters(request, ("since_ms",)).number("since_ms", digits_max=15) or 0
        samples = self._broker.samples.as_json(since_ms)
        return await answer_from_thread(lambda: samples)

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Send events until the listener leaves, or the broker stops."""
        Parameters(request, ())
        if len(self._listeners) >= LISTENERS_MAX:
            raise Problem(
                503, f"{LISTENERS_MAX} clients listen already: close a page, or use /api/broker"
            )
        address = address_of(request.transport) if request.transport is not None else ""
        if self._counts[address] >= LISTENERS_PER_ADDRESS_MAX:
            raise Problem(
                503,
                f"{LISTENERS_PER_ADDRESS_MAX} clients of {address} listen already: close a page",
            )
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        stream = web.StreamResponse(headers=headers)
        await stream.prepare(request)
        unread: Queue[bytes] = asyncio.Queue(_UNREAD_MAX)
        self._listeners.add(unread)
        self._counts[address] += 1
        if self._looking is None:
            self._looking = start_task("look for events", self._look())
        try:
            await stream.write(_event("tick", await self._all_now()))
            while not self._is_stopping:
                await stream.write(await unread.get())
        except ConnectionError:  # the listener has left
            pass
        finally:
            self._listeners.discard(unread)
            self._counts -= Counter({address: 1})
        return stream

    async def _look(self) -> None:
        """Look for changes while somebody listens."""
        looks, known = 0, self._marks()
        others: object = None
        while self._listeners:
            await asyncio.sleep(_LOOK_S)
            looks += 1
            marks = self._marks()
            if marks != known:
                known = marks
                self._send(_event("cleaner", {"now_ms": self._broker.clock.now_ms()}))
            if looks % _LOOKS_PER_TICK == 0:
                now = await self._all_now()
                self._send(_event("tick", now))
                # Other workers' cleanings are noticed later, by their states.
                marks = [now["runs_ended"], now["quarantined"], _running(now)]
                if self._unite is not None and others not in (None, marks):
                    self._send(_event("cleaner", {"now_ms": now["now_ms"]}))
                others = marks
        self._looking = None

    def _marks(self) -> object:
        """Return a value that changes when a cleaning begins or ends."""
        scheduler = self._broker.cleaner.scheduler
        running = frozenset(one.key for one in scheduler.progress.running)
        return running, scheduler.runs.ended_count, scheduler.progress.quarantined

    async def _all_now(self) -> Json:
        now = self._now()
        return now if self._unite is None else await self._unite(now)

    def _now(self) -> Json:
        broker = self._broker
        progress = broker.cleaner.scheduler.progress
        return {
            "now_ms": broker.clock.now_ms(),
            "topics": len(broker.topics),
            "partitions": sum(1 for _ in broker.logs()),
            "connections": len(broker.server.connections),
            "has_catalog": broker.membership is not None,
            "has_object_store": broker.sharing is not None,
            "running": [cleaner_json.running(one) for one in progress.running],
            "quarantined": len(progress.quarantined),
            "runs_ended": broker.cleaner.scheduler.runs.ended_count,
            "problems": broker.problems(),
        }

    def _send(self, event: bytes) -> None:
        for unread in self._listeners:
            with contextlib.suppress(asyncio.QueueFull):
                unread.put_nowait(event)


def _event(name: str, data: Json) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def _running(now: Json) -> list[object]:
    running = now["running"]
    assert isinstance(running, list)
    return [(one["topic"], one["partition"]) for one in running]
