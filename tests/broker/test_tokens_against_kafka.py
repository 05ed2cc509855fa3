"""Delegation tokens beside Apache Kafka: the same people get the same answers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.processes import KafkaProcess, OdradekProcess, free_port, kafka_tool
from odradek.broker.orders.hash_map import concurrent_order
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.security.principals import Principal
from odradek.config.acl import STANDARD_AUTHORIZER
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from odradek.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from odradek.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from odradek.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from odradek.protocol.schema import info_of
from tests.broker.sasl_peer import Refused, SaslPeer
from tests.broker.test_token_apis import create, describe
from tests.support.forking import ForkedOdradek
from tests.support.waiting import last_answer, until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

KEY = "the-key-of-all-tokens"
USERS = ("admin", "alice", "bob", "carol", "maker", "teller", "viewer")
# What was made, by what it is called here.
Made = dict[str, Any]
_LITERAL, _ALLOW = 3, 3
MINUTE_MS = 60_000


def settings(port: int, sasl_port: int, controller_port: int | None = None) -> dict[str, str]:
    """Return the settings of a broker with tokens, whose super user is the admin."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    people = " ".join(f'user_{name}="{name}-secret"' for name in USERS)
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    clients = f"PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl_port}"
    controller = f",CONTROLLER://127.0.0.1:{controller_port}" if controller_port else ""
    return {
        "listeners": clients + controller,
        "advertised.listeners": clients,
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl.plain.sasl.jaas.config": f"{module} {people};",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": scram,
        "delegation.token.secret.key": KEY,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        # Who is nobody is Kafka's controller, and Kafka's broker itself.
        "super.users": "User:admin;User:ANONYMOUS",
    }


class Broker:
    """A broker, with a connection for everybody; None is nobody, in plain text."""

    def __init__(self, process: OdradekProcess | KafkaProcess, sasl_port: int) -> None:
        self.process, self.sasl_port = process, sasl_port
        self._peers: dict[str | None, SaslPeer] = {}

    def log_in(self, name: str, token_id: str, secret: bytes) -> None:
        peer = SaslPeer(self.sasl_port)
        password = base64.b64encode(secret).decode()
        peer.log_in_scram("SCRAM-SHA-256", token_id, password, is_token=True)
        self._peers[name] = peer

    async def ask(self, user: str | None, request: Any, version: int) -> Any:
        if user not in self._peers:
            peer = SaslPeer(self.process.port if user is None else self.sasl_port)
            if user is not None:
                peer.log_in_plain(user, f"{user}-secret")
            self._peers[user] = peer
        return self._peers[user].ask(request, version)

    def close(self) -> None:
        for peer in self._peers.values():
            peer.__exit__(None, None, None)


class Side:
    """One broker: what it was asked to make, and its answers in words that fit both."""

    def __init__(self, peer: Broker) -> None:
        self.peer = peer
        self._names: dict[Any, str] = {"": "", b"": ""}
        self.made: Made = {}

    async def ask(self, user: str | None, request: Any, version: int) -> tuple[Any, Any]:
        """Ask; return the answer as it is, and in those words."""
        answer = await self.peer.ask(user, request, version)
        return answer, self._normal(answer)

    def _normal(self, value: Any, key: str = "") -> Any:
        if is_dataclass(value):
            return {one.name: self._normal(getattr(value, one.name), one.name)
                    for one in fields(value)}  # fmt: skip
        if isinstance(value, list):
            return sorted((self._normal(one) for one in value), key=repr)
        if key in ("token_id", "hmac"):
            value = bytes(value) if key == "hmac" else value
            return self._names.setdefault(value, f"{key} {len(value)} {len(self._names)}")
        if "timestamp" in key and value > 0:
            return f"in {round((value - time.time() * 1000) / MINUTE_MS)} min"
        return value


