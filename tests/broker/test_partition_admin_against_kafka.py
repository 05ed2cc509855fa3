"""The admin APIs of partitions and disks beside Apache Kafka: same requests, same answers.

Each request goes to both brokers over a socket, at every version; so do Kafka's own tools.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.processes import KafkaProcess, OdradekProcess, kafka_tool
from odradek.protocol.compiler import decode
from odradek.protocol.frames import encode_request, read_response_header
from odradek.protocol.messages import message_classes
from odradek.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from odradek.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from odradek.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from odradek.protocol.messages.unregister_broker import UnregisterBrokerRequest
from odradek.protocol.schema import info_of
from odradek.protocol.wire import ZERO_UUID
from tests.broker.live import batch
from tests.support.asking import create_topics
from tests.support.requests import creatable, producing
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

LONG = "x" * 245
NAMED = bytes(range(1, 17))
Process = OdradekProcess | KafkaProcess


class Peer:
    """A broker with two log directories."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.a, self.b = process.data / "a", process.data / "b"

    def ask(self, request: Any, version: int | None = None) -> Any:
        """Return the response to a request; None when the connection is closed instead."""
        cls = message_classes(type(request).__name__.removesuffix("Request"))[1]
        number = info_of(cls).versions.last if version is None else version
        with socket.create_connection(("127.0.0.1", self.process.port), 10) as connection:
            connection.settimeout(60)
            connection.sendall(encode_request(request, number, 1, "a-client"))
            size = _read(connection, 4)
            if not size:
                return None
            frame = memoryview(_read(connection, int.from_bytes(size, "big")))
        _, position = read_response_header(frame, cls, number)
        return decode(cls, number, frame, position)

    def home(self, topic: str, partition: int) -> Path:
        """Return the log directory that has a partition, and the other by its absence."""
        return self.a if (self.a / f"{topic}-{partition}").exists() else self.b


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            return b""
        data += more
    return data


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Peer, Peer]]:
    base = tmp_path_factory.mktemp("peers")
    processes: list[Process] = []
    made = []
    for kind in (OdradekProcess, KafkaProcess):
        directory = base / kind.__name__
        settings = {
            "node.id": "1",
            "log.dirs": f"{directory}/data/a,{directory}/data/b",
            "auto.create.topics.enable": "false",
            "max.request.partition.size.limit": "5",
        }
        processes.append(kind(directory, settings))
        made.append(Peer(processes[-1]))
    try:
        for process in processes:
            process.start()
        for peer in made:
            _fill(peer)
        yield made[0], made[1]
    finally:
        for process in processes:
            process.stop()


def _fill(peer: Peer) -> None:
    create_topics(peer, creatable("orders", 3), creatable("a.b", 2), "one", LONG)
    records = batch(b"a", b"b", b"c", timestamp=int(time.time() * 1000))  # else they expire
    request = producing("orders", records)
    wait_until(
        lambda: not peer.ask(request, 9).responses[0].partition_responses[0].error_code,
        "the records are appended",
    )


def normal(value: Any, key: str = "") -> Any:
    """Turn a response into plain values that do not depend on where it comes from."""
    if is_dataclass(value):
        return {one.name: normal(getattr(value, one.name), one.name) for one in fields(value)}
    if isinstance(value, list):
        # Neither broker promises an order, but where cursors depend on it.
        made = [normal(one) for one in value]
        return made if key == "topics" else sorted(made, key=repr)
    if key == "topic_id":
        return value != ZERO_UUID
    if key == "log_dir":
        return Path(value).name
    if key in ("total_bytes", "usable_bytes"):
        return value > 0
    if isinstance(value, str):
        return re.sub(r'cluster id "[^"]{22}"', "cluster id", value)
    return value


