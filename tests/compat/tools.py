"""Kafka's command line tools: those that end, in one process (ToolsOracle.java), and the
verifiable clients, which run on until they are told to end, in processes of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from bench.processes import java
from tests.support.java import program
from tests.support.waiting import wait_until

PROGRAM = Path(__file__).with_name("ToolsOracle.java")
# A tool that exits by itself is stopped by a security manager.
FLAGS = ("-Xmx512m", "-Djava.security.manager=allow")
TIMEOUT_S = 120.0
_TOOLS = "org.apache.kafka.tools."
CLASSES = {
    "topics": f"{_TOOLS}TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "offsets": f"{_TOOLS}GetOffsetShell",
    "delete-records": f"{_TOOLS}DeleteRecordsCommand",
    "log-dirs": f"{_TOOLS}LogDirsCommand",
    "groups": f"{_TOOLS}consumer.group.ConsumerGroupCommand",
    "share-groups": f"{_TOOLS}consumer.group.ShareGroupCommand",
    "compatibility": f"{_TOOLS}ClientCompatibilityTest",
    "versions": f"{_TOOLS}BrokerApiVersionsCommand",
    "quorum": f"{_TOOLS}MetadataQuorumCommand",
    "features": f"{_TOOLS}FeatureCommand",
    "metrics": f"{_TOOLS}ClientMetricsCommand",
    "all-groups": f"{_TOOLS}GroupsCommand",
    "cluster": f"{_TOOLS}ClusterTool",
    "elections": f"{_TOOLS}LeaderElectionCommand",
    "reassign": f"{_TOOLS}reassign.ReassignPartitionsCommand",
    "transactions": f"{_TOOLS}TransactionsCommand",
    "acls": f"{_TOOLS}AclCommand",
}
CLIENTS = {
    "perf": f"{_TOOLS}ProducerPerformance",
    "copy": f"{_TOOLS}TransactionalMessageCopier",
    "produce": f"{_TOOLS}VerifiableProducer",
    "consume": f"{_TOOLS}VerifiableConsumer",
    "share-consume": f"{_TOOLS}VerifiableShareConsumer",
}


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command has printed, and its exit status."""

    status: int
    out: str
    err: str = ""


@dataclass(slots=True)
class Tools:
    """A Java process that runs commands; owned by the test, which closes it."""

    process: subprocess.Popen[bytes] = field(
        default_factory=lambda: subprocess.Popen(
            program(PROGRAM, flags=FLAGS), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    )
    _numbers: count[int] = field(default_factory=count)
    _printed: dict[int, Printed] = field(default_factory=dict)

    def send(self, tool: str, arguments: Sequence[str]) -> int:
        """Begin a command; return its number."""
        assert self.process.stdin is not None
        number = next(self._numbers)
        line = "\t".join((str(number), CLASSES[tool], *arguments))
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        return number

    def answer(self, number: int) -> Printed:
        """Wait for the end of a command."""
        assert self.process.stdout is not None
        while number not in self._printed:
            head = self.process.stdout.readline()
            assert head, "the tools have ended"
            of, status, out, err = map(int, head.split())
            texts = [self.process.stdout.read(size).decode() for size in (out, err)]
            self._printed[of] = Printed(status, *texts)
        return self._printed.pop(number)

    def close(self) -> None:
        """End the process by ending its input."""
        self.process.communicate(timeout=60)


@dataclass(slots=True)
class Client:
    """A verifiable client that runs; whoever has started it ends it."""

    process: subprocess.Popen[bytes]
    printed: Path

    @staticmethod
    def start(tool: str, arguments: Sequence[str], printed: Path) -> Client:
        """Start a client that prints into a file."""
        flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        with printed.open("wb") as output:
            command = [*java(flags), CLIENTS[tool], *arguments]
            return Client(subprocess.Popen(command, stdout=output), printed)

    def wait_for(self, text: str) -> None:
        """Wait until it has printed a text."""
        what = f"{self.process.args!r} has printed {text}"

        def is_printed() -> bool:
            is_over = self.process.poll() is not None
            is_there = text in self.printed.read_text()
            assert is_there or not is_over, what
            return is_there

        wait_until(is_printed, what, TIMEOUT_S)

    def end(self) -> Printed:
        """Wait until it has ended by itself; return what it has printed."""
        status = self.process.wait(TIMEOUT_S)
        return Printed(status, self.printed.read_text())

    def stop(self) -> Printed:
        """End it as `kill` would."""
        self.process.terminate()
        return self.end()
