"""Fetch sessions and limits beside Apache Kafka: the same script for both, the same answers.

A script is made from a seed: sessions that begin, go on, break the rules and end, while records
are appended and deleted, and topics come and go. What a request refers to by an id that the
broker has given out, a session or a topic, is a name in the script. Answers are compared field by
field and in their order.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import pytest

from odradek.protocol.compression import Codec
from odradek.protocol.frames import encode_request
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from odradek.protocol.wire import ZERO_UUID
from tests.broker.test_core_against_kafka import (
    STRANGER,
    Ids,
    Make,
    Peer,
    compare,
    fetching,
    list_offsets,
    peers,
    produce,
    records,
)
from tests.support.frames import read_frame, response_to
from tests.support.requests import creatable, creating, listing_offsets
from tests.support.waiting import wait_until

__all__ = ["peers"]
pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(400)]

IDS_SINCE, REPLICA_STATE_SINCE, SESSIONS_SINCE, LAST = 13, 15, 7, 18
STEPS = 700
TOPICS = ("orders", "small", "compacted")
PASSING = "passing"  # is deleted and created again
PARTITIONS = 3
UNKNOWN_SERVER_ERROR = -1
# No connection here waits for ten minutes.
WAIT_MS, NEVER_MS = 1_000, 600_000


@dataclass(frozen=True)
class Ask:
    """A request of a script; topics are named, ids are looked up by whoever sends it."""

    version: int
    session: str | None  # a name; None stands for no session at all
    epoch: int
    parts: tuple[tuple[str, FetchPartition], ...]
    forgotten: tuple[tuple[str, int], ...] = ()
    isolation: int = 0
    replica: int = -1
    max_bytes: int = 1 << 20
    min_bytes: int = 0
    wait_ms: int = 0
    begins: str | None = None  # the name for the session that it may begin


@dataclass
class Line:
    """One connection to a broker, the ids it gave out, and by what names they are known."""

    peer: Peer
    client: socket.socket
    sessions: dict[str, int] = field(default_factory=dict)
    topic_ids: dict[str, bytes] = field(default_factory=dict)

    def send(self, request: Any, version: int) -> Any:
        self.client.sendall(encode_request(request, version, 1, "x"))
        frame = read_frame(self.client)
        assert frame is not None
        return response_to(request, version, frame)

    def fetch(self, asked: Ask) -> Any:
        """Return the answer as plain data, without what differs by nature."""
        answer = self.send(self.request(asked), asked.version)
        if asked.begins is not None and answer.session_id:
            self.sessions[asked.begins] = answer.session_id
        return self.plain(answer)

    def request(self, asked: Ask) -> FetchRequest:
        by_state = asked.version >= REPLICA_STATE_SINCE
        return FetchRequest(
            replica_id=-1 if by_state else asked.replica,
            replica_state=ReplicaState(replica_id=asked.replica if by_state else -1),
            max_wait_ms=asked.wait_ms,
            min_bytes=asked.min_bytes,
            max_bytes=asked.max_bytes,
            isolation_level=asked.isolation,
            session_id=0 if asked.session is None else self.sessions.get(asked.session, 77),
            session_epoch=asked.epoch,
            topics=[
                FetchTopic(topic=bare(name), topic_id=self.id_of(name), partitions=[part])
                for name, part in asked.parts
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=bare(name), topic_id=self.id_of(name), partitions=[number])
                for name, number in asked.forgotten
            ],
            rack_id="rack",
        )

    def id_of(self, name: str) -> bytes:
        return self.topic_ids.get(name, STRANGER)

    def plain(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.plain(one) for one in value]
        if is_dataclass(value):
            return {
                one.name: self.name(one.name, getattr(value, one.name)) for one in fields(value)
            }
        return bytes(value) if isinstance(value, memoryview) else value

    def name(self, attribute: str, value: Any) -> Any:
        if attribute in ("port", "throttle_time_ms"):
            return None
        if attribute == "topic_id":
            names = {topic_id: name for name, topic_id in self.topic_ids.items()}
            return names.get(value, value)
        if attribute == "session_id":
            names_of_sessions = {number: name for name, number in self.sessions.items()}
            return names_of_sessions.get(value, value)
        return self.plain(value)


def bare(name: str) -> str:
    """Return a topic's name; `passing#2` is the second topic of that name."""
    return name.partition("#")[0]


