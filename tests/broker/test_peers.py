"""Requests between brokers: over each protocol and login, and the errors where they fail."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.processes import free_port
from odradek.broker.composition import Broker
from odradek.broker.errors import Refusal
from odradek.broker.orders.java import partition_for
from odradek.broker.peers import peers as peers_module
from odradek.broker.peers.errors import PeerAway
from odradek.broker.peers.peers import Peers
from odradek.broker.security.acls import PatternType, Permission
from odradek.broker.security.authorization import CLUSTER_NAME, AclOperation, ResourceKind
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.topics.names import SHARE_GROUP_STATE
from odradek.config.acl import STANDARD_AUTHORIZER
from odradek.config.errors import ConfigError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.certificates import Authority, Identity
from tests.broker.live import Client, client, create, live, on_uvloop, until
from tests.broker.sasl_client import PLAIN_MODULE, SCRAM_MODULE
from tests.broker.test_cluster import known_everywhere
from tests.broker.transacting import Transactor, kinds

AUTHORITY = Authority()
SERVER = AUTHORITY.issue()
USER, SECRET = "broker", "b,=secret"
MECHANISM = "sasl.mechanism.inter.broker.protocol"
KEYSTORE = "listener.name.in.ssl.keystore.location"
# Brokers that would be away for a while are not checked in these tests; others are, often.
SESSION = {"broker.session.timeout.ms": "60000"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let errors show, and end, at once."""
    monkeypatch.setattr(peers_module, "_CHECK_INTERVAL_S", 0.05)
    monkeypatch.setattr(peers_module, "_PAUSE_S", 0.05)
    monkeypatch.setattr(peers_module, "_PATIENCE_S", 0.5)


def jaas_option(mechanism: str) -> str:
    return f"listener.name.in.{mechanism.lower()}.sasl.jaas.config"


def jaas(mechanism: str, secret: str = SECRET) -> str:
    """Write a login module: the broker's own login, and for PLAIN the user that others have."""
    if mechanism == "PLAIN":
        return (
            f'{PLAIN_MODULE} required username="{USER}" password="{secret}" '
            f'user_{USER}="{SECRET}";'
        )
    return f'{SCRAM_MODULE} required username="{USER}" password="{secret}";'


def settings(
    path: Path,
    protocol: str = "SASL_SSL",
    mechanism: str = "SCRAM-SHA-256",
    *,
    server: Identity = SERVER,
    authority: Authority = AUTHORITY,
    secret: str = SECRET,
    port: int = 0,
) -> dict[str, str]:
    """Return settings of a broker that others ask at its listener IN, clients at CLIENTS."""
    path.mkdir(exist_ok=True)
    found = {
        **SESSION,
        "listeners": f"CLIENTS://127.0.0.1:0,IN://127.0.0.1:{port}",
        "listener.security.protocol.map": f"CLIENTS:PLAINTEXT,IN:{protocol}",
        "inter.broker.listener.name": "IN",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "2",
    }
    if "SASL" in protocol:
        found |= {
            MECHANISM: mechanism,
            "listener.name.in.sasl.enabled.mechanisms": mechanism,
            jaas_option(mechanism): jaas(mechanism, secret),
            "connection.failed.authentication.delay.ms": "1",
        }
    if mechanism.startswith("SCRAM"):
        found["odradek.scram.users"] = f'{mechanism}=[name={USER},password="{SECRET}"]'
    if "SSL" in protocol:
        found |= {
            "listener.name.in.ssl.keystore.type": "PEM",
            KEYSTORE: str(server.pem_file(path / "server.pem")),
            "listener.name.in.ssl.truststore.type": "PEM",
            "listener.name.in.ssl.truststore.location": str(authority.pem_file(path / "ca.pem")),
            "listener.name.in.ssl.client.auth": "required",
        }
    return found


@asynccontextmanager
async def pair(
    path: Path, first: Mapping[str, str], second: Mapping[str, str]
) -> AsyncIterator[tuple[Broker, Broker]]:
    """Run two brokers of one cluster."""
    catalog = {"odradek.catalog.url": f"sqlite://{path / 'catalog.db'}"}
    async with (
        live(path / "1", {**first, **catalog, "node.id": "1"}) as one,
        live(path / "2", {**second, **catalog, "node.id": "2"}) as two,
    ):
        await until(lambda: len(one.brokers) == len(two.brokers) == 2)
        yield one, two


def peers_of(broker: Broker) -> Peers:
    found = broker._coordinators.peers
    assert found is not None
    return found


