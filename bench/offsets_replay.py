"""How long until committed offsets can be read after a start? Odradek and Apache Kafka.

    python -m bench.offsets_replay [--groups N] [--offsets N] [--per-commit N] [--rounds N]

The same offsets are committed to both. Then each is started in turn, and two times are measured:
until its first answer, and until every group's last offset can be fetched; then all offsets are
checked. Needs Java and Kafka's jars (`make kafka`).
"""

from __future__ import annotations

import argparse
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from bench.pairs import Broker, summary
from bench.processes import KafkaProcess, OdradekProcess, lacks_kafka
from odradek.protocol.compiler import decode
from odradek.protocol.frames import encode_request, read_response_header
from odradek.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

_PER_TOPIC = 100
_IN_FLIGHT = 50
_TIMEOUT_S = 120.0


class Client:
    """One connection, on which several requests may be in flight."""

    def __init__(self, broker: Broker) -> None:
        self._socket = socket.create_connection(("127.0.0.1", broker.port), 30)
        self._stream = self._socket.makefile("rb")

    def send(self, request: Any, version: int) -> None:
        """Send a request."""
        self._socket.sendall(encode_request(request, version, 1, "bench"))

    def receive(self, answer: type, version: int) -> Any:
        """Return the next answer."""
        (size,) = struct.unpack(">i", self._stream.read(4))
        frame = self._stream.read(size)
        _, position = read_response_header(memoryview(frame), answer, version)
        return decode(answer, version, frame[position:])

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()


def commits(group: str, offsets: int, per_commit: int) -> Iterator[OffsetCommitRequest]:
    """Yield requests that commit a group's offsets, `per_commit` partitions at a time."""
    for start in range(0, offsets, per_commit):
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for number in range(start, min(start + per_commit, offsets)):
            by_topic.setdefault(f"t{number // _PER_TOPIC}", []).append(
                OffsetCommitRequestPartition(
                    partition_index=number % _PER_TOPIC,
                    committed_offset=number + 1,
                    committed_metadata="",
                )
            )
        topics = [OffsetCommitRequestTopic(name=n, partitions=p) for n, p in by_topic.items()]
        yield OffsetCommitRequest(group_id=group, member_id="", topics=topics)


def fill(broker: Broker, groups: Sequence[str], offsets: int, per_commit: int) -> None:
    """Create the topics, and commit the offsets."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = [NewTopic(f"t{number}", _PER_TOPIC, 1) for number in range(-(-offsets // _PER_TOPIC))]
    for created in admin.create_topics(wanted, operation_timeout=120).values():
        created.result()
    client = Client(broker)
    deadline = time.monotonic() + _TIMEOUT_S
    client.send(FindCoordinatorRequest(key=groups[0]), 1)
    client.receive(FindCoordinatorResponse, 1)
    while unloaded(client, groups, offsets):
        assert time.monotonic() < deadline, "the coordinator does not come"
        time.sleep(0.1)
    waiting = 0
    for group in groups:
        for request in commits(group, offsets, per_commit):
            client.send(request, 8)
            waiting += 1
            if waiting == _IN_FLIGHT:
                waiting -= _stored(client, waiting)
    _stored(client, waiting)
    client.close()


def _stored(client: Client, count: int) -> int:
    for _ in range(count):
        answer = client.receive(OffsetCommitResponse, 8)
        assert not any(p.error_code for topic in answer.topics for p in topic.partitions), answer
    return count


def unloaded(client: Client, groups: Sequence[str], offsets: int) -> list[str]:
    """Return the groups whose last offset cannot be fetched yet."""
    last = OffsetFetchRequestTopics(
        name=f"t{(offsets - 1) // _PER_TOPIC}", partition_indexes=[(offsets - 1) % _PER_TOPIC]
    )
    asked = [OffsetFetchRequestGroup(group_id=group, topics=[last]) for group in groups]
    client.send(OffsetFetchRequest(topics=None, groups=asked), 8)
    answer = client.receive(OffsetFetchResponse, 8)
    return [group.group_id for group in answer.groups if group.error_code]


def loading_time(broker: Broker, groups: Sequence[str], offsets: int) -> tuple[float, float]:
    """Start a broker; return the seconds to its first answer, and until all groups are loaded."""
    started = time.monotonic()
    broker.start()
    first_s = time.monotonic() - started
    client = Client(broker)
    waiting = list(groups)
    while waiting:
        assert time.monotonic() - started < _TIMEOUT_S, f"{len(waiting)} groups are not loaded"
        # One at a time, or the brokers would be busy with answers.
        if unloaded(client, waiting[-1:], offsets):
            time.sleep(0.01)
        else:
            waiting.pop()
    all_s = time.monotonic() - started
    _check(client, groups, offsets)
    client.close()
    return first_s, all_s


def _check(client: Client, groups: Sequence[str], offsets: int) -> None:
    for group in groups:
        asked = [OffsetFetchRequestGroup(group_id=group, topics=None)]
        client.send(OffsetFetchRequest(topics=None, groups=asked), 8)
        answer = client.receive(OffsetFetchResponse, 8)
        found = {
            int(topic.name[1:]) * _PER_TOPIC + p.partition_index: p.committed_offset
            for topic in answer.groups[0].topics
            for p in topic.partitions
        }
        assert found == {number: number + 1 for number in range(offsets)}, group


def main() -> int:
    """Run the benchmark, and print a row for each round."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--offsets", type=int, default=1_000, help="of each group")
    parser.add_argument("--per-commit", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if lacks_kafka():
        return 1
    groups = [f"group-{number:04}" for number in range(given.groups)]
    print(f"{given.groups * given.offsets:,} offsets of {given.groups:,} groups, "
          f"{given.per_commit} a commit", flush=True)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        brokers = OdradekProcess(Path(folder) / "odradek"), KafkaProcess(Path(folder) / "kafka")
        for broker in brokers:
            broker.start()
            fill(broker, groups, given.offsets, given.per_commit)
            broker.stop()
        ratios = []
        for number in range(1, given.rounds + 1):
            taken = []
            for broker in brokers:
                taken.append(loading_time(broker, groups, given.offsets))
                broker.stop()
            (our_first, ours), (their_first, theirs) = taken
            ratios.append(ours / theirs)
            print(f"  round {number}: {ours:.2f} s here ({our_first:.2f} to the first answer), "
                  f"{theirs:.2f} in Kafka ({their_first:.2f}), ratio {ratios[-1]:.2f}",
                  flush=True)  # fmt: skip
        print(summary("ratio", ratios))
    return 0


if __name__ == "__main__":
    sys.exit(main())