def differences(peers: tuple[Peer, Peer], request: Any) -> list[str]:
    """Ask both at every version; return where the answers differ."""
    versions = info_of(type(request)).versions
    found = []
    for version in range(versions.first, versions.last + 1):
        ours, theirs = (normal(peer.ask(request, version)) for peer in peers)
        if ours != theirs:
            found.append(f"v{version} {request}\n  ours  {ours}\n  Kafka {theirs}")
    return found


def elect(*partitions: tuple[str, list[int]], kind: int = 0, timeout_ms: int = 10_000) -> Any:
    wanted = [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in partitions]
    return ElectLeadersRequest(
        election_type=kind, topic_partitions=wanted, timeout_ms=timeout_ms
    )


def reassign(
    *topics: tuple[str, list[tuple[int, list[int] | None]]], timeout_ms: int = 10_000
) -> Any:
    return AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(partition_index=number, replicas=replicas)
                    for number, replicas in partitions
                ],
            )
            for name, partitions in topics
        ],
    )


def describe(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
    )


def voter(cluster: str | None, number: int, directory: bytes, *listeners: str) -> Any:
    return AddRaftVoterRequest(
        cluster_id=cluster,
        timeout_ms=1_000,
        voter_id=number,
        voter_directory_id=directory,
        listeners=[Listener(name=name, host="h", port=1) for name in listeners],
    )


GOOD_AND_BAD = [("orders", [0, 5, 0, -1]), ("nope", [0]), ("a/b", [])]
CURSORS = [
    ("orders", 0), ("orders", 2), ("orders", 3), ("orders", 9), ("orders", -1), ("nope", 0),
    ("", 0), ("a.c", 1), ("zzz", 4), ("a.b", 1), ("\U0001f600", 0),
]  # fmt: skip

REQUESTS: list[Any] = [
    *(elect(*GOOD_AND_BAD, kind=kind) for kind in (0, 1, 2, -1)),
    *(ElectLeadersRequest(election_type=kind, topic_partitions=None) for kind in (0, 1)),
    *(elect(kind=kind, timeout_ms=timeout) for kind in (0, 2) for timeout in (0, 1000)),
    *(elect(("orders", [0]), kind=kind, timeout_ms=0) for kind in (0, 2)),
    ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=-1),
    elect(("orders", [0]), ("orders", [1])),
    reassign(
        ("orders", [(0, [1]), (1, [2]), (2, []), (5, [1]), (-1, [1])]),
        ("nope", [(0, [1])]),
        ("nope", [(0, None)]),
        ("a.b", [(0, None), (1, [1, 1]), (7, None)]),
        ("one", [(0, [1, 2])]),
    ),
    reassign(("orders", [(0, [1]), (0, [2, 1]), (0, [-1]), (0, [3, 2])]), ("one", [])),
    reassign(),
    reassign(timeout_ms=0),
    reassign(("orders", [(0, [1])]), timeout_ms=0),
    reassign(("__cluster_metadata", [(0, [1])]), ("", [(0, [1])])),
    ListPartitionReassignmentsRequest(),
    ListPartitionReassignmentsRequest(
        timeout_ms=0,
        topics=[
            ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 9])
            for name in ("orders", "nope")
        ],
    ),
    *(describe(limit=limit) for limit in (2000, 1, 2, 3, 4, 6, 0, -1)),
    *(describe("orders", "nope", "a.b", "a/b", "one", limit=limit) for limit in range(7)),
    *(describe(cursor=cursor) for cursor in CURSORS),
    *(describe("orders", "nope", "one", "a.b", cursor=cursor) for cursor in CURSORS),
    describe("orders", "", "one"),
    describe("orders", "", cursor=("orders", 0)),
    describe("orders", "orders", "one"),
    describe("__cluster_metadata", "\u00e9", "\uffff", "\U0001f600"),
    UnregisterBrokerRequest(broker_id=2),
    UnregisterBrokerRequest(broker_id=-1),
    *(
        voter(cluster, number, directory, *listeners)
        for cluster in (None, "", "another")
        for number in (2, -1)
        for directory in (ZERO_UUID, NAMED)
        for listeners in ((), ("CONTROLLER",), ("X",), ("X", "CONTROLLER"))
    ),
    *(
        RemoveRaftVoterRequest(
            cluster_id=cluster, voter_id=number, voter_directory_id=directory
        )
        for cluster in (None, "another")
        for number in (1, 2, -1)
        for directory in (ZERO_UUID, NAMED)
    ),
]