class Both:
    """The two brokers, asked the same one after the other."""

    def __init__(self, ours: Broker, theirs: Broker) -> None:
        self._ours, self._theirs = Side(ours), Side(theirs)
        self.asked = 0

    async def ask(
        self,
        user: str | None,
        request: Any | Callable[[Made], Any],
        version: int | None = None,
        *,
        name: str = "",
    ) -> None:
        """Ask both, and compare the answers; the first kept under a name."""
        build = request if callable(request) else lambda _: request
        mine = build(self._ours.made)
        number = info_of(type(mine)).versions.last if version is None else version
        answer, expected = await self._ours.ask(user, mine, number)
        self._ours.made[name] = answer
        theirs: Any = None

        async def is_final() -> bool:
            nonlocal theirs
            kafkas = build(self._theirs.made)
            self._theirs.made[name], theirs = await self._theirs.ask(user, kafkas, number)
            self.asked += 1
            # Kafka answers a change before all of it knows.
            is_made = isinstance(mine, CreateDelegationTokenRequest) and not theirs["error_code"]
            return theirs == expected or is_made

        asked = f"{user} {mine} v{number}"
        await until(is_final, f"alike: {asked}", shown=lambda: f"{theirs}, not {expected}")
        assert theirs == expected, asked

    def log_in(self, name: str, token: str) -> None:
        """Log in by a token."""
        for side in (self._ours, self._theirs):
            side.peer.log_in(name, side.made[token].token_id, side.made[token].hmac)


def renew(token: str, period_ms: int = -1) -> Callable[[Made], Any]:
    return lambda made: RenewDelegationTokenRequest(
        hmac=made[token].hmac, renew_period_ms=period_ms
    )


def end(token: str, period_ms: int = -1) -> Callable[[Made], Any]:
    return lambda made: ExpireDelegationTokenRequest(
        hmac=made[token].hmac, expiry_time_period_ms=period_ms
    )


def unusual(kind: str | None, name: str | None) -> CreateDelegationTokenRequest:
    return CreateDelegationTokenRequest(
        owner_principal_type=kind, owner_principal_name=name, renewers=[], max_lifetime_ms=-1
    )


async def allow(both: Both) -> None:
    """Let some do to bob's tokens what one right each allows."""
    rights = (
        ("maker", AclOperation.CREATE_TOKENS, ResourceKind.USER, "User:bob"),
        ("teller", AclOperation.DESCRIBE_TOKENS, ResourceKind.USER, "User:bob"),
        ("viewer", AclOperation.DESCRIBE, ResourceKind.DELEGATION_TOKEN, "*"),
    )
    creations = [
        AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=_LITERAL,
            principal=f"User:{user}",
            host="*",
            operation=operation,
            permission_type=_ALLOW,
        )
        for user, operation, kind, name in rights
    ]
    await both.ask("admin", CreateAclsRequest(creations=creations))
    bob = Principal("User", "bob")
    for user in ("viewer", "teller", "carol", "maker"):
        await both.ask(user, create(bob), name=f"bob's by {user}")
    await both.ask("maker", create(Principal("User", "alice")))


async def make(both: Both) -> None:
    """Make tokens at every version, and ask for some that there cannot be."""
    alice, bob, carol = (Principal("User", name) for name in ("alice", "bob", "carol"))
    for version in (1, 2, 3):
        await both.ask("alice", create(None, bob), version, name=f"v{version}")
    await both.ask("alice", create(None, lifetime_ms=20 * MINUTE_MS), name="short")
    await both.ask("admin", create(bob, carol), name="bob's")
    await both.ask("bob", create(bob, bob, bob), name="own")
    staff = Principal("Group", "staff")
    for user, request in (
        ("alice", create(bob)),
        (None, create()),
        ("alice", create(None, staff)),
        ("alice", create(staff)),
        ("admin", create(staff)),
        ("admin", create(staff, alice, lifetime_ms=0)),
        ("alice", create(None, lifetime_ms=2**63 - 1)),
        ("alice", create(Principal("User", ""))),
        ("alice", create(Principal("", "bob"))),
        ("admin", unusual(None, "bob")),
        ("admin", unusual("User", None)),
    ):
        await both.ask(user, request)


