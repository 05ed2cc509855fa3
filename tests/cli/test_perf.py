"""odradek perf, on Odradek and on Apache Kafka: what is counted was there."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from tests.cli.commands import Commands, fresh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(commands: Commands) -> str:
    name = fresh("load")
    commands.shown("topics", "create", name, "--partitions", "3")
    return name


def _records(commands: Commands, topic: str) -> list[dict[str, str | None]]:
    shown = commands.shown("consume", topic, "--to", "end", "--json")
    return [json.loads(line) for line in shown.splitlines()]


def test_the_reported_counts_match_the_topic(commands: Commands, topic: str) -> None:
    load = ("--records", "3001", "--keys", "50", "--tombstones", "0.2", "--size", "20",
            "--producers", "2", "--compression", "lz4")  # fmt: skip
    found = commands.document("perf", "produce", topic, *load)
    records = _records(commands, topic)
    assert found["records"] == len(records) == 3001 and found["refused"] == 0
    assert found["tombstones"] == sum(one["value"] is None for one in records) > 0
    sizes = [len(one["key"] or "") + len(one["value"] or "") for one in records]
    assert found["bytes"] == sum(sizes)
    assert {one["key"] for one in records} == {f"k{number}" for number in range(50)}
    latency = found["latency_ms"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["p999"] <= latency["max"]
    read = commands.document("perf", "consume", topic, "--consumers", "2")
    assert read["records"] == 3001
    assert read["bytes"] == sum(len(one["value"] or "") for one in records)
    assert commands.document("perf", "consume", topic, "--records", "10")["records"] == 10


def test_the_same_seed_sends_the_same_keys(commands: Commands) -> None:
    keys = []
    for _ in range(2):
        topic = fresh("load")
        commands.shown("topics", "create", topic, "--partitions", "1")
        zipf = ("--records", "500", "--distribution", "zipf:1.1", "--seed", "3")
        commands.shown("perf", "produce", topic, *zipf)
        keys.append([one["key"] for one in _records(commands, topic)])
    assert keys[0] == keys[1] and len(set(keys[0])) > 1


def test_a_rate_and_a_time_bound_a_load(commands: Commands, topic: str) -> None:
    found = commands.document("perf", "produce", topic, "--seconds", "1", "--rate", "500")
    assert 0 < found["records"] <= 520 and found["seconds"] < 10


def test_all_records_of_a_round_trip_come_back(commands: Commands, topic: str) -> None:
    commands.shown("produce", topic, text="of another\n")
    found = commands.document("perf", "roundtrip", topic, "--records", "200", "--rate", "400")
    assert (found["records"], found["missing"]) == (200, 0)
    assert found["latency_ms"]["p50"] > 0
    assert "Round trip" in commands.shown("perf", "roundtrip", topic, "--seconds", "0.3")


def test_a_load_that_is_refused_is_reported(commands: Commands) -> None:
    topic = fresh("compacted")
    commands.shown("topics", "create", topic, "--compact")
    result = commands.run("perf", "produce", topic, "--keys", "0", "--records", "10")
    assert result.exit_code == 1 and "10 records were not delivered" in result.stderr


def test_ctrl_c_ends_a_load_and_shows_what_there_is(commands: Commands, topic: str) -> None:
    process = commands.start("perf", "produce", topic, "--seconds", "100", "--rate", "200",
                             "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    try:
        wait_until(lambda: len(_records(commands, topic)) >= 20, "there are 20 records")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130 and errors == b""
    assert json.loads(output)["records"] == len(_records(commands, topic))
