"""odradek perf, on Odradek and on Apache Kafka: what is counted was there."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from odradek.cli.perf_roundtrip import _STAMP
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


def test_a_round_trip_begins_once_a_record_of_each_partition_has_come_back(
    commands: Commands,
) -> None:
    topic = fresh("load")
    commands.shown("topics", "create", topic, "--partitions", "3",
                   "--config", "message.timestamp.type=LogAppendTime")  # fmt: skip
    found = commands.document("perf", "roundtrip", "--topic", topic, "--records", "50")
    assert (found["records"], found["missing"]) == (50, 0)
    # The times when records were sent, in Unix time, are in their values.
    offset_s = time.time() - time.perf_counter()
    first_ms, sent_ms = {}, []
    for one in _records(commands, topic):
        value = base64.b64decode(one["value_base64"] or "")
        _, number, sent_s = _STAMP.unpack_from(value)
        if number >= 0:
            sent_ms.append((sent_s + offset_s) * 1000)
        else:
            first_ms[one["partition"]] = int(one["timestamp_ms"] or 0)
    assert len(first_ms) == 3 and len(sent_ms) == 50
    assert min(sent_ms) >= max(first_ms.values()) - 1  # of a clock in milliseconds


@pytest.mark.parametrize("load", ["produce", "consume", "roundtrip"])
def test_a_load_without_a_topic_has_one_of_its_own_and_deletes_it(
    load: str, commands: Commands
) -> None:
    found = commands.document("perf", load, "--records", "200", "--partitions", "2")
    assert found["records"] == 200
    assert found["topic"].startswith("odradek-perf-")
    assert found["topic"] not in commands.shown("topics", "list")


def test_a_topic_is_given_once_and_without_partitions(commands: Commands, topic: str) -> None:
    for wrong in (("--topic", topic), ("--partitions", "2")):
        result = commands.run("perf", "produce", topic, *wrong)
        assert result.exit_code == 2, result.output


def _interrupted(process: subprocess.Popen[bytes], is_under_way: Callable[[], bool]) -> Any:
    """Press Ctrl-C once a load is under way; return the document that it prints."""
    wait_until(is_under_way, "there are 20 records")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and errors == b""
    return json.loads(output)


def test_ctrl_c_deletes_the_topic_that_was_created(commands: Commands) -> None:
    process = commands.start("perf", "produce", "--seconds", "100", "--rate", "200",
                             "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip

    def own() -> list[str]:
        listed = commands.document("topics", "list")["topics"]
        return [one["topic"] for one in listed if one["topic"].startswith("odradek-perf-")]

    try:
        (name,) = wait_until(own, "there is a topic")
        document = _interrupted(process, lambda: len(_records(commands, name)) >= 20)
    finally:
        process.kill()
        process.wait()
    assert document["topic"] == name
    assert own() == []


def test_a_load_that_is_refused_is_reported(commands: Commands) -> None:
    topic = fresh("compacted")
    commands.shown("topics", "create", topic, "--compact")
    result = commands.run("perf", "produce", topic, "--keys", "0", "--records", "10")
    assert result.exit_code == 1 and "10 records were not delivered" in result.stderr


def test_ctrl_c_ends_a_load_and_shows_what_there_is(commands: Commands, topic: str) -> None:
    process = commands.start("perf", "produce", topic, "--seconds", "100", "--rate", "200",
                             "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    try:
        document = _interrupted(process, lambda: len(_records(commands, topic)) >= 20)
    finally:
        process.kill()
        process.wait()
    assert document["records"] == len(_records(commands, topic))
