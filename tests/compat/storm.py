"""A group whose members come, leave and die at random, and a broker that restarts meanwhile.

Each member is a process: a real client behind one program, told

    BOOTSTRAP GROUP TOPIC PROTOCOL SESSION_MS INSTANCE

INSTANCE is empty for a dynamic member. It leaves on SIGTERM. It says a line for all that it does,
with the nanoseconds of the machine's monotonic clock:

    own TIME PARTITION OFFSET         it has the partition, and goes on from the committed offset,
                                      which it asked for after TIME
    lost TIME PARTITION               it has given the partition up
    read TIME PARTITION FIRST NEXT    it has processed the records in between
    done TIME PARTITION OFFSET        the broker has acknowledged its commit

What must hold whatever happens is checked from these lines afterwards.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import OdradekProcess
from tests.support.waiting import wait_until

TOPIC, GROUP = "storm", "storm-group"
SESSION_MS = 6_000
DRAIN_S = 120.0
_SAID = frozenset({"own", "lost", "read", "done"})
END_S = 60.0

Command = Callable[[str], Sequence[str]]
"""How to run a member, by the name of the protocol that the group is to speak."""


class Event(NamedTuple):
    """What a member has said, and which one it was."""

    time: int
    member: int
    what: str
    partition: int
    numbers: tuple[int, ...]


@dataclass
class Member:
    """A running member, and what it has said so far."""

    number: int
    instance: str
    process: subprocess.Popen[str]
    events: list[Event] = field(default_factory=list)
    ended_at: int | None = None

    def __post_init__(self) -> None:
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            what, *numbers = line.split() or [""]
            if what in _SAID:  # else it is the library's log
                at, partition, *rest = map(int, numbers)
                self.events.append(Event(at, self.number, what, partition, tuple(rest)))

    def end(self, how: signal.Signals) -> None:
        """End it: with SIGTERM it leaves, with SIGKILL it dies."""
        self.process.send_signal(how)
        self.process.wait(END_S)
        self.ended_at = time.monotonic_ns()
        self._reading.join(END_S)


class Storm:
    """Owns the members, the records that flow, and the broker's fate."""

    def __init__(
        self,
        broker: OdradekProcess,
        command: Command,
        protocol: str,
        *,
        seed: int,
        members_max: int,
        partitions: int,
    ) -> None:
        self.broker, self._command, self._protocol = broker, command, protocol
        self._random = Random(seed)
        self._members_max, self._partitions = members_max, partitions
        self.running: list[Member] = []
        self.ended: list[Member] = []
        self._flows = True

    def rage(self, duration_s: float) -> None:
        """Let members come and go while records flow; then let those that are left read all."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, self._partitions, 1)])[TOPIC].result(30)
        flow = threading.Thread(target=self._produce)
        flow.start()
        try:
            self._happen(duration_s)
        finally:
            self._flows = False
            flow.join(END_S)
        if not self.running:
            self._come()
        ends = self._ends()
        self._drain(ends)
        for member in list(self.running):
            self._end(member, signal.SIGTERM)
        events = sorted(event for member in self.ended for event in member.events)
        check(events, {member.number: member.ended_at or 0 for member in self.ended}, ends)

    def end(self) -> None:
        """End what is left, after a failure."""
        for member in list(self.running):
            self._end(member, signal.SIGKILL)

    def _happen(self, duration_s: float) -> None:
        until = time.monotonic() + duration_s
        while time.monotonic() < until:
            match self._random.choice(("come", "come", "come", "leave", "die", "restart")):
                case "come" if len(self.running) < self._members_max:
                    self._come()
                case "leave" if self.running:
                    self._end(self._random.choice(self.running), signal.SIGTERM)
                case "die" if self.running:
                    self._end(self._random.choice(self.running), signal.SIGKILL)
                case "restart" if self._random.random() < 0.3:
                    self._random.choice((self.broker.stop, self.broker.kill))()
                    self.broker.start()
            time.sleep(self._random.uniform(0.1, 1.5))  # a random moment of a rebalance

    def _come(self) -> None:
        number = len(self.running) + len(self.ended)
        used = {member.instance for member in self.running}
        free = [name for name in ("", "", "", "static-1", "static-2") if name not in used - {""}]
        instance = self._random.choice(free)
        command = [
            *self._command(self._protocol),
            *(self.broker.bootstrap, GROUP, TOPIC, self._protocol, str(SESSION_MS), instance),
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.running.append(Member(number, instance, process))

    def _end(self, member: Member, how: signal.Signals) -> None:
        self.running.remove(member)
        self.ended.append(member)
        member.end(how)

    def _produce(self) -> None:
        """Write steadily; every record is acknowledged in the end, and once."""
        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        number = 0
        while self._flows:
            for _ in range(20):
                producer.produce(TOPIC, b"%d" % number, partition=number % self._partitions)
                number += 1
            producer.poll(0.05)
        assert producer.flush(DRAIN_S) == 0

    def _ends(self) -> dict[int, int]:
        reader = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "nobody"})
        ends = {
            partition: reader.get_watermark_offsets(TopicPartition(TOPIC, partition), 30)[1]
            for partition in range(self._partitions)
        }
        reader.close()
        return ends

    def _drain(self, ends: dict[int, int]) -> None:
        """Wait until the group has committed the end of each partition."""
        reader = Consumer(
            {"bootstrap.servers": self.broker.bootstrap, "group.id": GROUP, "log_level": 0}
        )
        wanted = [TopicPartition(TOPIC, partition) for partition in ends]
        wait_until(
            lambda: {one.partition: one.offset for one in reader.committed(wanted, 30)} == ends,
            "the group comes to the end",
            DRAIN_S,
        )
        reader.close()


def check(events: Sequence[Event], ended_at: dict[int, int], ends: dict[int, int]) -> None:
    """Check what members have said, in the order of time, against what must hold."""
    owner: dict[int, int] = {}
    committed: dict[int, int] = defaultdict(int)
    read: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        partition, member = event.partition, event.member
        match event.what:
            case "own":
                other = owner.get(partition)
                if other is not None and other != member:
                    has = f"{other} has partition {partition}: {event}"
                    assert ended_at[other] < event.time, has
                owner[partition] = member
                assert event.numbers[0] >= committed[partition], f"a commit is lost: {event}"
            case "lost":
                if owner.get(partition) == member:
                    del owner[partition]
            case "read":
                read[partition].append((event.numbers[0], event.numbers[1]))
            case "done":
                committed[partition] = max(committed[partition], event.numbers[0])
    for partition, end in ends.items():
        next_offset = 0
        for first, after in sorted(read[partition]):
            assert first <= next_offset, f"{partition}: nobody has read from {next_offset}"
            next_offset = max(next_offset, after)
        assert next_offset == end, f"partition {partition} is read to {next_offset} of {end}"
