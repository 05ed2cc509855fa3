"""People who log in at the page: by which passwords, for how long, and with which rights."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.composition import Broker
from odradek.broker.security.acls import Acl, PatternType, Permission
from odradek.broker.security.authorization import CLUSTER_NAME, AclOperation, ResourceKind
from odradek.broker.web import logins, rights
from odradek.broker.web.early import LIVE, PROBLEMS, READY
from tests.broker.console import act, begin_transaction, send
from tests.broker.live import create, on_uvloop, until
from tests.broker.test_cluster import SLOW, known_everywhere, member
from tests.broker.web import ask, bearer, get, serving

SASL = {
    "listeners": "INSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
    "listener.name.inside.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_bob="bobs secret";'
    ),
}
SECURED = {
    **SASL,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root",
}
PASSWORD = "anns secret"
# Routes that need no right of the person, or check it by themselves.
FREE = {"/", "/page", PROBLEMS, LIVE, READY}


async def log_in(broker: Broker, user: str, password: str) -> str:
    status, answered = await send(broker, "login", {"user": user, "password": password}, "")
    assert status == 200 and answered["user"] == user, answered
    token: str = answered["token"]
    return token


async def read(broker: Broker, path: str, token: str) -> tuple[int, Any]:
    status, _, body = await ask(broker, path, bearer(token))
    return status, json.loads(body) if body else None


async def allow(
    broker: Broker, operation: AclOperation, kind: ResourceKind, name: str = CLUSTER_NAME
) -> None:
    entry = Acl(
        kind, name, PatternType.LITERAL, "User:ann", "*", operation, Permission.ALLOW
    )
    assert broker.security.acls is not None
    await broker.security.acls.create([entry])


@on_uvloop
async def test_users_of_both_kinds_log_in_with_their_own_password_alone(tmp_path: Path) -> None:
    async with serving(tmp_path, SASL) as broker:
        await act(broker, "users/create", user="ann", password=PASSWORD)
        for user, password in (("ann", PASSWORD), ("bob", "bobs secret")):
            token = await log_in(broker, user, password)
            assert (await read(broker, "/api/topics", token))[0] == 200
        for user, password in (
            ("ann", "bobs secret"), ("bob", PASSWORD), ("ann", PASSWORD + " "), ("eve", "x"),
        ):  # fmt: skip
            status, answered = await send(
                broker, "login", {"user": user, "password": password}, ""
            )
            assert status == 401 and "the password is wrong" in answered["error"]


@on_uvloop
async def test_wrong_passwords_are_slowed_down_and_right_ones_are_not(tmp_path: Path) -> None:
    async with serving(tmp_path, SASL) as broker:
        statuses = [
            (await send(broker, "login", {"user": "bob", "password": f"{at}"}, ""))[0]
            for at in range(11)
        ]
        assert statuses == [401] * 10 + [429]
        await log_in(broker, "bob", "bobs secret")


@on_uvloop
async def test_a_login_ends_with_its_time_its_password_and_its_user(tmp_path: Path) -> None:
    async with serving(tmp_path, SECURED) as broker:
        await act(broker, "users/create", user="ann", password=PASSWORD)
        token = await log_in(broker, "ann", PASSWORD)
        assert (await read(broker, "/api/topics", token))[0] == 200
        await act(broker, "users/create", user="ann", password="another one")
        assert (await read(broker, "/api/topics", token))[0] == 401
        token = await log_in(broker, "ann", "another one")
        await act(broker, "users/delete", user="ann")
        assert (await read(broker, "/api/topics", token))[0] == 401

        token = await log_in(broker, "bob", "bobs secret")
        now_ms = broker.clock.now_ms()
        assert broker.http.token is not None
        made = logins.Logins(
            broker.security, broker.http.token.text, lambda: now_ms + logins.LIFETIME_MS + 1_000
        )
        assert made.read(token) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda parts: [parts[0], base64.urlsafe_b64encode(b"root").decode(), *parts[2:]],
        lambda parts: [*parts[:2], str(int(parts[2]) + 1), parts[3]],
        lambda parts: [*parts[:3], parts[3][::-1]],
        lambda parts: parts[:3],
        lambda parts: [parts[0], "%", *parts[2:]],
        lambda parts: [*parts[:2], "9" * 5_000, parts[3]],
        lambda parts: [*parts[:2], "²", parts[3]],
    ],
)
@on_uvloop
async def test_a_changed_token_is_none(tmp_path: Path, change: Any) -> None:
    async with serving(tmp_path, SECURED) as broker:
        token = await log_in(broker, "bob", "bobs secret")
        changed = ".".join(change(token.split("."))).encode().decode("latin-1")
        assert (await read(broker, "/api/topics", changed))[0] == 401
        assert (await read(broker, "/api/topics", token))[0] == 200


@on_uvloop
async def test_lists_have_the_topics_and_groups_that_a_person_may_describe(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, SECURED) as broker:
        await act(broker, "users/create", user="ann", password=PASSWORD)
        for name in ("mine", "theirs"):
            await create(broker, name, 1)
            await act(broker, "groups/reset", group=f"{name}-group", topic=name, to="end")
        token = await log_in(broker, "ann", PASSWORD)
        await allow(broker, AclOperation.DESCRIBE, ResourceKind.TOPIC, "mine")
        await allow(broker, AclOperation.DESCRIBE, ResourceKind.GROUP, "mine-group")
        _, topics = await read(broker, "/api/topics", token)
        assert [one["name"] for one in topics["topics"]] == ["mine"]
        _, groups = await read(broker, "/api/groups", token)
        assert [one["group"] for one in groups["groups"]] == ["mine-group"]
        assert (await read(broker, "/api/topic?topic=mine", token))[0] == 200
        status, answered = await read(broker, "/api/topic?topic=theirs", token)
        assert (status, answered["error"]) == (
            403, "User:ann lacks the right DESCRIBE on topic theirs",
        )  # fmt: skip
        assert (await read(broker, "/api/records?topic=mine", token))[0] == 403
        await allow(broker, AclOperation.READ, ResourceKind.TOPIC, "mine")
        assert (await read(broker, "/api/records?topic=mine", token))[0] == 200


ACTIONS: list[tuple[str, Mapping[str, object], AclOperation, ResourceKind, str]] = [
    ("topics/create", {"topic": "new"}, AclOperation.CREATE, ResourceKind.TOPIC, "new"),
    ("records/produce", {"topic": "t", "key": "k"}, AclOperation.WRITE, ResourceKind.TOPIC, "t"),
    ("topics/delete", {"topic": "t"}, AclOperation.DELETE, ResourceKind.TOPIC, "t"),
    (
        "quotas/alter", {"user": "x", "set": {"producer_byte_rate": "1"}},
        AclOperation.ALTER_CONFIGS, ResourceKind.CLUSTER, CLUSTER_NAME,
    ),
    (
        "acls/delete", {"principal": "User:x", "operation": "READ", "resource": "CLUSTER"},
        AclOperation.ALTER, ResourceKind.CLUSTER, CLUSTER_NAME,
    ),
]  # fmt: skip


@on_uvloop
async def test_actions_need_the_right_that_kafka_asks_for(tmp_path: Path) -> None:
    async with serving(tmp_path, SECURED) as broker:
        await act(broker, "users/create", user="ann", password=PASSWORD)
        await create(broker, "t", 1)
        for path, members, operation, kind, name in ACTIONS:
            token = await log_in(broker, "ann", PASSWORD)
            body = {**members, "dry_run": True}
            status, answered = await send(broker, path, body, token)
            assert status == 403, (path, answered)
            await allow(broker, operation, kind, name)
            await allow(broker, AclOperation.DESCRIBE, ResourceKind.TOPIC, "t")
            status, answered = await send(broker, path, body, token)
            assert status == 200, (path, answered)


@pytest.mark.parametrize("count", [1, 2])
@on_uvloop
async def test_a_person_without_rights_gets_nothing_from_any_route(
    tmp_path: Path, count: int
) -> None:
    """Each route checks the person's rights itself, or has a right in the table.

    In a cluster a broker asks others, which would answer it whatever the person may do.
    """
    async with brokers(tmp_path, count) as (one, *others):
        await act(one, "users/create", user="ann", password=PASSWORD)
        await act(one, "topics/create", topic="secret-topic", partitions=4)
        await known_everywhere(others, "secret-topic")
        for number in range(4):
            wanted = {"topic": "secret-topic", "partition": number}
            await act(one, "records/produce", **wanted, key="secret-key")
        for group in ("secret-group", "secret-1", "secret-2", "secret-3"):
            await act(one, "groups/reset", group=group, topic="secret-topic", to="end")
        await act(one, "quotas/alter", user="secret-user", set={"producer_byte_rate": "1"})
        port = next(it.port for it in one.server.listeners if it.name == "PLAINTEXT")
        producers = [
            await asyncio.to_thread(begin_transaction, port, "secret-topic", f"secret-{at}")
            for at in range(4)
        ]
        token = await log_in(one, "ann", PASSWORD)
        assert one.http.server is not None
        query = "?topic=secret-topic&group=secret-group&key=secret-key&partition=0&broker=1"
        for route in one.http.server._runner.app.router.routes():
            assert route.resource is not None
            path = route.resource.canonical
            if path in FREE or path == "/api/login":
                continue
            targets = [path, path + query, f"{path}?topic=secret-topic", f"{path}?broker={count}"]
            for target in targets:
                status, _, body = await ask(one, target, bearer(token), route.method)
                for named in (b"topic secret-topic", b"group secret-group"):  # of the request
                    body = body.replace(named, b"")
                assert b"secret" not in body, (target, body)
                assert b'"end"' not in body and b"producer_id" not in body, (target, body)
                is_list = path in rights.CHECKED_ELSEWHERE
                assert status == 403 or (is_list and status in (200, 400, 404)), (target, body)
        del producers


@asynccontextmanager
async def brokers(path: Path, count: int) -> AsyncIterator[list[Broker]]:
    """Run brokers of one cluster that ask each other without a login."""
    settings = {
        **SECURED,
        "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "super.users": "User:ANONYMOUS",
        "metrics.listener": "127.0.0.1:0",
        **SLOW,
    }
    url = f"sqlite://{path / 'catalog.db'}"
    async with AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(member(path, url, number + 1, settings))
            for number in range(count)
        ]
        await until(lambda: all(len(one.brokers) == count for one in made))
        yield made


@on_uvloop
async def test_the_admin_token_and_a_super_user_may_do_everything(tmp_path: Path) -> None:
    async with serving(tmp_path, SECURED) as broker:
        await act(broker, "users/create", user="root", password=PASSWORD)
        await create(broker, "t", 1)
        token = await log_in(broker, "root", PASSWORD)
        for path in ("/api/broker", "/api/cleaner", "/api/records?topic=t", "/api/acls"):
            assert (await read(broker, path, token))[0] == 200
        assert (await send(broker, "topics/delete", {"topic": "t"}, token))[0] == 200
        assert (await get(broker, "/api/topics"))["topics"] == []


@on_uvloop
async def test_a_broker_without_users_says_how_to_have_some(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        status, answered = await send(broker, "login", {"user": "ann", "password": "x"}, "")
        assert status == 409 and "enable SCRAM-SHA-256" in answered["error"]
