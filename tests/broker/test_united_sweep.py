"""Every route at the port of two workers, against logs that unpack to very much.

The bounds of a single broker (test_web_sweep.py) hold for each worker: of time on its event loop
and of memory, though it merges the answers of both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import uvloop

from tests.broker.memory import peak_bytes_of, reset_peak_of
from tests.broker.test_web_sweep import (
    ANSWER_BYTES_MAX,
    GROWTH_MAX_BYTES,
    LOOP_CPU_MAX_S,
    ROUTES,
    TIMEOUT_S,
    WITHOUT_BODY,
    World,
    ask,
    is_answered,
    path_of,
    seed,
)
from tests.broker.workers import Workers, workers
from tests.support.waiting import wait_for_http

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ALL_AT_ONCE = 2


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    path = tmp_path_factory.mktemp("workers")
    routes = uvloop.run(seed(path))
    settings = {
        "log.cleaner.backoff.ms": "600000",
        "log.cleaner.delete.retention.ms": "1",
        # A search on a busy machine does not cost a worker its session.
        "broker.session.timeout.ms": "60000",
    }
    broker = workers(path, ALL_AT_ONCE, settings)
    broker.start()
    wait_for_http(broker, "/health/ready", patience_s=TIMEOUT_S)
    token = (broker.data / "odradek-admin-token").read_text().strip()
    made = World(broker, token, routes)
    for _ in range(4):  # at each worker
        for route in ("/metrics", "/api/records?topic=tiny-records", "/api/topics"):
            ask(made, "GET", route)
        ask(made, "GET", "/api/cleaner/plan?topic=values")
    yield made
    broker.stop()
    assert "Traceback" not in broker.log_text()


def loop_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def check(world: World, method: str, target: str) -> int:
    """Ask, and hold what it takes of each worker to the bounds; return the status."""
    assert isinstance(world.broker, Workers)
    pids = [world.broker.pid_of(node_id) for node_id in world.broker.ports]
    before = [(loop_cpu_s(pid), reset_peak_of(pid)) for pid in pids]
    status, size_bytes = ask(world, method, target)
    assert size_bytes < ANSWER_BYTES_MAX, target
    for pid, (cpu_s, resident) in zip(pids, before, strict=True):
        took_s, grown = loop_cpu_s(pid) - cpu_s, peak_bytes_of(pid) - resident
        shown = f"{method} {target[:120]}: {status}, {took_s} s, {size_bytes:,} B, {grown:,} B"
        assert took_s < LOOP_CPU_MAX_S, shown
        assert grown < GROWTH_MAX_BYTES, shown
    return status


@pytest.mark.parametrize(("method", "path"), WITHOUT_BODY, ids="".join)
def test_stored_data_does_no_harm(world: World, method: str, path: str) -> None:
    for query in ROUTES[method, path]:
        status = check(world, method, f"{path_of(path)}?{urlencode(query)}")
        assert is_answered(path, status), query


@pytest.mark.parametrize(("method", "path"), ROUTES, ids="".join)
def test_no_parameter_does_harm(world: World, method: str, path: str) -> None:
    names = {name for query in ROUTES[method, path] for name in query} | {"unknown"}
    long = "9" * 7_500
    queries = [f"topic=wide&{name}={value}" for name in names for value in (long, "%ff%00" * 900)]
    for query in [*queries, "a&" * 3_500, "topic=wide&" * 700]:
        assert check(world, method, f"{path_of(path)}?{query}") < 500, query[:50]
