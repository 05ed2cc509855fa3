"""How fast do groups change?"""

from __future__ import annotations

from bench.asking import Connection
from bench.connections import Client
from bench.pairs import Broker, Figure, Question, Values
from bench.processes import wait_for
from bench.questions.many import CLIENTS, SECONDS, SMALL_REQUESTS, rate
from odradek.protocol.frames import encode_request
from odradek.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
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

_FIND_VERSION, _JOIN_VERSION, _LEAVE_VERSION = 3, 5, 4


def joined_and_left(broker: Broker, seconds: float) -> float:
    """Return how often a second clients make groups of one member each, and leave them."""
    ports = [_coordinator(broker, number) for number in range(CLIENTS)]
    frames = [
        (
            encode_request(_join(number), _JOIN_VERSION, 1, "bench"),
            encode_request(_leave(number), _LEAVE_VERSION, 1, "bench"),
        )
        for number in range(CLIENTS)
    ]

    async def join_and_leave(client: Client, number: int) -> None:
        for frame in frames[number]:
            await client.ask(frame)

    return rate(ports, seconds, join_and_leave)


def _coordinator(broker: Broker, number: int) -> int:
    """Return the port of a group's coordinator, once a member has joined and left.

    A refusal would be the fastest answer of all. The first question makes Kafka create its topic.
    """
    asked = FindCoordinatorRequest(key=_group_id(number))

    def found() -> FindCoordinatorResponse:
        return connection.ask(asked, _FIND_VERSION, FindCoordinatorResponse)

    with Connection(broker.port) as connection:
        wait_for(lambda: not found().error_code, f"{_group_id(number)} has a coordinator")
        port = found().port

    def has_joined() -> bool:
        return not connection.ask(_join(number), _JOIN_VERSION, JoinGroupResponse).error_code

    with Connection(port) as connection:
        wait_for(has_joined, f"a member joins {_group_id(number)}")
        left = connection.ask(_leave(number), _LEAVE_VERSION, LeaveGroupResponse)
    assert not left.error_code and not any(one.error_code for one in left.members), left
    return port


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
