"""Answers requests for all workers of the machine, before the routes of this one (table.py)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST
from yarl import URL

from odradek.broker.topics.names import CONSUMER_OFFSETS
from odradek.broker.web.concurrency import ConcurrencyLimiter
from odradek.broker.web.proofs import parse_key
from odradek.broker.web.requests import (
    OTHER_WORKERS,
    Answer,
    Parameters,
    Problem,
    answer,
    is_private,
)
from odradek.broker.web.united import merging
from odradek.broker.web.united.merged_metrics import merge_metrics
from odradek.broker.web.united.merged_records import samples_since
from odradek.broker.web.united.merging import Answers, Json
from odradek.broker.web.united.neighbours import (
    Neighbours,
    Reply,
    headers_of,
    target_of,
    while_asked,
)
from odradek.broker.web.united.table import ENDS, OWN, ROUTES, Asked, Route, Turns
from odradek.protocol.partitioning import partition_of_key

if TYPE_CHECKING:
    from odradek.broker.web.services import WebServices
    from odradek.broker.web.united.port import SharedPort

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_RUNNING_MAX, _WAITING_MAX = 2, 64
# The partitions whose ends are noted in one turn of the event loop.
_ENDS_AT_ONCE = 500
_TICK_S = 2.0
_METRICS, _SAMPLES = "/metrics", "/api/samples"


class UnitedAnswers:
    """Owned by the event loop."""

    def __init__(self, app: web.Application, broker: WebServices, port: SharedPort) -> None:
        """Add the routes between workers to an application, and answer before the others."""
        self._broker, self._token = broker, port.token.text
        self._neighbours = Neighbours(port.paths, broker.node_id)
        self._others = frozenset(port.paths) - {broker.node_id}
        self._turns = {
            one: ConcurrencyLimiter(one.value, _RUNNING_MAX, _WAITING_MAX) for one in Turns
        }
        app[OTHER_WORKERS] = self._others
        app.middlewares.append(self.handle)
        app.router.add_get(ENDS, self._ends)

    async def close(self) -> None:
        """Close the connections to other workers."""
        for limiter in self._turns.values():
            limiter.close()
        await self._neighbours.close()

    @web.middleware
    async def handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request for all workers, or by the one that can."""
        resource = request.match_info.route.resource
        method = "GET" if request.method == "HEAD" else request.method
        route = ROUTES.get((method, resource.canonical), OWN) if resource is not None else OWN
        path = "" if resource is None else resource.canonical
        if is_private(request) or request.transport is None:
            return await handler(request)
        if route.is_private:
            raise Problem(404, f"{path} is for other workers of this machine")
        if route.has_leader and "partition" in request.query:
            leader = self._leader(request)
            if leader in self._others:
                return await self._neighbours.pass_on(request, leader)
            return await handler(request)
        if route.merge is None and path != _METRICS:
            return await handler(request)
        if route.turns is None:
            return await self._united(request, route, path, handler)
        async with self._turns[route.turns].turn(request) as turn:
            return await turn.send(request, await self._united(request, route, path, handler))

    async def state(self, own: Json) -> Json:
        """Return the state of all workers, for events; `own` is this one's."""
        headers = {"Authorization": f"Bearer {self._token}"}
        replies, absent = await self._neighbours.ask_all(
            sorted(self._others), "GET", URL("http://localhost/api/broker"), headers, _TICK_S
        )
        good = {node_id: one for node_id, one in replies.items() if one.status == HTTPStatus.OK}
        absent |= _refusals(replies.keys() - good.keys(), replies)
        own_id = self._neighbours.own_id
        by_id = {own_id: own, **{node_id: json.loads(one.body) for node_id, one in good.items()}}
        return merging.broker(Answers(by_id, absent=absent))

    # --- all workers --------------------------------------------------------------------------

    async def _united(
        self, request: web.Request, route: Route, path: str, handler: Handler
    ) -> web.StreamResponse:
        asked = self._asked(request, route)
        if not asked:
            return await handler(request)
        target = target_of(request)
        if path == _SAMPLES:
            since = request.query.get("since_ms", "")
            if since.isascii() and since.isdigit():
                target = target_of(request, since_ms=samples_since(int(since[:20])))
        replies, absent = await self._ask(request, asked, target, route)
        if route.asked is Asked.LEADER_OF_KEY and not absent and _all_ok(replies):
            only = replies[asked[0]] if len(asked) == 1 else None
            if only is not None and await asyncio.to_thread(_is_found, only):
                return _passed(only)
            others = [one for one in self._all() if one not in asked]
            more, absent = await self._ask(request, others, target, route)
            replies |= more
        beside: Mapping[int, Reply] = {}
        if route.has_ends:
            ends = target.with_path(ENDS)
            beside, away = await self._ask(request, self._all(), ends, route)
            absent = {**away, **absent}
        accepted = {
            node_id: one
            for node_id, one in replies.items()
            if one.status < HTTPStatus.BAD_REQUEST
            or (route.has_problems and one.status == HTTPStatus.SERVICE_UNAVAILABLE)
        }
        refused = {node_id: one for node_id, one in replies.items() if node_id not in accepted}
        if not accepted or (route.is_whole and (refused or absent)):
            return _refusal(refused, absent)
        absent |= _refusals(
            [one for one in refused if refused[one].status != HTTPStatus.NOT_FOUND], refused
        )
        if path == _METRICS:
            texts = {node_id: one.body for node_id, one in sorted(accepted.items())}
            text = await asyncio.to_thread(merge_metrics, texts)
            return Answer(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})
        leaders = self._leaders(request)
        query = dict(request.query)

        def make() -> web.Response:
            assert route.merge is not None
            parsed = {node_id: json.loads(one.body) for node_id, one in accepted.items()}
            also = {
                node_id: json.loads(one.body)
                for node_id, one in beside.items()
                if one.status == HTTPStatus.OK
            }
            body = route.merge(Answers(parsed, query, absent, leaders, also))
            status = max(one.status for one in accepted.values())
            if route.has_problems:
                status = 503 if body["problems"] else 200
            return answer(body, status)

        return await asyncio.to_thread(make)

    async def _ask(
        self, request: web.Request, asked: Collection[int], target: URL, route: Route
    ) -> tuple[dict[int, Reply], dict[int, str]]:
        method = "GET" if request.method == "HEAD" else request.method
        headers = headers_of(request)
        return await while_asked(
            request,
            self._neighbours.ask_all(asked, method, target, headers, route.patience_s),
        )

    def _all(self) -> list[int]:
        return [self._broker.node_id, *sorted(self._others)]

    def _asked(self, request: web.Request, route: Route) -> list[int]:
        """Return the workers to ask first; none when this one alone answers."""
        if route.asked is Asked.COORDINATOR:
            name = request.query.get("group")
            place = self._broker.groups.partition_of(name) if name else 0
            return self._only(CONSUMER_OFFSETS, place)
        if route.asked is Asked.LEADER_OF_KEY:
            number = self._partition_of_key(request)
            if number is None:
                return []
            return self._only(request.query["topic"], number) or self._all()
        return self._all()

    def _only(self, topic: str, number: int) -> list[int]:
        """Return the worker that leads a partition, none when there is no such worker."""
        found = self._broker.topics.get(topic)
        if found is None:
            return []
        leader = found.other_leader(number)
        if leader is None:
            return [self._broker.node_id]
        return [leader] if leader in self._others else []

    def _partition_of_key(self, request: web.Request) -> int | None:
        """Return the partition where Kafka's default partitioner puts the key of a request."""
        found = self._broker.topics.get(request.query.get("topic", ""))
        if found is None:
            return None
        try:
            key = parse_key(Parameters(request, request.query))
        except Problem:
            return None
        return partition_of_key(key, len(found.partitions))

    # --- one worker ---------------------------------------------------------------------------

    def _leader(self, request: web.Request) -> int:
        """Return the other broker that leads the partition of a request, -1 without one."""
        found = self._broker.topics.get(request.query.get("topic", ""))
        number = request.query["partition"]
        if found is None or not (number.isascii() and number.isdigit() and len(number) < 11):
            return -1
        leader = found.other_leader(int(number))
        return -1 if leader is None else leader

    def _leaders(self, request: web.Request) -> dict[int, int]:
        found = self._broker.topics.get(request.query.get("topic", ""))
        if found is None:
            return {}
        leaders = {number: found.other_leader(number) for number in range(len(found.partitions))}
        return {number: one for number, one in leaders.items() if one is not None}

    async def _ends(self, request: web.Request) -> web.Response:
        """Answer with the log start offset and the last stable offset of each partition."""
        ends: dict[str, list[tuple[int, int, int]]] = {}
        for at, log in enumerate(list(self._broker.logs()), 1):
            row = (log.partition, log.log_start_offset, log.last_stable_offset)
            ends.setdefault(log.topic, []).append(row)
            if at % _ENDS_AT_ONCE == 0:
                await asyncio.sleep(0)
        text = await asyncio.to_thread(json.dumps, {"ends": ends})
        return Answer(text=text, content_type="application/json")