async def ask(broker: Broker, node_id: int) -> AddPartitionsToTxnResponse:
    """Let a broker send another one a request without effect."""
    request = AddPartitionsToTxnRequest(transactions=[])
    return await peers_of(broker).ask(
        node_id, request, 5, AddPartitionsToTxnResponse, lambda answer: answer.error_code
    )


async def problem(broker: Broker, text: str) -> None:
    """Wait until a broker reports a problem at /health."""
    await until(
        lambda: any(text in one for one in broker.problems()),
        f"{text!r} is reported",
        shown=broker.problems,
    )


async def alter(broker: Broker, values: Mapping[str, str]) -> None:
    name = str(broker.node_id)
    await broker.configs.alter(name, lambda present: {**present, **values}, validate_only=False)


class Spread:
    """A transaction whose partitions are at both brokers, and whose coordinator is at one."""

    def __init__(self, brokers: tuple[Broker, Broker], clients: tuple[Client, Client]) -> None:
        self.brokers = dict(zip((1, 2), brokers, strict=True))
        self.clients = dict(zip((1, 2), clients, strict=True))

    async def begin(self) -> None:
        """Create a topic with a partition at each broker, and a producer at its coordinator."""
        await create(self.brokers[1], "t", 2)
        await known_everywhere(self.brokers.values(), "t")
        self.at = {number + 1: number for number in range(2)}  # partitions of new topics go round
        await until(self._find_coordinator)
        await known_everywhere(self.brokers.values(), "__transaction_state")
        self.other = 3 - self.coordinator
        first = self.producer = Transactor(self.clients[self.coordinator])
        await until(lambda: self._has_begun(first))
        # The same producer, at the leader of the other partition.
        self.elsewhere = Transactor(
            self.clients[self.other], producer_id=first.producer_id, epoch=first.epoch
        )

    async def _find_coordinator(self) -> bool:
        asked = FindCoordinatorRequest(key_type=1, coordinator_keys=["payments"])
        (found,) = (await self.clients[1].ask(asked, version=4)).coordinators
        self.coordinator = found.node_id
        return not found.error_code

    async def _has_begun(self, producer: Transactor) -> bool:
        return await producer.init() is ErrorCode.NONE

    async def write(self) -> tuple[int, int]:
        """Write to both partitions; return the error codes, the coordinator's first."""
        own = await self.producer.produce("t", self.at[self.coordinator], b"a")
        return own, await self.elsewhere.produce("t", self.at[self.other], b"b")

    def kinds(self, node_id: int) -> list[str]:
        """Return the contents of the partition at a broker."""
        log = self.brokers[node_id].topics.get("t").log(self.at[node_id])  # type: ignore[union-attr]
        assert log is not None
        return kinds(log)


@asynccontextmanager
async def spread(brokers: tuple[Broker, Broker]) -> AsyncIterator[Spread]:
    async with client(brokers[0]) as one, client(brokers[1]) as two:
        made = Spread(brokers, (one, two))
        await made.begin()
        yield made


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("PLAINTEXT", ""),
        ("SSL", ""),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_SSL", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-256"),
        ("SASL_SSL", "SCRAM-SHA-512"),
    ],
)
@on_uvloop
async def test_a_transaction_over_both_brokers(
    tmp_path: Path, protocol: str, mechanism: str
) -> None:
    given = settings(tmp_path, protocol, mechanism)
    async with pair(tmp_path, given, given) as brokers, spread(brokers) as made:
        for commit in (True, False):
            assert await made.write() == (0, 0)
            assert await made.producer.end(commit=commit) == 0
            made.elsewhere.epoch = made.producer.epoch
            made.elsewhere.sequences.clear()
        ended = ["data", "commit", "data", "abort"]
        await until(lambda: made.kinds(1) == made.kinds(2) == ended)
        for broker in brokers:
            assert not broker.problems()
            assert _listeners_of_connections(broker) == ["CLIENTS", "IN"]