def test_the_same_requests_get_the_same_answers(peers: tuple[Peer, Peer]) -> None:
    found = [one for request in REQUESTS for one in differences(peers, request)]
    assert not found, "\n".join(found)


def move(*wanted: tuple[Path | str, str, list[int]]) -> AlterReplicaLogDirsRequest:
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=str(path), topics=[AlterReplicaLogDirTopic(name=name, partitions=numbers)]
            )
            for path, name, numbers in wanted
        ]
    )


def test_moves_are_refused_alike(peers: tuple[Peer, Peer]) -> None:
    found = []
    for version in (1, 2):
        answers = []
        for peer in peers:
            a, here = peer.a, peer.home("orders", 0)
            asked = (
                move((here, "orders", [0]), (a, "nope", [0]), (a, "orders", [7, -1])),
                move(("/nowhere", "orders", [1]), ("relative", "orders", [2]), ("", "a.b", [0])),
                move((f"{a}/", "orders", [1]), (f"{a}/../a", "one", [0])),
                move((a, LONG, [0]), (a, "a/b", [0]), (a, "", [0])),
                move((a, LONG, [7]), ("/nowhere", LONG, [0]), ("/nowhere", "nope", [0])),
                move((a, "one", [])),
                move(),
            )
            answers.append([
                {
                    (result.topic_name, one.partition_index): one.error_code
                    for result in peer.ask(request, version).results
                    for one in result.partitions
                }
                for request in asked
            ])  # fmt: skip
        found += [
            f"v{version} ours {ours} Kafka {theirs}"
            for ours, theirs in zip(*answers, strict=True)
            if ours != theirs
        ]
    assert not found, "\n".join(found)


def logs(peer: Peer, version: int, topics: list[Any] | None) -> Any:
    """Return what DescribeLogDirs says, its logs without their directories."""
    response = peer.ask(DescribeLogDirsRequest(topics=topics), version)
    answer = normal(response)
    found = sorted(
        (topic["name"], *(one.values()))
        for result in answer["results"]
        for topic in result["topics"]
        for one in topic["partitions"]
    )
    for result in answer["results"]:
        del result["topics"]
    return answer, found


def test_log_directories_are_described_alike(peers: tuple[Peer, Peer]) -> None:
    asked: list[list[tuple[str, list[int]]] | None] = [
        None, [], [("orders", [])], [("orders", [0, 9, 0]), ("nope", [0])],
        [("orders", [1]), ("orders", [2]), ("one", [0])],
    ]  # fmt: skip
    for version in range(1, 6):
        for one in asked:
            topics = (
                None
                if one is None
                else [DescribableLogDirTopic(topic=name, partitions=n) for name, n in one]
            )
            ours, theirs = (logs(peer, version, topics) for peer in peers)
            assert ours == theirs, f"v{version} {one}"


def test_a_log_moves_alike(peers: tuple[Peer, Peer]) -> None:
    for peer in peers:
        here = peer.home("orders", 0)
        there = peer.b if here == peer.a else peer.a
        response = peer.ask(move((there, "orders", [0])))
        assert response.results[0].partitions[0].error_code == 0
        before, after = here / "orders-0", there / "orders-0"
        wait_until(
            lambda before=before, after=after: after.exists() and not before.exists(),  # type: ignore[misc]
            f"{peer.process} has moved the log",
        )
    ours, theirs = (logs(peer, 5, None) for peer in peers)
    assert ours == theirs


# --- Kafka's tools ----------------------------------------------------------------------------

