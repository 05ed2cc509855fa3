"""odradek logdirs, on Odradek and on Apache Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.processes import KafkaProcess
from tests.cli.commands import Commands, fresh
from tests.cli.conftest import AnyBroker
from tests.conftest import starting
from tests.support.forking import ForkedOdradek
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("brokers")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(ForkedOdradek, id="odradek"),
        pytest.param(KafkaProcess, id="kafka", marks=pytest.mark.kafka),
    ],
)
def broker(request: pytest.FixtureRequest, folder: Path) -> Iterator[AnyBroker]:
    """Run one broker of each kind with two log directories."""
    homes = [str(folder / request.param.__name__ / name) for name in ("first", "second")]
    starts = starting(request.param, folder / request.param.__name__)
    yield next(starts)({"log.dirs": ",".join(homes)})
    assert next(starts, None) is None


@pytest.fixture
def topic(commands: Commands) -> str:
    name = fresh("orders")
    commands.shown("topics", "create", name, "--partitions", "2")
    commands.shown("produce", name, "--partition", "0", text="a\n")
    return name


def _places(commands: Commands, topic: str) -> dict[int, str]:
    """Return the name of the directory of each partition."""
    return {
        one["partition"]: Path(home["log_dir"]).name
        for home in _homes(commands, "--topic", topic)
        for one in home["replicas"]
        if not one["is_future"]
    }


def _homes(commands: Commands, *arguments: str) -> list[dict[str, Any]]:
    (broker,) = commands.document("logdirs", "describe", *arguments)["brokers"]
    found: list[dict[str, Any]] = broker["log_dirs"]
    return found


def test_directories_and_sizes_are_described(commands: Commands, topic: str) -> None:
    first, second = _homes(commands, "--topic", topic)
    assert Path(first["log_dir"]).name == "first" and Path(second["log_dir"]).name == "second"
    for home in (first, second):
        assert home["total_bytes"] > home["usable_bytes"] > 0
        assert home["error"] is None and not home["is_cordoned"]
    (written, empty) = sorted(
        [*first["replicas"], *second["replicas"]], key=lambda one: one["partition"]
    )
    assert written["size_bytes"] > 0 and empty["size_bytes"] == 0
    assert {one["topic"] for one in (written, empty)} == {topic}
    shown = commands.shown("logdirs", "describe", "--broker", "1")
    assert re.search(rf"^{topic} +0 +1 +\d+ B +0 +/\S+$", shown, re.M)
    other = fresh("other")
    commands.shown("topics", "create", other)
    assert other not in commands.shown("logdir", "describe", "--topic", topic)


def test_a_replica_is_moved(commands: Commands, topic: str) -> None:
    before = _places(commands, topic)
    other = "second" if before[0] == "first" else "first"
    (target,) = (
        home["log_dir"] for home in _homes(commands) if Path(home["log_dir"]).name == other
    )
    move = ("logdirs", "move", topic, "--broker", "1", "--to", target)
    assert commands.document(*move, "-p", "0") == {
        "broker": 1,
        "log_dir": target,
        "moves": [{"topic": topic, "partition": 0}],
    }
    wait_until(lambda: _places(commands, topic) == {**before, 0: other}, "it is moved")
    shown = commands.shown(*move)
    assert shown == f"{topic}: 2 replicas on the way to {target} of broker 1\n"
    wait_until(lambda: set(_places(commands, topic).values()) == {other}, "both are moved")
    assert commands.shown("consume", topic, "--to", "end", "-p", "0") == "a\n"


def test_mistakes_get_one_line(commands: Commands, topic: str) -> None:
    move = ("logdirs", "move", topic, "--broker")
    line = commands.refusal(*move, "1", "--to", "/elsewhere")
    assert line.startswith("odradek: broker 1 has no log directory /elsewhere: it has /")
    assert commands.refusal(*move, "7", "--to", "/elsewhere").endswith("the brokers are 1")
    line = commands.refusal("logdirs", "describe", "--topic", f"{topic}x")
    assert f"there is no topic {topic}x: did you mean" in line