async def look(both: Both, users: Sequence[str | None]) -> None:
    """Ask for tokens as everybody, of everybody."""
    alice, bob = Principal("User", "alice"), Principal("User", "bob")
    for user in users:
        for version in (1, 2, 3):
            await both.ask(user, describe(), version)
        await both.ask(user, describe(alice))
        await both.ask(user, describe(bob))
        await both.ask(user, describe(alice, bob, Principal("Group", "staff")))
        await both.ask(user, DescribeDelegationTokenRequest(owners=[]))


async def change(both: Both) -> None:
    """Renew and end what was made."""
    for version in (1, 2):
        for user in ("alice", "bob", "carol", "admin", None):
            await both.ask(user, renew("v3", 30 * MINUTE_MS), version)
    for period_ms in (-1, 0, 1_000 * MINUTE_MS, 10_000 * MINUTE_MS, 2**63 - 1):
        await both.ask("bob", renew("v3", period_ms))
        await both.ask("alice", renew("short", period_ms))
    for period_ms in (5 * MINUTE_MS, 10_000 * MINUTE_MS, 2**63 - 1):
        await both.ask("alice", end("v2", period_ms))
        await both.ask("alice", end("own", period_ms))
    for wrong in (b"", b"none", bytes(64)):
        await both.ask("alice", RenewDelegationTokenRequest(hmac=wrong, renew_period_ms=1))
        await both.ask("alice", ExpireDelegationTokenRequest(hmac=wrong, expiry_time_period_ms=1))


async def script(both: Both) -> None:
    await make(both)
    await allow(both)
    await look(both, (*USERS, None))
    await change(both)
    both.log_in("@own", "own")
    for request in (create(), describe(), renew("own"), end("own")):
        await both.ask("@own", request)
    for version in (1, 2):
        for user in ("carol", None, "admin"):
            await both.ask(user, end("v1"), version)
    await both.ask("bob", end("v1"))
    await both.ask("bob", end("v1"))
    await both.ask("admin", end("bob's"))
    await both.ask("carol", end("bob's", 10 * MINUTE_MS))
    await look(both, USERS)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    """Start both; ours first."""
    ours = ForkedOdradek(tmp_path_factory.mktemp("odradek"))
    theirs = KafkaProcess(tmp_path_factory.mktemp("kafka"))
    made = [Broker(ours, free_port()), Broker(theirs, free_port())]
    ours.settings = settings(ours.port, made[0].sasl_port)
    theirs.settings = settings(theirs.port, made[1].sasl_port, theirs.controller_port)
    with contextlib.ExitStack() as stack:
        for one in made:
            one.process.start()
            stack.callback(one.process.stop)
            stack.callback(one.close)
        yield made[0], made[1]


def test_tokens_have_the_order_of_kafkas_table(brokers: tuple[Broker, Broker]) -> None:
    renewers = [Principal("User", f"renewer-{number * 7919 % 100}") for number in range(30)]
    for broker in brokers:
        made = [asyncio.run(broker.ask("alice", create(None, *renewers), 3)) for _ in range(40)]
        # Kafka answers before all of it knows.
        described = last_answer(
            lambda broker=broker: asyncio.run(broker.ask("alice", describe(), 3)).tokens,  # type: ignore[misc]
            lambda described, made=made: len(described) >= len(made),  # type: ignore[misc]
        )
        in_order = concurrent_order([one.token_id for one in made])
        assert [one.token_id for one in described] == in_order
        for one in described:
            names = [(who.principal_type, who.principal_name) for who in one.renewers]
            assert names == [(who.kind, who.name) for who in renewers]
        for one in made:
            gone = ExpireDelegationTokenRequest(hmac=one.hmac, expiry_time_period_ms=-1)
            assert asyncio.run(broker.ask("alice", gone, 2)).error_code == 0


