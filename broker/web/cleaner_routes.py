"""The cleaner over HTTP: its state, plans and history, and requests to clean.

    GET  /api/cleaner                                   threads, settings, queue, quarantine
    GET  /api/cleaner/plan?topic=T&partition=P&exact=   the effect that a cleaning would have
    GET  /api/cleaner/why?topic=T&partition=P           every condition for a cleaning
    POST /api/cleaner/run?topic=T&partition=P&wait=     clean now
    POST /api/cleaner/retry?topic=T&partition=P         try a quarantined partition again now
    GET  /api/cleaner/history?topic=T&partition=P       the last runs of a partition
    GET  /api/cleaner/runs                              the last runs of all partitions
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from aiohttp import web

from odradek.broker.web import cleaner_json as shown
from odradek.broker.web.access import Access
from odradek.broker.web.cleaner_facts import ExplainedLog, explain_logs, prices_of
from odradek.broker.web.concurrency import ConcurrencyLimiter
from odradek.broker.web.requests import Parameters, Problem, answer, answer_from_thread, logs_of
from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.rules.job import CleanerSettings
from odradek.cleaner.rules.why import Verdict
from odradek.cleaner.runtime.dry_run import Missing
from odradek.cleaner.runtime.plan import Plan, bounds
from odradek.cleaner.runtime.runs import Run
from odradek.cleaner.runtime.survey import queue
from odradek.storage.log import Log

if TYPE_CHECKING:
    from odradek.broker.web.services import WebServices

# All dry runs of one request end within this time; partitions left out get bounds only.
EXACT_TIME_MAX_S = 20.0
_SHOWN_MAX = 20
_RUNS_MAX = 200


def add_cleaner_routes(
    app: web.Application,
    broker: WebServices,
    access: Access,
    reads: ConcurrencyLimiter,
    lists: ConcurrencyLimiter,
) -> None:
    """Add the routes about the cleaner to an application."""
    routes = CleanerRoutes(broker, access, reads, lists)
    app.router.add_get("/api/cleaner", lists.in_turn(routes.state))
    app.router.add_get("/api/cleaner/plan", routes.plan)
    app.router.add_get("/api/cleaner/why", lists.in_turn(routes.why))
    app.router.add_post("/api/cleaner/run", routes.run)
    app.router.add_post("/api/cleaner/retry", routes.retry)
    app.router.add_get("/api/cleaner/history", lists.in_turn(routes.history))
    app.router.add_get("/api/cleaner/runs", lists.in_turn(routes.runs))


class CleanerRoutes:
    """Answers as JSON; the event loop owns it."""

    def __init__(
        self,
        broker: WebServices,
        access: Access,
        reads: ConcurrencyLimiter,
        lists: ConcurrencyLimiter,
    ) -> None:
        self._broker, self._access, self._reads, self._lists = broker, access, reads, lists

    async def state(self, request: web.Request) -> web.Response:
        """Answer with the cleaner's state and its next cleanings."""
        Parameters(request, ())
        now_ms = self._broker.clock.now_ms()
        explained, unreadable = await explain_logs(self._broker, self._compacted(), now_ms)
        pool = self._broker.cleaner
        status, config = pool.status(), self._broker.config
        in_progress, asked = list(pool.scheduler.progress.running), pool.scheduler.asked.waiting

        def body() -> object:
            findings = [one.finding for one in explained]
            later = [one for one in findings if one.due_ms is not None and one.due_ms > now_ms]
            schedule = shown.Schedule(
                next_up=queue(findings, now_ms)[:_SHOWN_MAX],
                later=sorted(later, key=lambda one: one.due_ms or 0)[:_SHOWN_MAX],
                due={(one.topic, one.partition): one.due_ms for one in findings},
                unreadable=unreadable,
            )
            return shown.state(
                status, config, schedule, in_progress=in_progress, asked=asked, now_ms=now_ms
            )

        return await answer_from_thread(body)

    async def plan(self, request: web.Request) -> web.StreamResponse:
        """Answer with the effect of a cleaning: exact for one topic, bounds for all topics."""
        parameters = Parameters(request, ("topic", "partition", "exact"))
        topic, number = parameters.text("topic"), parameters.number("partition")
        if topic is None and number is not None:
            raise Problem(400, "name the topic of the partition: topic=")
        is_exact = parameters.flag("exact", default=topic is not None)
        wanted = None if topic is None else set(logs_of(self._broker, parameters))
        # A dry run reads logs.
        async with (self._reads if is_exact else self._lists).turn(request) as turn:
            answered = await self._plan(topic, wanted, is_exact=is_exact)
            return await turn.send(request, answered)

    async def _plan(
        self, topic: str | None, wanted: Collection[Log] | None, *, is_exact: bool
    ) -> web.Response:
        now_ms = self._broker.clock.now_ms()
        compacted = self._compacted()
        levels_of = set(compacted) if wanted is None else wanted
        explained, unreadable = await explain_logs(
            self._broker, compacted, now_ms, levels_of=levels_of
        )
        in_thread, prices = asyncio.to_thread, prices_of(self._broker)
        positions = await in_thread(_positions, explained, now_ms)
        if wanted is not None:
            explained = [one for one in explained if one.log in wanted]
        busy = [one for one in explained if wanted is not None or _has_work(one)]
        await in_thread(busy.sort, key=lambda one: _order(one, positions))
        plans = await self._plans(busy, is_exact=is_exact)
        return await answer_from_thread(
            lambda: {
                "now_ms": now_ms,
                "is_exact": is_exact,
                "plans": [
                    shown.plan(one, made, positions.get(one.log), prices)
                    for one, made in zip(busy, plans, strict=True)
                ],
                "nothing_to_clean": len(explained) - len(busy),
                "not_compacted": sum(not log.config.compact for log in wanted or ()),
                "unreadable": [
                    shown.unread(one)
                    for one in unreadable
                    if topic is None or one.noted.log.topic == topic
                ],
            }
        )

    async def _plans(self, explained: Sequence[ExplainedLog], *, is_exact: bool) -> list[Plan]:
        deadline_s = time.monotonic() + EXACT_TIME_MAX_S
        settings = CleanerSettings.of(self._broker.config)
        exact: list[CleanResult | Missing] = [Missing.NOT_ASKED] * len(explained)
        for at, one in enumerate(explained if is_exact else ()):
            exact[at] = await self._broker.cleaner.dry_runs.run(one.log, deadline_s)
        return await asyncio.to_thread(
            lambda: [
                Plan(bounds(one.finding, settings), result)
                for one, result in zip(explained, exact, strict=True)
            ]
        )

    async def why(self, request: web.Request) -> web.Response:
        """Answer with every condition for a partition's cleaning."""
        log = self._one_log(Parameters(request, ("topic", "partition")))
        now_ms = self._broker.clock.now_ms()
        found, unreadable = await explain_logs(self._broker, [log], now_ms, levels_of=[log])
        if not found:
            because = unreadable[0].cause if unreadable else "it was deleted meanwhile"
            raise Problem(503, f"{log.name} cannot be read: {because}")
        position = None
        if log.config.compact:
            others, _ = await explain_logs(self._broker, self._compacted(), now_ms)
            position = (await asyncio.to_thread(_positions, others, now_ms)).get(log)
        return await answer_from_thread(lambda: shown.why(found[0], position, now_ms))

    async def run(self, request: web.Request) -> web.Response:
        """Clean a topic's partitions now; with wait=false, answer before it is done."""
        self._access.require(request)
        parameters = Parameters(request, ("topic", "partition", "wait"))
        topic = parameters.text("topic")
        if topic is None:
            raise Problem(400, "name the topic: topic=")
        logs = logs_of(self._broker, parameters)
        must_wait = parameters.flag("wait", default=True)
        answers = [self._broker.cleaner.ask(log) for log in logs]
        if not must_wait:
            asked = [{"topic": log.topic, "partition": log.partition} for log in logs]
            return await answer_from_thread(lambda: {"asked": asked}, status=202)
        outcomes, prices = await asyncio.gather(*answers), prices_of(self._broker)
        return await answer_from_thread(
            lambda: {"outcomes": [shown.outcome(one, prices) for one in outcomes]}
        )

    async def retry(self, request: web.Request) -> web.Response:
        """Try a quarantined partition again, without waiting for the outcome."""
        self._access.require(request)
        log = self._one_log(Parameters(request, ("topic", "partition")))
        cleaner = self._broker.cleaner
        if not cleaner.scheduler.progress.is_quarantined(log.topic, log.partition):
            raise Problem(409, f"{log.name} is not quarantined: there is nothing to try again")
        cleaner.ask(log)  # its outcome is in the history, and ends the quarantine or renews it
        return answer({"retried": {"topic": log.topic, "partition": log.partition}}, status=202)

    async def history(self, request: web.Request) -> web.Response:
        """Answer with the last runs of a partition, the oldest first."""
        log = self._one_log(Parameters(request, ("topic", "partition")))
        now_ms, scheduler = self._broker.clock.now_ms(), self._broker.cleaner.scheduler
        history, failed = scheduler.runs, scheduler.progress.standing(log).quarantined
        is_loaded, runs = history.is_loaded, history.runs(log)
        prices = prices_of(self._broker)
        quarantined = None
        if failed is not None:
            explained, _ = await explain_logs(self._broker, [log], now_ms)
            due_ms = explained[0].answer.due_ms if explained else failed.retry_at_ms
            quarantined = shown.quarantined(failed, due_ms)
        return await answer_from_thread(
            lambda: {
                "now_ms": now_ms,
                "topic": log.topic,
                "partition": log.partition,
                "is_loaded": is_loaded,
                # The present state: entries of runs have the time of the next try as of then.
                "quarantined": quarantined,
                "runs": [shown.run(one, prices) for one in runs],
            }
        )

    async def runs(self, request: web.Request) -> web.Response:
        """Answer with the last runs of all partitions, the latest first."""
        Parameters(request, ())
        history = self._broker.cleaner.scheduler.runs
        now_ms, is_loaded = self._broker.clock.now_ms(), history.is_loaded
        runs, prices = list(history.all()), prices_of(self._broker)
        return await answer_from_thread(
            lambda: {
                "now_ms": now_ms,
                "is_loaded": is_loaded,
                "runs": [shown.run(one, prices) for one in _latest(runs)],
            }
        )

    def _one_log(self, parameters: Parameters) -> Log:
        topic, number = parameters.text("topic"), parameters.number("partition")
        if topic is None or number is None:
            raise Problem(400, "name the topic and the partition: topic= and partition=")
        (log,) = logs_of(self._broker, parameters)
        return log

    def _compacted(self) -> list[Log]:
        return [log for log in self._broker.logs() if log.config.compact]


def _latest(runs: Iterable[Run]) -> list[Run]:
    return heapq.nlargest(_RUNS_MAX, runs, key=lambda one: one.at_ms)


def _has_work(one: ExplainedLog) -> bool:
    """Return whether a log is being cleaned, or will be now or later."""
    return one.finding.dirty.cleanable_bytes > 0 or one.answer.verdict is not Verdict.NOT


def _positions(explained: Iterable[ExplainedLog], now_ms: int) -> dict[Log, int]:
    """Return the place in the queue of each log that a free thread may clean now."""
    logs = {(one.finding.topic, one.finding.partition): one.log for one in explained}
    ordered = queue((one.finding for one in explained), now_ms)
    return {logs[one.topic, one.partition]: at for at, one in enumerate(ordered, 1)}


def _order(one: ExplainedLog, positions: dict[Log, int]) -> tuple[float, float, str, int]:
    """Return the sort key of plans: the place in the queue, then the due time, then the name."""
    never = float("inf")
    due = one.answer.due_ms
    place = positions.get(one.log, never)
    return place, never if due is None else due, one.finding.topic, one.finding.partition
