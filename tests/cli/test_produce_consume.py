"""odradek produce and consume, on Odradek and on Apache Kafka."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.cli.records import Consumed, Line, read_json, write_json
from odradek.protocol.partitioning import partition_of_key
from tests.cli.commands import Commands, fresh
from tests.cli.conftest import AnyBroker
from tests.cli.drawing import RECORDS
from tests.profiles import examples
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
PATIENCE_S = 60.0


# Timestamps here are of 1970: retention would delete them.
KEPT = ("--partitions", "1", "--config", "retention.ms=-1")


@pytest.fixture
def topic(commands: Commands) -> str:
    name = fresh("prices")
    commands.shown("topics", "create", name, *KEPT)
    return name


def _read(commands: Commands, *arguments: str) -> list[dict[str, Any]]:
    shown = commands.shown("consume", *arguments, "--json")
    return [json.loads(line) for line in shown.splitlines()]


def _end(commands: Commands, topic: str) -> int:
    (one,) = commands.document("topics", "describe", topic)["topics"]
    end: int = one["partitions"][0]["end_offset"]
    return end


@contextmanager
def _running(commands: Commands, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    # Unbuffered: select() knows nothing of what a reader has taken already.
    process = commands.start(*arguments, stdout=pipe, stderr=pipe, bufsize=0)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], PATIENCE_S)[0]
    return process.stdout.readline()


def test_json_that_is_produced_is_consumed_the_same(broker: AnyBroker) -> None:
    commands, topic = Commands(broker.bootstrap), fresh("json")
    commands.shown("topics", "create", topic, *KEPT)

    @settings(max_examples=examples(15))
    @given(st.lists(RECORDS, min_size=1, max_size=20))
    def check(lines: list[Line]) -> None:
        start = _end(commands, topic)
        asked = [Consumed(topic, 0, 0, 1_000 + at, "create_time", one.key, one.value, one.headers)
                 for at, one in enumerate(lines)]  # fmt: skip
        text = b"".join(map(write_json, asked))
        done = commands.document("produce", topic, "--format", "json", text=text)
        assert done["delivered"] == len(lines) and done["error"] is None
        found = _read(commands, topic, "--from", str(start), "--to", "end")
        assert [one["offset"] for one in found] == list(range(start, start + len(lines)))
        again = [read_json(json.dumps(one).encode()) for one in found]
        assert again == [read_json(write_json(one)) for one in asked]

    check()


def test_lines_have_keys_headers_and_tombstones(commands: Commands, topic: str) -> None:
    shown = commands.shown("produce", topic, "--key-separator", ":", "--null-value", "NIL",
                           "--header", "from=a=b", text="p3:11:00\np3:NIL\np4:\n")  # fmt: skip
    assert shown == f"{topic}: 3 records delivered\n"
    text = ("--format", r"%k=%v %S %h\n", "--null-value", "null")
    assert commands.shown("consume", topic, "--to", "end", *text) == (
        "p3=11:00 5 from=a=b\np3=null -1 from=a=b\np4= 0 from=a=b\n"
    )
    found = _read(commands, topic, "--to", "end", "--key", "p3")
    assert [one["value"] for one in found] == ["11:00", None]


def test_values_come_from_a_file_with_one_key(
    commands: Commands, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "values"
    file.write_bytes(b"1\n\n\xff")
    commands.shown("produce", topic, "--file", str(file), "--key", "k", "--compression", "zstd")
    found = _read(commands, topic, "--to", "end")
    assert [one["key"] for one in found] == ["k"] * 3
    assert [one.get("value", one.get("value_base64")) for one in found] == ["1", "", "/w=="]


@settings(max_examples=examples(5))
@given(keys=st.lists(st.binary(min_size=1, max_size=12), min_size=30, max_size=30))
def test_a_key_goes_where_java_clients_put_it(keys: list[bytes], broker: AnyBroker) -> None:
    commands, topic = Commands(broker.bootstrap), fresh("keyed")
    commands.shown("topics", "create", topic, "--partitions", "7")
    asked = [Consumed(topic, 0, 0, 0, "none", key, b"", ()) for key in keys]
    lines = [json.loads(write_json(one)) for one in asked]
    text = "".join(json.dumps({k: v for k, v in one.items() if k != "partition"}) + "\n"
                   for one in lines)  # fmt: skip
    commands.shown("produce", topic, "--format", "json", text=text)
    for one in _read(commands, topic, "--to", "end"):
        key = read_json(json.dumps(one).encode()).key
        assert key is not None and one["partition"] == partition_of_key(key, 7)


def test_the_line_that_is_no_record_is_named_and_those_before_it_are_delivered(
    commands: Commands, topic: str
) -> None:
    line = commands.refusal("produce", topic, "--key-separator", ":", text="a:1\nb:2\nc\nd:4\n")
    assert "line 3: " in line and "2 records delivered before it" in line
    assert len(_read(commands, topic, "--to", "end")) == 2


def test_the_first_record_that_is_refused_is_named(commands: Commands) -> None:
    topic = fresh("compacted")
    commands.shown("topics", "create", topic, "--partitions", "1", "--compact")
    lines = '{"key": "a"}\n{"value": "no key"}\n{"value": "nor here"}\n'
    # One batch would be refused whole.
    one = ("-X", "batch.num.messages=1")
    line = commands.refusal("produce", topic, "--format", "json", *one, text=lines)
    assert "2 of 3 records" in line and "the first in line 2" in line and "needs a key" in line


def test_a_transaction_is_all_or_nothing(commands: Commands, topic: str) -> None:
    transaction = ("--transactional-id", fresh("loader"), "--key-separator", ":")
    assert "aborted" in commands.refusal("produce", topic, *transaction, text="a:1\nb\n")
    assert _read(commands, topic, "--to", "end") == []
    assert commands.shown("produce", topic, *transaction, text="a:1\nb:2\n")
    assert len(_read(commands, topic, "--to", "end")) == 2
    seen = _read(commands, topic, "--to", "end", "--isolation", "read_uncommitted")
    assert len(seen) == 3


def test_positions_are_where_they_say(commands: Commands, topic: str) -> None:
    lines = "".join(f'{{"value": "{at}", "timestamp_ms": {at + 1}000}}\n' for at in range(6))
    commands.shown("produce", topic, "--format", "json", text=lines)

    def values(*arguments: str) -> str:
        return commands.shown("consume", topic, *arguments).replace("\n", "")

    assert values("--to", "end") == "012345"
    assert values("--from", "4", "--to", "end") == "45"
    assert values("--from", "-2", "--to", "end") == "45"
    assert values("--from", "@3000", "--to", "end") == "2345"
    assert values("--from", "@1970-01-01T00:00:04.500Z", "--to", "end") == "45"
    assert values("--from", "1", "--to", "3") == "12"
    assert values("--to", "@4000") == "012"
    assert values("--count", "2") == "01"
    assert values("--from", "99", "--to", "end") == ""
    assert values("--from", "end", "--to", "end") == ""
    assert values("--from", "-99", "--to", "end", "--partition", "0") == "012345"
    assert "has no partition 1" in commands.refusal("consume", topic, "--partition", "1")


def test_a_group_goes_on_where_it_was(commands: Commands, topic: str) -> None:
    group = ("--group", fresh("billing"))
    commands.shown("produce", topic, text="1\n2\n3\n")
    assert commands.shown("consume", topic, *group, "--count", "2") == "1\n2\n"
    assert commands.shown("consume", topic, *group, "--to", "end") == "3\n"
    assert commands.shown("consume", topic, *group, "--to", "end") == ""


def test_follow_prints_what_comes_and_ends_with_ctrl_c(commands: Commands, topic: str) -> None:
    commands.shown("produce", topic, text="old\n")
    with _running(commands, "consume", topic) as process:
        assert _first_line(process) == b"old\n"
        commands.shown("produce", topic, text="new\n")
        assert _first_line(process) == b"new\n"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, output, errors) == (130, b"", b"")


def test_ctrl_c_commits_what_was_printed(commands: Commands, topic: str) -> None:
    group = fresh("billing")
    commands.shown("produce", topic, text="1\n2\n")
    with _running(commands, "consume", topic, "--group", group) as process:
        assert (_first_line(process), _first_line(process)) == (b"1\n", b"2\n")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130
    (described,) = commands.document("groups", "describe", group)["groups"]
    assert [one["committed_offset"] for one in described["offsets"]] == [2]


def test_a_reader_that_has_enough_ends_it_though_nothing_more_comes(
    commands: Commands, topic: str
) -> None:
    commands.shown("produce", topic, text="1\n2\n")
    with _running(commands, "consume", topic) as process:
        assert _first_line(process) == b"1\n"
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr.read() == b""
        process.stdout = open(os.devnull, "rb")  # noqa: PTH123, SIM115  for communicate()


def test_producing_as_a_stream_delivers_before_the_end(commands: Commands, topic: str) -> None:
    process = commands.start("produce", topic, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdin is not None
        process.stdin.write(b"1\n")
        process.stdin.flush()
        wait_until(lambda: _end(commands, topic) == 1, "the record is stored")
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