@on_uvloop
async def test_a_broker_without_the_right_is_reported_and_let_in_by_an_acl(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = settings(tmp_path) | {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",  # the clients of the test
    }
    async with pair(tmp_path, given, given) as brokers, spread(brokers) as made:
        lacking = f"allow User:{USER} the operation CLUSTER_ACTION on the cluster"
        for broker in brokers:
            await problem(broker, lacking)
        assert any(
            one.levelno == logging.ERROR and lacking in one.getMessage() for one in caplog.records
        )
        assert await made.write() == (0, ErrorCode.NOT_ENOUGH_REPLICAS)  # try again
        await allow(made.clients[1])
        await until(lambda: not any(broker.problems() for broker in brokers))
        made.elsewhere.sequences.clear()
        assert await made.elsewhere.produce("t", made.at[made.other], b"b") == 0
        await forbid(made.clients[1])
        for broker in brokers:
            await problem(broker, lacking)
        assert await made.producer.end(commit=True) == 0
        key = await _key_elsewhere(brokers[0])
        asked = brokers[0].shares.persister.read(key, 0)
        assert isinstance(asked, Awaitable)
        refused = await asked
        assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert made.kinds(made.other) == ["data"]
        await allow(made.clients[1])
        await until(lambda: made.kinds(made.other) == ["data", "commit"])
        await until(lambda: not any(broker.problems() for broker in brokers))
        stored = brokers[0].shares.persister.initialize(key, 0, 0)
        assert isinstance(stored, Awaitable)
        assert not (await stored).error


RIGHT: dict[str, Any] = {
    "principal": f"User:{USER}",
    "host": "*",
    "operation": AclOperation.CLUSTER_ACTION,
    "permission_type": Permission.ALLOW,
}


async def allow(administrator: Client) -> None:
    """Allow brokers to ask each other."""
    right = AclCreation(
        resource_type=ResourceKind.CLUSTER,
        resource_name=CLUSTER_NAME,
        resource_pattern_type=PatternType.LITERAL,
        **RIGHT,
    )
    (answer,) = (await administrator.ask(CreateAclsRequest(creations=[right]), version=3)).results
    assert not answer.error_code


async def forbid(administrator: Client) -> None:
    """Take the right away."""
    right = DeleteAclsFilter(
        resource_type_filter=ResourceKind.CLUSTER,
        resource_name_filter=CLUSTER_NAME,
        pattern_type_filter=PatternType.LITERAL,
        principal_filter=RIGHT["principal"],
        host_filter=RIGHT["host"],
        operation=RIGHT["operation"],
        permission_type=RIGHT["permission_type"],
    )
    answer = await administrator.ask(DeleteAclsRequest(filters=[right]), version=3)
    assert len(answer.filter_results[0].matching_acls) == 1


async def _key_elsewhere(broker: Broker) -> SharePartitionKey:
    """Return the key of a share-partition whose state another broker has."""
    topic = broker.topics.get("t")
    assert topic is not None
    await broker.topics.internal(SHARE_GROUP_STATE)
    states = broker.topics.get(SHARE_GROUP_STATE)
    assert states is not None
    for number in itertools.count():
        key = SharePartitionKey(f"g{number}", topic.topic_id, 0)
        if states.other_leader(partition_for(key.name, len(states.partitions))) is not None:
            return key
    raise AssertionError


@on_uvloop
async def test_a_wrong_password_is_reported_until_the_setting_is_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = settings(tmp_path, secret="guessed")
    option = jaas_option("SCRAM-SHA-256")
    async with pair(tmp_path, settings(tmp_path), wrong) as (one, two):
        refused = f"check username and password in {option}"
        await problem(two, refused)
        await problem(two, "broker 1 refuses the login of this broker")
        assert not one.problems()
        with pytest.raises(PeerAway, match="refuses the login"):
            await ask(two, 1)
        assert len([r for r in caplog.records if refused in r.getMessage()]) == 1
        assert not any("guessed" in r.getMessage() for r in caplog.records)
        await alter(two, {option: jaas("SCRAM-SHA-256")})
        await until(lambda: not two.problems())
        await ask(two, 1)


@on_uvloop
async def test_certificates_are_checked_on_both_sides_and_new_ones_are_used(
    tmp_path: Path,
) -> None:
    another = Authority("Another Authority")
    given = settings(tmp_path / "a", "SSL")
    other = settings(tmp_path / "b", "SSL", server=another.issue())
    (tmp_path / "b" / "ca.pem").write_text(another.pem() + AUTHORITY.pem())
    async with pair(tmp_path, given, other) as (one, two):
        await problem(one, "broker 2 shows a certificate that is not accepted")
        await problem(one, "let listener.name.in.ssl.truststore.* here have its authority")
        await problem(two, "broker 1 refuses the certificate, version or cipher suites of this")
        with pytest.raises(PeerAway):
            await ask(one, 2)
        renewed = SERVER.pem_file(tmp_path / "renewed.pem")
        await alter(two, {KEYSTORE: str(renewed)})
        await until(lambda: not (one.problems() or two.problems()))
        await ask(one, 2)
        await ask(two, 1)


@on_uvloop
async def test_a_certificate_that_the_own_trust_store_refuses_is_refused(tmp_path: Path) -> None:
    strange = Authority("Another Authority").issue()
    refused = "does not accept this certificate, so other brokers would not either"
    given = settings(tmp_path, "SSL") | {"odradek.catalog.url": f"sqlite://{tmp_path / 'c.db'}"}
    async with live(tmp_path, given) as broker:
        path = str(strange.pem_file(tmp_path / "strange.pem"))
        with pytest.raises(Refusal, match=refused):
            await alter(broker, {KEYSTORE: path})
    with pytest.raises(ConfigError, match=refused):
        async with live(tmp_path, given | {KEYSTORE: path}):
            raise AssertionError("it started")


@on_uvloop
async def test_host_names_are_checked_unless_the_setting_is_empty(tmp_path: Path) -> None:
    elsewhere = AUTHORITY.issue(hosts=("elsewhere.example",))
    given = settings(tmp_path / "a", "SSL")
    other = settings(tmp_path / "b", "SSL", server=elsewhere)
    async with pair(tmp_path, given, other) as (one, two):
        await problem(one, "is not valid for '127.0.0.1'")
        option = "listener.name.in.ssl.endpoint.identification.algorithm"
        await problem(one, f"or set {option} to nothing")
        assert not two.problems()
        await alter(one, {option: ""})
        await until(lambda: not one.problems())
        await ask(one, 2)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {
                "listener.security.protocol.map": "CLIENTS:PLAINTEXT,IN:SASL_PLAINTEXT",
            },
            "broker 2 speaks SASL_PLAINTEXT at its listener IN, this broker SASL_SSL",
        ),
        (
            {
                "listeners": "CLIENTS://127.0.0.1:0,IN2://127.0.0.1:0",
                "listener.security.protocol.map": "CLIENTS:PLAINTEXT,IN2:PLAINTEXT",
                "inter.broker.listener.name": "IN2",
            },
            "broker 2 has no listener IN: set inter.broker.listener.name alike",
        ),
        (
            {
                "listener.name.in.sasl.enabled.mechanisms": "PLAIN",
                MECHANISM: "PLAIN",
                jaas_option("PLAIN"): jaas("PLAIN"),
            },
            "broker 2 serves PLAIN at its listener IN, not SCRAM-SHA-256",
        ),
    ],
)
@on_uvloop
async def test_settings_that_do_not_fit_are_reported(
    tmp_path: Path, changes: Mapping[str, str], text: str
) -> None:
    given = settings(tmp_path)
    async with pair(tmp_path, given, {**given, **changes}) as (one, _):
        await problem(one, text)


