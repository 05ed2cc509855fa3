"""How fast do groups change?"""

from __future__ import annotations

import uvloop

from bench.asking import Connection
from bench.clients import leader_ports
from bench.connections import Client, connect_to
from bench.pairs import Broker, Figure, Question, Values
from bench.processes import wait_for
from bench.questions.many import CLIENTS, SECONDS, SMALL_REQUESTS, rate
from odradek.broker.orders.java import partition_for
from odradek.protocol.frames import encode_request
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)

_COORDINATORS = "__consumer_offsets"
_JOIN_VERSION, _LEAVE_VERSION = 5, 4


def joined_and_left(broker: Broker, seconds: float) -> float:
    """Return how often a second clients make groups of one member each, and leave them."""
    ports = _coordinators(broker)
    frames = []
    for number, port in enumerate(ports):
        _check(number, port)
        joining = encode_request(_join(number), _JOIN_VERSION, 1, "bench")
        frames.append((joining, encode_request(_leave(number), _LEAVE_VERSION, 1, "bench")))

    async def join_and_leave(client: Client, number: int) -> None:
        for frame in frames[number]:
            await client.ask(frame)

    return rate(ports, seconds, join_and_leave)


def _check(number: int, port: int) -> None:
    """Wait until a member can join and leave: a refusal would be the fastest answer of all."""
    with Connection(port) as connection:

        def has_joined() -> bool:
            return not connection.ask(_join(number), _JOIN_VERSION, JoinGroupResponse).error_code

        wait_for(has_joined, f"{_group_id(number)} has its coordinator")
        left = connection.ask(_leave(number), _LEAVE_VERSION, LeaveGroupResponse)
    assert not left.error_code and not any(one.error_code for one in left.members), left


def _coordinators(broker: Broker) -> list[int]:
    """Return the port of the coordinator of each group."""

    async def find() -> None:
        (client,) = await connect_to([broker.port])
        request = FindCoordinatorRequest(key=_group_id(0))
        await client.ask(encode_request(request, 3, 1, "bench"))
        client.transport.abort()

    uvloop.run(find())  # the first one creates the topic
    ports = leader_ports(broker, _COORDINATORS)
    return [ports[partition_for(_group_id(number), len(ports))] for number in range(CLIENTS)]


def _group_id(number: int) -> str:
    return f"group-{number}"


def _join(number: int) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=_group_id(number),
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        group_instance_id=f"member-{number}",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def _leave(number: int) -> LeaveGroupRequest:
    member = MemberIdentity(member_id="", group_instance_id=f"member-{number}")
    return LeaveGroupRequest(group_id=_group_id(number), members=[member])


def _ask(broker: Broker, scale: float) -> Values:
    return {"joined and left": joined_and_left(broker, max(SECONDS * scale, 0.5))}


GROUPS = Question(
    "groups",
    f"{CLIENTS} connections, each a group of one member that joins and leaves again and again",
    [Figure("joined and left", "1/s")],
    _ask,
    {"group.initial.rebalance.delay.ms": "0"},
    note=f"{SMALL_REQUESTS} No answer waits for the disk, and both write some lines of each join "
    "to their logs.",
)
