"""Clients of other languages as programs: what they are told, and what they say.

Each folder beside this file holds one language's programs, each a real client library behind the
same three verbs. `make interop` builds them into `.interop`. Text is UTF-8; a null key or value is
null; times are milliseconds.

    produce BOOTSTRAP TOPIC CODEC        reads records, a JSON object a line, until its input ends;
                                         ends when all are acknowledged
        {"key": "k", "value": "v", "headers": [["name", "value"]], "timestamp_ms": 5}

    consume BOOTSTRAP TOPIC GROUP COUNT  joins the group; leaves it after COUNT records or when its
                                         input ends. Prints what it has at each assignment, and
                                         each record once its offset is committed
        {"assigned": [0, 2]}
        {"partition": 0, "offset": 7, "key": …, "value": …, "headers": …, "timestamp_ms": …}

    admin BOOTSTRAP                      reads requests, a JSON array a line; answers each by a
                                         line: unsupported says that the library has no call
        ["create-partitions", "topic", 4]
        {"answer": null} or {"error": "sentence"} or {"unsupported": true}

Some write in transactions, by two verbs more:

    transact BOOTSTRAP ID TIMEOUT_MS     answers requests as admin does
        ["begin"], ["send", "topic", 0, "key", "value"], ["commit"], ["abort"]

    copy BOOTSTRAP GROUP FROM TO ID      copies a topic, some records and their offsets in each
                                         transaction, until its input ends
        {"copied": 20}
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.compat.clients import Entry, Seen
from tests.support.waiting import wait_until

SOURCES = Path(__file__).resolve().parent
BUILDS = SOURCES.parent.parent / ".interop"
TIMEOUT_S = 90.0


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it is sent, or as it arrived."""

    key: str | None
    value: str | None
    headers: tuple[tuple[str, str], ...]
    timestamp_ms: int

    def line(self) -> str:
        """Return it as the programs read it."""
        fields = {"key": self.key, "value": self.value, "headers": self.headers}
        return json.dumps({**fields, "timestamp_ms": self.timestamp_ms}) + "\n"


@dataclass(frozen=True, slots=True)
class Arrived:
    """A record, and where it was."""

    partition: int
    offset: int
    record: Record


class UnsupportedByClient(Exception):
    """The library has no call for what it was asked."""


class RefusedByClient(Exception):
    """The library answered with an error."""


class Process:
    """A running program, whose lines are there to wait for."""

    def __init__(self, command: Sequence[str]) -> None:
        # A file, not a pipe: nobody need read it for the program to go on.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
        )
        self._changed = threading.Condition()
        self._lines: list[Any] = []
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def lines(self) -> list[Any]:
        """Return what it has said so far."""
        with self._changed:
            return list(self._lines)

    def tell(self, line: str) -> None:
        """Give it a line to read."""
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def wait_for_lines(self, count: int) -> list[Any]:
        """Return its lines once there are so many."""
        with self._changed:
            enough = self._changed.wait_for(
                lambda: len(self._lines) >= count or self._ended, TIMEOUT_S
            )
        if not enough or len(self._lines) < count:
            raise AssertionError(f"{len(self._lines)} of {count} lines; {self.errors()}")
        return self.lines()

    def wait(self) -> list[Any]:
        """Return its lines once it has ended by itself, well."""
        try:
            status = self._process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it goes on; {self.errors()}") from None
        self._reader.join()
        assert status == 0, f"it ended with {status}; {self.errors()}"
        return self.lines()

    def end_input(self) -> None:
        """Close what it reads."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def close(self) -> None:
        """End it, if it has not ended."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # It ended before it had read everything.
            self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()

    def errors(self) -> str:
        """Return what it has said of its troubles, and whether it runs."""
        self._errors.seek(0)
        return f"status {self._process.poll()}, standard error:\n{self._errors.read()[-4000:]}"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer in a group."""

    process: Process

    @property
    def assigned(self) -> frozenset[int] | None:
        """The partitions that it has now, None before the first assignment."""
        told = [line["assigned"] for line in self.process.lines() if "assigned" in line]
        return frozenset(told[-1]) if told else None

    @property
    def arrived(self) -> list[Arrived]:
        """The records that it has seen so far."""
        return [_arrived(line) for line in self.process.lines() if "offset" in line]

    def leave(self) -> None:
        """Have it leave its group, and wait until it has."""
        self.process.end_input()
        self.process.wait()


@dataclass(frozen=True, slots=True)
class Admin:
    """An administrator's connection."""

    process: Process

    def ask(self, *request: object) -> Any:
        """Ask, and return the answer."""
        told = len(self.process.lines())
        self.process.tell(json.dumps(request) + "\n")
        reply = self.process.wait_for_lines(told + 1)[told]
        if "unsupported" in reply:
            raise UnsupportedByClient(request[0])
        if "error" in reply:
            raise RefusedByClient(reply["error"])
        return reply["answer"]