def _is_found(reply: Reply) -> bool:
    """Return whether a key was found at once: then no other partition was looked at."""
    found = json.loads(reply.body)
    only = len(found["searched"]) == 1 and not found["offline"]
    return bool(only and found["status"] != "absent")


def _all_ok(replies: Mapping[int, Reply]) -> bool:
    return bool(replies) and all(one.status == HTTPStatus.OK for one in replies.values())


def _passed(reply: Reply) -> web.Response:
    return Answer(body=reply.body, status=reply.status, headers=reply.headers)


def _refusal(refused: Mapping[int, Reply], absent: Mapping[int, str]) -> web.Response:
    """Return the gravest refusal; without one, the answer that a worker is away."""
    if refused:
        return _passed(max(refused.values(), key=lambda one: one.status))
    message = "; ".join(Answers({}, absent=absent).away())
    raise Problem(503, f"{message}: try again", {"Retry-After": "1"})


def _refusals(node_ids: Collection[int], replies: Mapping[int, Reply]) -> dict[int, str]:
    """Return the errors of workers as the reasons why they have not answered."""
    reasons = {}
    for node_id in node_ids:
        reply = replies[node_id]
        try:
            found: Any = json.loads(reply.body)
        except ValueError:
            found = None
        has_error = isinstance(found, dict) and "error" in found
        reasons[node_id] = str(found["error"]) if has_error else f"status {reply.status}"
    return reasons
