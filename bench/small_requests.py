"""The processor time of a small request in the broker, system calls included.

    python -m bench.small_requests [--rounds N] [--count N] [--beside FOLDER]

A connection asks one request after another, each after the last answer, as most clients do. The
broker's CPU time divided by their number is printed in microseconds, the median of the rounds.
With --beside, a broker with the code of another folder is asked in turn with this one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.asking import Connection
from bench.hurry_client import committed, fetch, latest, metadata, produce
from bench.processes import ROOT, OdradekProcess
from bench.watch import cpu_s, wait_until_idle
from odradek.protocol.frames import encode_request
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.messages.produce import ProduceResponse
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_GROUP, _TOPIC = "small", "hurried"
_WARM_UP = 500
_SESSION_MS = 300_000


def _requests(connection: Connection) -> Iterator[tuple[str, Any, int]]:
    """Yield requests with names and versions; those before them have been answered."""
    topic = CreatableTopic(
        name=_TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    creating = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    assert not connection.ask(creating, 5, CreateTopicsResponse).topics[0].error_code
    connection.ask(produce(), 8, ProduceResponse)
    joining = JoinGroupRequest(
        group_id=_GROUP,
        session_timeout_ms=_SESSION_MS,
        rebalance_timeout_ms=_SESSION_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joined = connection.ask(joining, 3, JoinGroupResponse)
    number, member = joined.generation_id, joined.member_id
    syncing = SyncGroupRequest(
        group_id=_GROUP, generation_id=number, member_id=member, assignments=[]
    )
    assert not connection.ask(syncing, 2, SyncGroupResponse).error_code
    beating = HeartbeatRequest(group_id=_GROUP, generation_id=number, member_id=member)
    yield "Heartbeat", beating, 2
    yield "ListOffsets", latest(), 5
    yield "Metadata", metadata(), 9
    yield "OffsetCommit", committed(), 8
    yield "Fetch, one record", fetch(0, 1), 11
    yield "Produce, acks=1", produce(), 8


def _cost_us(broker: OdradekProcess, frame: bytes, count: int) -> float:
    """Return the CPU time of a request in microseconds."""
    with Connection(broker.port) as connection:
        for _ in range(_WARM_UP):
            connection.answer(frame)
        wait_until_idle(broker)  # the first requests cause work that is done once
        before_s = cpu_s(broker)
        for _ in range(count):
            connection.answer(frame)
        return (cpu_s(broker) - before_s) / count * 1e6


@contextmanager
def _serving(root: Path) -> Iterator[OdradekProcess]:
    with tempfile.TemporaryDirectory(prefix="odradek-small-") as directory:
        broker = OdradekProcess(Path(directory), root=root)
        broker.start()
        try:
            yield broker
        finally:
            broker.stop()


def _round(root: Path, count: int) -> Mapping[str, float]:
    with _serving(root) as broker, Connection(broker.port) as connection:
        return {
            name: _cost_us(broker, encode_request(request, version, 1, "bench"), count)
            for name, request, version in _requests(connection)
        }


def main() -> None:
    """Measure and print the costs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--beside", type=Path, help="a folder with other code of Odradek")
    arguments = parser.parse_args()
    roots = [ROOT] if arguments.beside is None else [ROOT, arguments.beside.resolve()]
    costs: dict[tuple[str, Path], list[float]] = defaultdict(list)
    for _ in range(arguments.rounds):
        for root in roots:
            for name, cost_us in _round(root, arguments.count).items():
                costs[name, root].append(cost_us)
    for name in dict.fromkeys(name for name, _ in costs):
        medians = [statistics.median(costs[name, root]) for root in roots]
        print(f"{name:<20}" + "".join(f"{median:>10.1f} us" for median in medians))


if __name__ == "__main__":
    main()