@dataclass(frozen=True, slots=True)
class Program:
    """A client library as a program; fits the Client of tests/compat."""

    name: str
    tools: tuple[str, ...]  # what building and running it takes
    built: str  # in BUILDS; absent until it is built
    command: tuple[str, ...]
    lacks: frozenset[str] = frozenset()  # the requests for which the library has no call
    headers: str = ""  # what the system may lack to compile it; unbuilt, it is skipped

    def why_absent(self) -> str | None:
        """Say why the client cannot run here, None when it can."""
        missing = [tool for tool in self.tools if shutil.which(tool) is None]
        if self.headers and not missing and not (BUILDS / self.built).exists():
            return f"not built, which takes {self.headers}"
        return f"not installed: {', '.join(missing)}" if missing else None

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Create a topic."""
        with self.admin(bootstrap) as admin:
            admin.ask("create-topic", topic, partitions, {})

    def produce(self, bootstrap: str, topic: str, codec: str, entries: Sequence[Entry]) -> None:
        """Produce keys and values that were sent just now."""
        now_ms = time.time_ns() // 1_000_000
        self.send(bootstrap, topic, codec, [Record(k, v, (), now_ms) for k, v in entries])

    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> list[Seen]:
        """Consume `count` records as a member of a group, and commit."""
        with self.member(bootstrap, topic, group, count) as member:
            member.process.wait()
            return [
                Seen(one.partition, one.offset, str(one.record.key), str(one.record.value))
                for one in member.arrived
            ]

    def send(self, bootstrap: str, topic: str, codec: str, records: Sequence[Record]) -> None:
        """Produce records in order, and wait for all acknowledgements."""
        with self._running("produce", bootstrap, topic, codec) as process:
            for record in records:
                process.tell(record.line())
            process.end_input()
            process.wait()

    @contextlib.contextmanager
    def member(
        self, bootstrap: str, topic: str, group: str, count: int = 1_000_000_000
    ) -> Iterator[Member]:
        """Run a consumer that ends by itself after `count` records."""
        with self._running("consume", bootstrap, topic, group, str(count)) as process:
            yield Member(process)

    @contextlib.contextmanager
    def admin(self, bootstrap: str) -> Iterator[Admin]:
        """Run an administrator."""
        with self._running("admin", bootstrap) as process:
            yield Admin(process)

    @contextlib.contextmanager
    def transactional(
        self, bootstrap: str, transactional_id: str, timeout_ms: int = 30_000
    ) -> Iterator[Admin]:
        """Run a transactional producer."""
        with self._running("transact", bootstrap, transactional_id, str(timeout_ms)) as process:
            yield Admin(process)

    def copier(
        self, bootstrap: str, group: str, source: str, target: str, transactional_id: str
    ) -> contextlib.AbstractContextManager[Process]:
        """Run what copies a topic exactly once."""
        return self._running("copy", bootstrap, group, source, target, transactional_id)

    @contextlib.contextmanager
    def _running(self, *arguments: str) -> Iterator[Process]:
        assert (BUILDS / self.built).exists(), f"{self.name} is not built: run `make interop`"
        command = [part.replace("{builds}", str(BUILDS)) for part in self.command]
        process = Process([*command, *arguments])
        try:
            yield process
        finally:
            process.close()


def wait_for_members(condition: Callable[[], bool], members: Sequence[Member]) -> None:
    """Wait until what members say makes a condition true."""
    wait_until(
        condition,
        patience_s=TIMEOUT_S,
        shown=lambda: "\n".join(f"{one.assigned} {one.process.errors()}" for one in members),
    )


def _arrived(line: dict[str, Any]) -> Arrived:
    headers = tuple((name, value) for name, value in line["headers"])
    record = Record(line["key"], line["value"], headers, line["timestamp_ms"])
    return Arrived(line["partition"], line["offset"], record)


def _java(version: str) -> Program:
    path = f"{{builds}}/java-{version}/classes:{{builds}}/java-{version}/libs/*"
    return Program(
        f"java-{version}",
        ("java", "mvn"),
        f"java-{version}/classes/interop/Main.class",
        ("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", path, "interop.Main"),
    )


PROGRAMS = (
    Program("franz-go", ("go",), "franz", ("{builds}/franz",)),
    Program("sarama", ("go",), "sarama", ("{builds}/sarama",)),
    Program(
        "kafkajs",
        ("node", "npm"),
        "kafkajs/.ready",
        ("node", "{builds}/kafkajs/program.js"),
        frozenset({"alter-configs"}),
    ),
    Program(
        "confluent-javascript",
        ("node", "npm"),
        "confluent/.ready",
        ("node", "{builds}/confluent/program.js"),
        frozenset({"describe-cluster", "describe-configs", "alter-configs", "create-partitions"}),
        headers="lib{ssl,curl4-openssl,zstd}-dev, zlib1g-dev and a C++ compiler",
    ),
    Program(
        "rdkafka",
        ("cargo",),
        "rdkafka/release/interop",
        ("{builds}/rdkafka/release/interop",),
        frozenset({"alter-configs"}),
    ),
    _java("2.8"),
    _java("3.9"),
    _java("4.3"),
)


def _python(name: str, module: str) -> Program:
    command = (sys.executable, "-m", f"tests.interop.python.{module}")
    return Program(name, (), "..", command)


TRANSACTORS = (
    _python("confluent-kafka", "with_librdkafka"),
    _python("aiokafka", "with_aiokafka"),
    *(program for program in PROGRAMS if program.name.startswith(("franz", "java"))),
)
