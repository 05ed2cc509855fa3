"""Every route over HTTP, against logs that unpack to very much and parameters of any size.

Whatever is stored and asked, a request takes the event loop little time, the broker little memory,
and its answer is of a size that a client can hold. The table of routes is compared with the
broker's own, so that a new route has to be added here.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import uvloop

from bench.processes import OdradekProcess
from odradek.broker.topics.plans import NewTopic
from tests.broker.hostile_logs import (
    KEY,
    MIB,
    TOPICS,
    UNPACKED_BYTES_MAX,
    WIDE,
    write_all,
)
from tests.broker.kafka_peer import Peer
from tests.broker.memory import peak_bytes, reset_peak
from tests.broker.web import serving
from tests.support.forking import ForkedOdradek
from tests.support.requests import committing
from tests.support.waiting import wait_for_http

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# The faults that this is about took the loop 6 to 24 seconds.
LOOP_CPU_MAX_S = 0.5
ANSWER_BYTES_MAX = 20 * MIB
# A few batches: as it was unpacked in pieces, and in one; and an answer, as text and as bytes.
GROWTH_MAX_BYTES = 5 * UNPACKED_BYTES_MAX
PLAIN_TOPICS = 100
GROUPS = 50
MANY_AT_ONCE = 40
# So long that nothing waits for it in vain, even on a busy machine.
TIMEOUT_S = 300
LONG = "9" * 7_500

Query = dict[str, str | int]


def each_topic(**query: str | int) -> list[Query]:
    return [{"topic": topic, **query} for topic in TOPICS]


# What to ask of each route: harmful data; and the parameters that it knows.
ROUTES: dict[tuple[str, str], list[Query]] = {
    ("GET", "/"): [{}],
    ("GET", "/page"): [{}],
    ("GET", "/metrics"): [{}],
    ("GET", "/health"): [{}],
    ("GET", "/health/live"): [{}],
    ("GET", "/health/ready"): [{}],
    ("GET", "/api/broker"): [{}],
    ("GET", "/api/samples"): [{}, {"since_ms": 0}],
    ("GET", "/api/events"): [{}],
    ("GET", "/api/cluster"): [{}],
    ("POST", "/api/cluster/rebalance"): [{}, {"between_hosts": "true"}],
    ("POST", "/api/cluster/drain"): [{"broker": 1}],
    ("GET", "/api/objects"): [{}],
    ("GET", "/api/topics"): [{}],
    ("GET", "/api/topic"): each_topic(),
    ("GET", "/api/groups"): [{}],
    ("GET", "/api/group"): [{"group": "group-0"}],
    ("GET", "/api/records"): [
        *each_topic(limit=1000),
        *each_topic(limit=1, search="k7", partition=0),
        *each_topic(key=KEY),
        *each_topic(search="is in none of them", before="0:900000"),
        *each_topic(filter="value == key && size(headers) > 5"),
    ],
    ("GET", "/api/configs"): [*each_topic(), {"broker": 1}],
    ("GET", "/api/offsets"): [*each_topic(), *each_topic(at_ms=1)],
    ("GET", "/api/acls"): [{}],
    ("GET", "/api/users"): [{}],
    ("GET", "/api/quotas"): [{}],
    ("GET", "/api/transactions"): [{}],
    ("GET", "/api/producers"): each_topic(),
    ("GET", "/api/latest"): [*each_topic(limit=1000), *each_topic(search="k77")],
    ("GET", "/api/get"): [
        *each_topic(key=KEY),
        *each_topic(key="k77777", value_bytes=10, isolation="read_uncommitted"),
        {"topic": WIDE, "key": "00", "key_format": "hex", "partition": 0},
    ],
    ("GET", "/api/cleaner"): [{}],
    ("GET", "/api/cleaner/plan"): [{}, {"exact": "false"}, *each_topic(partition=0)],
    ("GET", "/api/cleaner/why"): each_topic(partition=0),
    ("GET", "/api/cleaner/history"): each_topic(partition=0),
    ("GET", "/api/cleaner/runs"): [{}],
    ("POST", "/api/cleaner/run"): [{"topic": "headers", "wait": "true", "partition": 0}],
    ("POST", "/api/cleaner/retry"): each_topic(partition=0),
    ("POST", "/api/cleaner/verify"): [
        {"topic": topic, "dry_run": "true", "partition": 0}
        for topic in ("headers", "header-names", "tiny-records", "large-keys")
    ],
}

MANY = 3_000
# The bodies of actions: as large as they may be, and about the harmful data.
BODIES: dict[str, list[dict[str, Any]]] = {
    "/api/topics/create": [
        {"topic": "new", "configs": {f"no.such.{at}": "x" for at in range(MANY)}},
        {"topic": "new", "partitions": 100_000},
        {"topic": "x" * 60_000},
    ],
    "/api/topics/alter": [
        {"topic": "headers", "set": {f"no.such.{at}": "x" for at in range(MANY)}},
        {"topic": "headers", "delete": [f"no.such.{at}" for at in range(MANY)]},
        {"topic": "headers", "partitions": 100_000},
    ],
    "/api/topics/empty": [{"topic": topic} for topic in TOPICS],
    "/api/topics/delete": [{"topic": topic} for topic in TOPICS],
    "/api/records/produce": [
        {"topic": "plain-0", "key": "k" * 500_000, "value": "v" * 400_000},
        {"topic": "plain-0", "headers": {str(at): "x" for at in range(60_000)}},
    ],
    "/api/groups/reset": [
        {"group": "group-0", "topic": "plain-0", "to": "end", "partitions": [0] * 20_000},
        *({"group": "group-0", "topic": topic, "to": "@1"} for topic in TOPICS),
    ],
    "/api/groups/forget": [{"group": "group-0", "topic": "plain-0"}],
    "/api/groups/delete": [{"group": "group-0"}],
    "/api/acls/create": [
        {"principal": f"User:{'x' * 60_000}", "operation": "READ", "resource": "CLUSTER"}
    ],
    "/api/acls/delete": [{"principal": "User:x", "operation": "READ", "resource": "CLUSTER"}],
    "/api/users/create": [
        {"user": "u", "password": "p" * 60_000, "iterations": 16_384},
        {"user": "u", "password": "p", "mechanisms": ["SCRAM-SHA-256"] * 3_000},
    ],
    "/api/users/delete": [{"user": "u"}],
    "/api/login": [{"user": "u" * 8_000, "password": "p" * 8_000}],
    "/api/quotas/alter": [
        {"user": "u", "set": {f"no_such_{at}": "1" for at in range(MANY)}},
        {"user": "u", "delete": [f"no_such_{at}" for at in range(MANY)]},
    ],
    "/api/transactions/abort": [{"transactional_id": "x" * 60_000}],
    "/api/producers/abort": [{"topic": "plain-0", "partition": 0, "producer_id": 1}],
}
WITHOUT_BODY = list(ROUTES)
ROUTES |= {("POST", path): [{}] for path in BODIES}


@dataclass(frozen=True, slots=True)
class World:
    """A broker as a process, its token, and the routes of one like it."""

    broker: OdradekProcess
    token: str
    routes: frozenset[tuple[str, str]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    path = tmp_path_factory.mktemp("broker")
    routes = uvloop.run(seed(path))
    settings = {"log.cleaner.backoff.ms": "600000", "log.cleaner.delete.retention.ms": "1"}
    broker = ForkedOdradek(path, settings)
    broker.start()
    wait_for_http(broker, "/health/ready", patience_s=TIMEOUT_S)  # it makes the token
    token = (broker.data / "odradek-admin-token").read_text().strip()
    made = World(broker, token, routes)
    # What is loaded late is no part of what a request takes.
    for route in ("/metrics", "/api/records?topic=tiny-records", "/api/cleaner/plan?topic=values"):
        ask(made, "GET", route)
    yield made
    broker.stop()
    assert "Traceback" not in broker.log_text()


async def seed(path: Path) -> frozenset[tuple[str, str]]:
    """Fill a data directory by a broker in this process, and return that broker's routes."""
    async with serving(path) as broker:
        await write_all(broker)
        await broker.topics.create(
            [NewTopic(f"plain-{at}", 1, configs={}) for at in range(PLAIN_TOPICS)]
        )
        await asyncio.to_thread(commit, broker.server.listeners[0].port)
        assert broker.http.server is not None
        resources = broker.http.server._runner.app.router.routes()
        return frozenset(
            (one.method, one.resource.canonical)
            for one in resources
            if one.method != "HEAD" and one.resource is not None
        )


