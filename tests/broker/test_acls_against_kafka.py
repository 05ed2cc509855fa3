"""DescribeAcls, CreateAcls and DeleteAcls beside Apache Kafka: same requests, same answers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from bench.processes import KafkaProcess, OdradekProcess
from odradek.config.acl import STANDARD_AUTHORIZER
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.describe_acls import DescribeAclsRequest
from odradek.protocol.schema import info_of
from tests.broker.kafka_peer import Peer
from tests.support.waiting import last_answer

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

ROUNDS = 150
PORTS = tuple[int, int]
# Some that are none: 0 is what a client does not know, 9 and 77 what no broker knows.
KINDS = [2, 2, 2, 3, 3, 4, 5, 6, 7, 1, 9, -1]
PATTERNS = [3, 3, 3, 4, 4, 1, 2, 9]
OPERATIONS = [*range(1, 16), 2, 3, 3, 4, 8, 77]
PERMISSIONS = [2, 3, 3, 3, 1, 9]
NAMES = ["orders", "order", "o", "*", "kafka-cluster", "other", "", "\u00e9"]
PRINCIPALS = ["User:ann", "User:bob", "User:*", "Group:x", "User:a:b", "nobody", ""]
HOSTS = ["*", "127.0.0.1", "10.0.0.7", "not an address", ""]


def _start(directory: Any, settings: dict[str, str]) -> Iterator[PORTS]:
    processes = [
        kind(directory / kind.__name__, {"node.id": "1", **settings})
        for kind in (OdradekProcess, KafkaProcess)
    ]
    try:
        for process in processes:
            process.start()
        yield processes[0].port, processes[1].port
    finally:
        for process in processes:
            process.stop()


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PORTS]:
    """Brokers with an authorizer at which everybody is a super user."""
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    yield from _start(tmp_path_factory.mktemp("acls"), settings)


@pytest.fixture(scope="module")
def ports_without(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PORTS]:
    """Brokers without an authorizer."""
    yield from _start(tmp_path_factory.mktemp("none"), {})


def _normal(value: Any, key: str = "") -> Any:
    """Turn an answer into plain values; nobody promises an order of entries."""
    if is_dataclass(value):
        return {one.name: _normal(getattr(value, one.name), one.name) for one in fields(value)}
    if isinstance(value, list):
        made = [_normal(one) for one in value]
        return sorted(made, key=repr) if key in ("resources", "acls", "matching_acls") else made
    return value


def _ask(port: int, request: Any, version: int) -> Any:
    """Return the answer as plain values; None when the connection is closed instead."""
    with Peer(port) as peer:
        try:
            return _normal(peer.ask(request, version))
        except (AssertionError, ConnectionError):
            return None


def _expect_alike(ports: PORTS, request: Any, version: int) -> Any:
    ours = _ask(ports[0], request, version)
    # Kafka's broker hears of what its controller has done a little later.
    theirs = last_answer(
        lambda: _ask(ports[1], request, version),
        lambda theirs: theirs == ours or not isinstance(request, DescribeAclsRequest),
    )
    assert theirs == ours, f"{version} {request}\n{ours}\n{theirs}"
    return ours


def _creation(chance: random.Random) -> AclCreation:
    kind = chance.choice(KINDS)
    name = chance.choice(NAMES)
    return AclCreation(
        resource_type=kind,
        resource_name="kafka-cluster" if kind == 4 and chance.random() < 0.7 else name,
        resource_pattern_type=chance.choice(PATTERNS),
        principal=chance.choice(PRINCIPALS),
        host=chance.choice(HOSTS),
        operation=chance.choice(OPERATIONS),
        permission_type=chance.choice(PERMISSIONS),
    )


def _told(chance: random.Random) -> dict[str, Any]:
    any_kind, any_name, any_principal, any_host, any_operation = (
        chance.random() < 0.5 for _ in range(5)
    )
    return {
        "resource_type_filter": 1 if any_kind else chance.choice(KINDS),
        "resource_name_filter": None if any_name else chance.choice(NAMES),
        "pattern_type_filter": chance.choice([*PATTERNS, 1, 2, 2]),
        "principal_filter": None if any_principal else chance.choice(PRINCIPALS),
        "host_filter": None if any_host else chance.choice(HOSTS),
        "operation": 1 if any_operation else chance.choice(OPERATIONS),
        "permission_type": chance.choice([1, 1, *PERMISSIONS]),
    }


def _draw(chance: random.Random) -> Any:
    what = chance.random()
    if what < 0.5:
        wanted = [_creation(chance) for _ in range(chance.randrange(5))]
        return CreateAclsRequest(creations=[*wanted, *wanted[:1]])
    if what < 0.7:
        return DescribeAclsRequest(**_told(chance))
    filters = [DeleteAclsFilter(**_told(chance)) for _ in range(chance.randrange(3))]
    return DeleteAclsRequest(filters=filters)


def test_the_same_requests_get_the_same_answers(ports: PORTS) -> None:
    chance = random.Random(11)
    everything = DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
        principal_filter=None, host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    listed = 0
    for _ in range(ROUNDS):
        request = _draw(chance)
        versions = info_of(type(request)).versions
        _expect_alike(ports, request, chance.choice(list(versions)))
        if not isinstance(request, DescribeAclsRequest):
            listed += len(_expect_alike(ports, everything, 3)["resources"])
    assert listed > ROUNDS  # there was something to list and to delete


@pytest.mark.parametrize(
    "unknown",
    ["resource_type", "resource_pattern_type", "operation", "permission_type"],
)
def test_the_value_unknown_in_an_entry_or_filter_closes_the_connection(
    ports: PORTS, unknown: str
) -> None:
    for version in info_of(CreateAclsRequest).versions:
        creation = AclCreation(
            resource_type=2, resource_name="a", resource_pattern_type=3,
            principal="User:ann", host="*", operation=3, permission_type=3,
        )  # fmt: skip
        setattr(creation, unknown, 0)
        assert _expect_alike(ports, CreateAclsRequest(creations=[creation]), version) is None
        told = {
            "resource_type_filter": 2, "resource_name_filter": None, "pattern_type_filter": 3,
            "principal_filter": None, "host_filter": None, "operation": 3, "permission_type": 3,
        }  # fmt: skip
        name = {"resource_type": "resource_type_filter",
                "resource_pattern_type": "pattern_type_filter"}.get(unknown, unknown)  # fmt: skip
        told[name] = 0
        described = DescribeAclsRequest(**told)  # type: ignore[arg-type]
        deleted = DeleteAclsRequest(filters=[DeleteAclsFilter(**told)])  # type: ignore[arg-type]
        assert _expect_alike(ports, described, version) is None
        assert _expect_alike(ports, deleted, version) is None


def test_without_an_authorizer_there_are_none(ports_without: PORTS) -> None:
    chance = random.Random(3)
    for _ in range(12):
        request = _draw(chance)
        for version in info_of(type(request)).versions:
            _expect_alike(ports_without, request, version)