@pytest.fixture
def lines(peers: tuple[Peer, Peer]) -> Iterator[tuple[Line, Line]]:
    ours, theirs = peers
    with ours.connect() as client, theirs.connect() as their_client:
        yield (
            Line(ours, client, topic_ids=dict(ours.ids)),
            Line(theirs, their_client, topic_ids=dict(theirs.ids)),
        )


class Script:
    """Draws requests that go on from what both brokers have answered."""

    def __init__(self, seed: int, lines: tuple[Line, Line]) -> None:
        self.random = random.Random(seed)
        self.lines = lines
        self.ends = {(name, at): 0 for name in TOPICS for at in range(PARTITIONS)}
        # The epoch and version that a session expects next.
        self.sessions: dict[str, tuple[int, int]] = {}
        self.begun = self.generation = 0
        self.is_there = False  # the passing topic

    def step(self) -> str:
        """Do the same to both; return what they differ in, or nothing."""
        kind = self.random.choices(
            ("append", "begin", "go on", "break", "end", "trim", "pass"),
            (30, 12, 60, 8, 4, 2, 1),
        )[0]
        match kind:
            case "append":
                return self.append()
            case "trim":
                return self.trim()
            case "pass":
                return self.create_or_delete()
            case "begin":
                return self.begin()
        if not self.sessions:
            return self.begin()
        name = self.random.choice(sorted(self.sessions))
        if kind == "go on":
            return self.go_on(name)
        return self.end(name) if kind == "end" else self.break_rules(name)

    def append(self) -> str:
        name, at = self.random.choice(sorted(self.ends))
        count = self.random.randint(1, 3)
        data = records(*[bytes(self.random.choice((10, 400)))] * count)
        self.ends[name, at] += count
        peers = self.lines[0].peer, self.lines[1].peer
        return "\n".join(compare(peers, "append", produce({bare(name): {at: data}}), 12))

    def trim(self) -> str:
        name, at = self.random.choice(sorted(self.ends))
        offset = self.random.randint(0, self.ends[name, at])
        partition = DeleteRecordsPartition(partition_index=at, offset=offset)
        topic = DeleteRecordsTopic(name=bare(name), partitions=[partition])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=20_000)
        ours, theirs = (line.plain(line.send(request, 2)) for line in self.lines)
        return "" if ours == theirs else f"{request}\n    we say {ours}\n    Kafka  {theirs}"

    def create_or_delete(self) -> str:
        """Create or delete the passing topic, and wait until both brokers know of it."""
        self.is_there = not self.is_there
        if self.is_there:
            self.generation += 1
            self.ends |= {(self.passing, at): 0 for at in range(PARTITIONS)}
        for line in self.lines:
            if self.is_there:
                made = line.send(creating(creatable(PASSING, PARTITIONS)), 7)
                line.topic_ids[self.passing] = made.topics[0].topic_id
            else:
                state = DeleteTopicState(name=PASSING, topic_id=ZERO_UUID)
                gone = DeleteTopicsRequest(topics=[state], topic_names=[], timeout_ms=10_000)
                line.send(gone, 6)
            self.settle(line)
        if not self.is_there:
            self.ends = {key: end for key, end in self.ends.items() if key[0] != self.passing}
        return ""

    @property
    def passing(self) -> str:
        return f"{PASSING}#{self.generation}"

    def settle(self, line: Line) -> None:
        wanted = listing_offsets({PASSING: range(PARTITIONS)})
        codes = {0} if self.is_there else {3}

        def is_known() -> bool:
            (topic,) = line.send(wanted, 7).topics
            return {one.error_code for one in topic.partitions} == codes

        wait_until(is_known, "the broker knows of the change")

    def begin(self) -> str:
        replaced = self.random.choice([None, *sorted(self.sessions)])
        self.begun += 1
        name = f"session {self.begun}"
        asked = replace(
            self.draw(self.random.randint(SESSIONS_SINCE, LAST), replaced, 0, most=8),
            begins=name,
            isolation=self.random.choice((0, 0, 1)),
        )
        found = self.ask(asked)
        if replaced is not None:
            del self.sessions[replaced]
        if name in self.lines[1].sessions:
            self.sessions[name] = 1, asked.version
        return found

    def go_on(self, name: str) -> str:
        epoch, version = self.sessions[name]
        if version >= IDS_SINCE:  # Kafka fails to tell older ones what those of 12 may ask for
            version = self.random.randint(IDS_SINCE, LAST)
        asked = self.draw(version, name, epoch, most=2)
        if self.random.random() < 0.5:
            asked = replace(asked, parts=())
        if self.random.random() < 0.2:
            asked = replace(asked, forgotten=tuple(self.draw_partition() for _ in range(2)))
        found = self.ask(asked)
        self.sessions[name] = epoch + 1, version
        if self.last_session == 0:  # it has no partitions any more
            del self.sessions[name]
        return found

    def break_rules(self, name: str) -> str:
        """Ask with another epoch, by other names, or for an isolation that does not exist."""
        epoch, version = self.sessions[name]
        asked = self.draw(version, name, epoch, most=2)
        match self.random.choice(("epoch", "names", "isolation", "session")):
            case "epoch":
                return self.ask(replace(asked, epoch=epoch + self.random.choice((1, 7, 1 << 30))))
            case "names":
                other = version - 7 if version >= IDS_SINCE else version + 6
                return self.ask(replace(asked, version=max(other, SESSIONS_SINCE)))
            case "session":
                return self.ask(replace(asked, session="unheard of"))
        found = self.ask(replace(asked, isolation=2))
        if self.last_code in (0, UNKNOWN_SERVER_ERROR):
            self.sessions[name] = epoch + 1, version
        return found

    def end(self, name: str) -> str:
        version = self.sessions.pop(name)[1]
        return self.ask(self.draw(version, name, -1, most=self.random.choice((0, 3))))

    def draw(self, version: int, session: str | None, epoch: int, *, most: int) -> Ask:
        parts = []
        for _ in range(self.random.randint(0, most)):
            name, at = self.draw_partition()
            end = self.ends.get((name, at), 0)
            somewhere = self.random.randint(-1, end + 1)
            part = FetchPartition(
                partition=at,
                fetch_offset=self.random.choice((end, end, end, 0, somewhere)),
                partition_max_bytes=self.random.choice((1 << 20, 1 << 20, 1 << 20, 300, 0, -1)),
                current_leader_epoch=self.random.choice((-1, -1, -1, 0, 1)),
                last_fetched_epoch=self.random.choice((-1, -1, -1, 0, 2)),
            )
            parts.append((name, part))
        return Ask(
            version,
            session,
            epoch,
            tuple(parts),
            isolation=self.random.choice((0, 0, 0, 1)),
            replica=self.random.choice((-1,) * 12 + (-2, -3, 1, 5)),
            max_bytes=self.random.choice((1 << 20, 1 << 20, 600, 0, -1)),
            min_bytes=self.random.choice((0, 1, -1)),
            wait_ms=self.random.choice((0, 0, 0, 0, -1, 20)),
        )

    def draw_partition(self) -> tuple[str, int]:
        generations = [f"{PASSING}#{number + 1}" for number in range(self.generation)]
        name = self.random.choice([*TOPICS, *TOPICS, *generations, "stranger"])
        return name, self.random.choice((0, 1, 2, 0, 1, 2, 3, -1))

    def ask(self, asked: Ask) -> str:
        ours, theirs = (line.fetch(asked) for line in self.lines)
        self.last_session, self.last_code = theirs["session_id"], theirs["error_code"]
        if ours == theirs:
            return ""
        return f"{asked}\n    we say {ours}\n    Kafka  {theirs}"


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.interop)])
def test_sessions(lines: tuple[Line, Line], seed: int) -> None:
    script = Script(seed, lines)
    script.ends = {key: log_end(lines[1], *key) for key in script.ends}
    for number in range(STEPS):
        found = script.step()
        assert not found, f"seed {seed} step {number}: {found}"
    if script.is_there:
        script.create_or_delete()