TOOLS = "org.apache.kafka.tools"


def tool(peer: Peer, name: str, *arguments: str) -> str:
    """Run one of Kafka's tools; return what it prints, without what differs by nature."""
    command = [name, "--bootstrap-server", peer.process.bootstrap, *arguments]
    done = kafka_tool(command, check=False)
    text = re.sub(r"TopicId: \S+", "TopicId", done.stdout + done.stderr)
    return text.replace(str(peer.process.data), "DATA").replace(peer.process.bootstrap, "HOST")


@pytest.mark.parametrize(
    "arguments",
    [
        [f"{TOOLS}.TopicCommand", "--describe"],
        [f"{TOOLS}.TopicCommand", "--describe", "--topic", "orders"],
        [f"{TOOLS}.LeaderElectionCommand", "--election-type", "preferred",
         "--all-topic-partitions"],
        [f"{TOOLS}.LeaderElectionCommand", "--election-type", "unclean", "--topic", "orders",
         "--partition", "0"],
        [f"{TOOLS}.LeaderElectionCommand", "--election-type", "preferred", "--topic", "nope",
         "--partition", "0"],
        [f"{TOOLS}.reassign.ReassignPartitionsCommand", "--list"],
    ],
    ids=lambda arguments: " ".join(arguments[0].split(".")[-1:] + arguments[1:]),
)  # fmt: skip
def test_tools_print_the_same(peers: tuple[Peer, Peer], arguments: list[str]) -> None:
    ours, theirs = (sorted(tool(peer, *arguments).splitlines()) for peer in peers)
    assert ours == theirs


def test_the_tool_of_log_directories_prints_the_same(peers: tuple[Peer, Peer]) -> None:
    found = []
    for peer in peers:
        text = tool(peer, f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", "orders")
        (line,) = [one for one in text.splitlines() if one.startswith("{")]
        answer = json.loads(line)
        for broker in answer["brokers"]:
            partitions = [p for d in broker["logDirs"] for p in d.pop("partitions")]
            partitions.sort(key=lambda one: str(one["partition"]))
            broker["logDirs"].sort(key=lambda one: str(one["logDir"]))
            for directory in broker["logDirs"]:
                for key in ("totalBytes", "usableBytes"):
                    directory.pop(key, None)
            broker["partitions"] = partitions
        rest = [one for one in text.splitlines() if one != line]
        found.append((answer, rest))
    assert found[0] == found[1]


def _renamed(text: str, names: Mapping[str, str]) -> str:
    return re.sub("DATA/.", lambda found: names[found[0]], text)


def test_the_tool_of_reassignments_moves_between_directories(
    peers: tuple[Peer, Peer], tmp_path: Path
) -> None:
    command = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    transcripts = []
    for peer in peers:
        topics = tmp_path / "topics.json"
        topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "one"}]}))
        said = [
            tool(
                peer, command, "--generate", "--topics-to-move-json-file", str(topics),
                "--broker-list", "1",
            )
        ]  # fmt: skip
        here = peer.home("one", 0)
        there = peer.b if here == peer.a else peer.a
        plan = tmp_path / "plan.json"
        partition = {"topic": "one", "partition": 0, "replicas": [1], "log_dirs": [str(there)]}
        plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        said.append(tool(peer, command, "--execute", "--reassignment-json-file", str(plan)))
        wait_until(
            lambda peer=peer, there=there: peer.home("one", 0) == there,  # type: ignore[misc]
            f"the log has moved, after {said}",
        )
        said.append(tool(peer, command, "--verify", "--reassignment-json-file", str(plan)))
        names = {f"DATA/{here.name}": "HERE", f"DATA/{there.name}": "THERE"}
        transcripts.append([_renamed(one, names) for one in said])
    assert transcripts[0] == transcripts[1]
    assert "successfully" in transcripts[0][-1] or "is complete" in transcripts[0][-1]