@on_uvloop
async def test_a_broker_that_does_not_answer_is_a_problem_after_a_while(tmp_path: Path) -> None:
    given = settings(tmp_path, "PLAINTEXT", "")
    closed = f"CLIENTS://127.0.0.1:0,IN://127.0.0.1:{free_port()}"
    async with pair(tmp_path, given, {**given, "advertised.listeners": closed}) as (one, two):
        assert not one.problems()
        with pytest.raises(PeerAway):
            await ask(one, 2)
        assert not one.problems()
        await problem(one, "broker 2 does not answer")
        assert not two.problems()


@on_uvloop
async def test_brokers_that_start_together_create_their_users_once(tmp_path: Path) -> None:
    users = "; ".join(f"SCRAM-SHA-512=[name=u{number},password=secret]" for number in range(20))
    given = settings(tmp_path, "PLAINTEXT", "") | {
        "odradek.scram.users": users,
        "odradek.catalog.url": f"sqlite://{tmp_path / 'catalog.db'}",
    }
    async with AsyncExitStack() as stack:
        brokers = await asyncio.gather(
            *(
                stack.enter_async_context(
                    live(tmp_path / str(number), {**given, "node.id": str(number)})
                )
                for number in (1, 2, 3)
            )
        )
        await until(lambda: all(len(list(one.security.scram_users)) == 20 for one in brokers))
        for number in range(20):
            key = "SCRAM-SHA-512", f"u{number}"
            assert len({one.security.scram_users.find(*key) for one in brokers}) == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@on_uvloop
async def test_connections_whose_login_ends_are_replaced_before(
    tmp_path: Path, mechanism: str
) -> None:
    """A request never fails for it, however many are on their way (KIP-368)."""
    given = settings(tmp_path, "SASL_PLAINTEXT", mechanism) | {
        "listener.name.in.connections.max.reauth.ms": "2000"
    }
    async with pair(tmp_path, given, given) as (one, two):
        logins = two.metrics.authentications

        async def has_logged_in_often() -> bool:
            await asyncio.gather(*(ask(one, 2) for _ in range(5)))
            return logins["IN", "successful_authentication"] >= 4

        await until(has_logged_in_often)
        assert not logins["IN", "expired_connections_killed"]
        assert not one.problems()
        await until(lambda: len(_listeners_of_connections(two)) <= 2)  # older ones are closed


def _listeners_of_connections(broker: Broker) -> list[str]:
    return sorted(one.listener.name for one in broker.server.connections)