def log_end(line: Line, name: str, partition: int) -> int:
    (topic,) = line.send(list_offsets(name, (partition, -1))({}), 7).topics
    end: int = topic.partitions[0].offset
    return end


def of_replica(make: Make, replica_id: int, version: int) -> Make:
    def made(ids: Ids) -> FetchRequest:
        request: FetchRequest = make(ids)
        if version >= REPLICA_STATE_SINCE:
            request.replica_state = ReplicaState(replica_id=replica_id)
        else:
            request.replica_id = replica_id
        return request

    return made


@pytest.fixture
def filled(lines: tuple[Line, Line]) -> tuple[Peer, Peer]:
    """The peers with two batches in one partition of `zstd`, one in the next, none in the last."""
    both = lines[0].peer, lines[1].peer
    if log_end(lines[1], "zstd", 0) == 0:
        for at in (0, 0, 1):
            data = records(bytes(50), bytes(50), codec=Codec.ZSTD)
            assert not compare(both, "fill", produce({"zstd": {at: data}}), 12)
    return both


def test_any_replica_id_and_isolation_is_answered_as_by_kafka(filled: tuple[Peer, Peer]) -> None:
    found = []
    wanted = {"zstd": [(0, 0), (9, 0), (2, 0)], "nowhere": [(0, 0)]}
    for version in range(4, LAST + 1):
        for replica_id in (-9, -3, -2, 0, 1, 7):
            for isolation in (0, 1):
                make = fetching(wanted, isolation_level=isolation)
                made = of_replica(make, replica_id, version)
                found += compare(filled, f"replica {replica_id}", made, version)
        for make in (fetching(wanted, isolation_level=2), fetching({}, isolation_level=2)):
            found += compare(filled, "isolation 2", make, version)
    assert not found