def test_the_same_requests_have_the_same_answers(brokers: tuple[Broker, Broker]) -> None:
    both = Both(*brokers)
    asyncio.run(script(both))
    assert both.asked > 100


def test_a_token_is_the_hmac_of_its_id(brokers: tuple[Broker, Broker]) -> None:
    for broker in brokers:
        made = asyncio.run(broker.ask("alice", create(), 3))
        assert made.hmac == hmac.digest(KEY.encode(), made.token_id.encode(), "sha512")
        with pytest.raises(Refused):
            broker.log_in("@wrong", made.token_id, b"another")


def client_file(folder: Path, user: str, password: str, *, is_token: bool = False) -> Path:
    """Write what a Java client needs to log in."""
    login, mechanism, more = "plain.PlainLoginModule", "PLAIN", ""
    if is_token:
        login, mechanism, more = "scram.ScramLoginModule", "SCRAM-SHA-256", " tokenauth=true"
    path = folder / f"{user}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{login} required "
        f'username="{user}" password="{password}"{more};\n'
    )
    return path


def tokens_sh(port: int, config: Path, *arguments: str) -> str:
    """Run kafka-delegation-tokens.sh; return what it printed."""
    command = ["org.apache.kafka.tools.DelegationTokenCommand"]
    command += ["--bootstrap-server", f"127.0.0.1:{port}", "--command-config", str(config)]
    ran = kafka_tool([*command, *arguments], check=False)
    return ran.stdout + "".join(
        line for line in ran.stderr.splitlines(keepends=True) if "Exception" in line
    )


def plain_words(text: str, made: Sequence[str]) -> str:
    """Leave out other tokens, and what differs from token to token and minute to minute."""
    for number, word in enumerate(made):
        text = text.replace(word, f"<{number}>")
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d", "<time>", text)
    text = re.sub(r"expiry time.*", "expiry time", text)
    lines = re.sub(r"[ \t]+", " ", text).splitlines()
    others = ("User:", "Total number")
    return "\n".join(
        line for line in lines if line and ("<0>" in line or not any(x in line for x in others))
    )


def commands(port: int, folder: Path) -> list[str]:
    """Make, list, renew, use and end a token by Kafka's own commands; return what they print."""
    folder.mkdir()
    alice = client_file(folder, "alice", "alice-secret")
    bob = client_file(folder, "bob", "bob-secret")
    renewer = ("--max-life-time-period", "600000", "--renewer-principal", "User:bob")
    said = [tokens_sh(port, alice, "--create", *renewer)]
    row = [line.split() for line in said[0].splitlines() if "User:alice" in line][-1]
    token_id, secret = row[0], row[1]
    by_token = client_file(folder, token_id, secret, is_token=True)
    renew = ("--renew", "--renew-time-period", "300000", "--hmac", secret)
    end = ("--expire", "--expiry-time-period", "-1", "--hmac", secret)
    said += [
        tokens_sh(port, bob, "--describe"),
        tokens_sh(port, bob, *renew),
        tokens_sh(port, alice, "--describe", "--owner-principal", "User:alice"),
        tokens_sh(port, by_token, "--describe"),
        tokens_sh(port, alice, *end),
        tokens_sh(port, bob, *renew),
        tokens_sh(port, alice, "--describe"),
    ]
    return [plain_words(text, (token_id, secret)) for text in said]


@pytest.mark.interop
def test_kafkas_command_says_the_same(
    brokers: tuple[Broker, Broker], tmp_path: Path
) -> None:
    ours = commands(brokers[0].sasl_port, tmp_path / "ours")
    theirs = commands(brokers[1].sasl_port, tmp_path / "theirs")
    assert ours == theirs
    assert "User:alice" in ours[3]
    assert "DelegationTokenNotFoundException" in ours[6]
    log = brokers[0].process.log_text()
    assert "created delegation token" in log and KEY not in log