def commit(port: int) -> None:
    """Have groups commit offsets of all plain topics."""
    offsets = {f"plain-{at}": {0: 0} for at in range(PLAIN_TOPICS)}
    with Peer(port) as peer:
        for at in range(GROUPS):
            answered = peer.ask(committing(f"group-{at}", offsets, metadata="x" * 100), 8)
            assert answered.topics[0].partitions[0].error_code == 0


def ask(world: World, method: str, target: str, body: bytes = b"") -> tuple[int, int]:
    """Return the status and the size of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", world.broker.http_port, TIMEOUT_S)
    try:
        headers = {"Authorization": f"Bearer {world.token}"}
        connection.request(method, target, body, headers)
        response = connection.getresponse()
        if response.headers.get_content_type() == "text/event-stream":
            return response.status, len(response.readline())
        return response.status, len(response.read())
    finally:
        connection.close()


def loop_cpu_s(broker: OdradekProcess) -> float:
    """Return the processor time that a broker's event loop has taken: its first thread's."""
    assert broker.process is not None
    pid = broker.process.pid
    fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def check(world: World, method: str, target: str, body: bytes = b"") -> int:
    """Ask, and hold what it takes to the bounds; return the status."""
    cpu_s, resident = loop_cpu_s(world.broker), reset_peak(world.broker)
    status, size_bytes = ask(world, method, target, body)
    took_s = loop_cpu_s(world.broker) - cpu_s
    grown = peak_bytes(world.broker) - resident
    shown = f"{method} {target[:120]}: {status}, {took_s} s, {size_bytes:,} B, {grown:,} B grown"
    assert took_s < LOOP_CPU_MAX_S, shown
    assert size_bytes < ANSWER_BYTES_MAX, shown
    assert grown < GROWTH_MAX_BYTES, shown
    return status


def test_every_route_is_swept(world: World) -> None:
    assert set(ROUTES) == world.routes


def is_answered(path: str, status: int) -> bool:
    """Return whether a route has done what it was asked for; there is no authorizer."""
    return status in (200, 202, 409) or path == "/api/acls"


@pytest.mark.parametrize(("method", "path"), WITHOUT_BODY, ids="".join)
def test_stored_data_does_no_harm(world: World, method: str, path: str) -> None:
    for query in ROUTES[method, path]:
        status = check(world, method, f"{path_of(path)}?{urlencode(query)}")
        assert is_answered(path, status), query


@pytest.mark.parametrize("path", BODIES)
def test_no_action_does_harm(world: World, path: str) -> None:
    for body in BODIES[path]:
        for is_dry in (True, False):
            if is_dry or not path.startswith("/api/topics/"):  # later tests need the topics
                sent = json.dumps({**body, "dry_run": is_dry}).encode()
                assert check(world, "POST", path, sent) < 500, (path, is_dry)


@pytest.mark.parametrize(("method", "path"), ROUTES, ids="".join)
def test_no_parameter_does_harm(world: World, method: str, path: str) -> None:
    names = {name for query in ROUTES[method, path] for name in query} | {"unknown"}
    queries = [f"{name}={value}" for name in names for value in (LONG, "%ff%00" * 1_200)]
    queries += [f"topic=wide&{name}={LONG}" for name in names]
    queries += ["a&" * 3_500, "topic=wide&" * 700, "".join(f"a{at}=1&" for at in range(900))]
    for query in queries:
        assert check(world, method, f"{path_of(path)}?{query}") < 500, query[:50]


@pytest.mark.parametrize(("method", "path"), ROUTES, ids="".join)
def test_no_body_does_harm(world: World, method: str, path: str) -> None:
    for body in (b"[" * 900_000, bytes(900_000)):
        assert check(world, method, path_of(path), body) < 500


def test_many_at_once_take_the_memory_of_some(world: World) -> None:
    resident = reset_peak(world.broker)
    with ThreadPoolExecutor(MANY_AT_ONCE) as pool:
        target = "/api/get?topic=large-values&key=k"
        answers = list(pool.map(lambda _: ask(world, "GET", target), range(MANY_AT_ONCE)))
    statuses = Counter(status for status, _ in answers)
    assert set(statuses) == {200, 503}, statuses
    # Two look at a time; all others have answers, of which each is kept as text and as bytes.
    assert peak_bytes(world.broker) - resident < 3 * GROWTH_MAX_BYTES


def test_connections_keep_nothing_of_their_last_answers(world: World) -> None:
    target = "/api/get?topic=one-value&key=k"
    size_bytes = ask(world, "GET", target)[1]
    assert size_bytes > 6 * MIB
    resident = reset_peak(world.broker)
    with ExitStack() as stack:
        for _ in range(MANY_AT_ONCE):
            connection = http.client.HTTPConnection(
                "127.0.0.1", world.broker.http_port, TIMEOUT_S
            )
            stack.callback(connection.close)
            connection.request("GET", target)
            assert len(connection.getresponse().read()) == size_bytes
        assert peak_bytes(world.broker) - resident < MANY_AT_ONCE * size_bytes // 4


def path_of(path: str) -> str:
    """Return a path that a route answers."""
    return "/page/app.js" if path == "/page" else path