# What is waited for, and whether it is there.
WAITED: Mapping[str, tuple[Make, bool]] = {
    "each may give 60 bytes": (
        fetching({"zstd": [(0, 0), (1, 0)]}, part_max=60, min_bytes=120, max_wait_ms=NEVER_MS),
        True,
    ),
    "they may not give more": (
        fetching({"zstd": [(0, 0), (1, 0)]}, part_max=60, min_bytes=121, max_wait_ms=WAIT_MS),
        False,
    ),
    "more than may come": (
        fetching({"zstd": [(2, 0)]}, max_bytes=0, min_bytes=5, max_wait_ms=NEVER_MS),
        True,
    ),
    "less than nothing": (
        fetching({"zstd": [(2, 0)]}, min_bytes=-5, max_wait_ms=NEVER_MS),
        True,
    ),
    "an error beside": (
        fetching({"zstd": [(2, 0), (0, 99)]}, min_bytes=1, max_wait_ms=NEVER_MS),
        True,
    ),
    "an unknown one beside": (
        fetching({"zstd": [(2, 0), (9, 0)]}, min_bytes=1, max_wait_ms=WAIT_MS),
        False,
    ),
}


@pytest.mark.parametrize("label", WAITED)
def test_a_fetch_waits_for_records_as_in_kafka(filled: tuple[Peer, Peer], label: str) -> None:
    make, is_there = WAITED[label]
    for peer in filled:
        begun = time.monotonic()
        peer.ask(make(peer.ids), 12)
        assert is_there or time.monotonic() - begun >= WAIT_MS / 1000
    assert not compare(filled, label, make, 12)


def test_list_offsets_for_whom_and_of_what(filled: tuple[Peer, Peer]) -> None:
    def asking(replica_id: int, isolation: int) -> Make:
        def make(ids: Ids) -> Any:
            wanted = (0, -1), (0, -2), (1, -2), (9, -1)
            request = list_offsets("zstd", *wanted, isolation=isolation)(ids)
            request.topics += list_offsets("zstd", (2, -1))(ids).topics
            request.topics += list_offsets("orders")(ids).topics
            request.replica_id, request.timeout_ms = replica_id, -5
            return request

        return make

    found = []
    for version in range(1, 12):
        for replica_id in (-3, -2, -1, 0, 1, 5):
            for isolation in (0, 1):
                make = asking(replica_id, isolation)
                found += compare(filled, f"replica {replica_id}", make, version)
        make = list_offsets("zstd", (0, -1), isolation=2)
        found += compare(filled, "isolation 2", make, version)
    assert not found
