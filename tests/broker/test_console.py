"""The page's actions over HTTP: what they will do, what they do, and what they refuse."""

from __future__ import annotations

import asyncio
import base64
import gzip
import importlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.composition import Broker
from odradek.broker.web.console.body import Body
from odradek.broker.web.console.routes import ACTIONS
from odradek.broker.web.requests import Problem
from odradek.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from odradek.protocol.partitioning import partition_of_key
from tests.broker.console import act, begin_transaction, plan, refused, send
from tests.broker.live import client, create, on_uvloop, until
from tests.broker.test_cluster import known_everywhere
from tests.broker.test_cluster_routes import cluster
from tests.broker.web import get, request, serving
from tests.support.requests import committing

SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
# Coordinated by both of two brokers.
GROUPS = ("a", "b", "c", "d", "e")
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=5,
)


async def ends(broker: Broker, topic: str) -> Mapping[int, tuple[int, int]]:
    shown = await get(broker, "/api/topic", topic=topic)
    return {
        one["partition"]: (one["log_start_offset"], one["log_end_offset"])
        for one in shown["partition_rows"]
    }


async def settings(broker: Broker, topic: str) -> Mapping[str, Any]:
    shown = await get(broker, "/api/configs", topic=topic)
    return {one["name"]: one for one in shown["settings"]}


# --- all actions ------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ACTIONS)
def test_the_table_has_the_actions_of_each_part(part: str) -> None:
    module = importlib.import_module(f"odradek.broker.web.console.{part}")
    unused: Any = None
    assert [one.name for one in module.make(unused, unused)] == list(ACTIONS[part])


@on_uvloop
async def test_every_action_needs_the_token(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        for part, names in ACTIONS.items():
            for name in names:
                assert (await send(broker, f"{part}/{name}", {}, ""))[0] == 401
                assert (await send(broker, f"{part}/{name}", {}))[0] == 400


# Bodies, and the status and the error of the answer.
MALFORMED: list[tuple[bytes | object, int, str]] = [
    (b"{", 400, "the body is not JSON"),
    (b"", 400, "the body is not JSON"),
    (b"[" * 60_000, 400, "the body is not JSON"),
    (b'{"partitions": ' + b"9" * 9_000 + b"}", 400, "the body is not JSON"),
    (b"[]", 400, "a JSON object"),
    ({"topic": 7}, 400, "topic must be a text"),
    ({"topic": "t", "partition": 1}, 400, "'partition' is not a member: use topic"),
    ({"topic": "t", "partitions": "2"}, 400, "partitions must be a whole number from 1"),
    ({"topic": "t", "partitions": 0}, 400, "partitions must be a whole number from 1"),
    ({"topic": "t", "configs": {"a": 1}}, 400, "configs must be an object of texts"),
    (b'{"topic": "\\ud800"}', 400, "a character that UTF-8 cannot write"),
    (b" " * 70_000, 413, "65,536 are allowed"),
]


@on_uvloop
async def test_a_malformed_body_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        for body, status, error in MALFORMED:
            answered = await send(broker, "topics/create", body)
            assert answered[0] == status and error in answered[1]["error"], answered
        assert not list(broker.topics)


@on_uvloop
async def test_a_compressed_body_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        body, header = gzip.compress(bytes(1 << 20)), {"Content-Encoding": "gzip"}
        status, answered = await send(broker, "topics/create", body, **header)
        assert status == 415 and "must not be compressed" in answered["error"]


@given(st.dictionaries(st.sampled_from(["topic", "partition", "set", "dry_run"]), JSON_VALUES))
def test_members_of_any_type_are_read_or_refused(members: dict[str, Any]) -> None:
    body = Body(members, ("topic", "partition", "set", "dry_run"))
    for name in members:
        for read in (
            body.text, body.optional_text, body.number, body.flag, body.texts, body.numbers,
            body.named_texts,
        ):  # fmt: skip
            try:
                read(name)
            except Problem as problem:
                assert problem.status == 400 and str(problem).startswith(name)


@on_uvloop
async def test_actions_are_in_the_audit_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    async with serving(tmp_path) as broker:
        await plan(broker, "topics/create", topic="planned")
        await act(broker, "topics/create", topic="made")
    lines = [one.getMessage() for one in caplog.records if "over HTTP" in one.getMessage()]
    assert lines == [
        "Principal = the admin token from host = 127.0.0.1 over HTTP: Topic made was created with "
        "1 partition."
    ]


# --- topics -----------------------------------------------------------------------------------


@on_uvloop
async def test_creates_alters_and_deletes_a_topic(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        wanted = {"topic": "t", "partitions": 2, "configs": {"cleanup.policy": "compact"}}
        planned = await plan(broker, "topics/create", **wanted)
        assert planned["will"] == [
            "Create topic t with 2 partitions.", "Set cleanup.policy to compact.",
        ]  # fmt: skip
        assert not list(broker.topics)
        await act(broker, "topics/create", **wanted)
        assert len(await ends(broker, "t")) == 2

        change = {"topic": "t", "set": {"retention.ms": "60000"}, "delete": ["cleanup.policy"]}
        planned = await plan(broker, "topics/alter", **change, partitions=3)
        assert planned["will"] == [
            "Set retention.ms to 60000: it is 604800000 now, the default.",
            "Remove cleanup.policy, which is compact now.",
            "Add 1 partition to topic t: 3 in all.",
        ]
        assert len(await ends(broker, "t")) == 2
        assert not (await settings(broker, "t"))["retention.ms"]["is_own"]
        await act(broker, "topics/alter", **change, partitions=3)
        assert len(await ends(broker, "t")) == 3
        after = await settings(broker, "t")
        assert after["retention.ms"]["value"] == "60000"
        assert after["retention.ms"]["otherwise"] == "604800000"
        assert (after["cleanup.policy"]["value"], after["cleanup.policy"]["is_own"]) == (
            "delete", False,
        )  # fmt: skip
        assert all(one["documentation"] for one in after.values())

        assert (await plan(broker, "topics/delete", topic="t"))["will"] == [
            "Delete topic t with its 3 partitions."
        ]
        assert broker.topics.get("t") is not None
        await act(broker, "topics/delete", topic="t")
        assert broker.topics.get("t") is None


# Actions, and the status and the error of the answer.
IMPOSSIBLE: list[tuple[str, dict[str, object], int, str]] = [
    ("topics/create", {"topic": "t"}, 409, "already exists"),
    ("topics/create", {"topic": "a/b"}, 400, "a/b"),
    ("topics/create", {"topic": "u", "configs": {"cleanup.policy": "x"}}, 400, "Invalid value"),
    ("topics/create", {"topic": "u", "configs": {"no.such": "x"}}, 400, "no.such"),
    ("topics/alter", {"topic": "t"}, 400, "nothing is to be altered"),
    ("topics/alter", {"topic": "u", "partitions": 3}, 404, "there is no topic u"),
    ("topics/alter", {"topic": "t", "partitions": 1}, 400, "partition"),
    ("topics/alter", {"topic": "t", "set": {"retention.ms": "x"}}, 400, "retention.ms"),
    ("topics/alter", {"topic": "t", "set": {"no.such": "x"}}, 400, "no.such"),
    ("topics/alter", {"topic": "t", "delete": ["no.such"]}, 400, "no.such"),
    ("topics/empty", {"topic": "t", "before": 7}, 400, "give partition, too"),
    ("topics/empty", {"topic": "t", "partition": 2}, 404, "no partition 2"),
    ("topics/empty", {"topic": "compacted"}, 409, "is only compacted"),
    ("topics/delete", {"topic": "u"}, 404, "there is no topic u"),
    ("records/produce", {"topic": "u"}, 404, "there is no topic u"),
    ("records/produce", {"topic": "t", "partition": 2}, 404, "no partition 2"),
    ("records/produce", {"topic": "compacted", "value": "v"}, 400, "need a key"),
    ("records/produce", {"topic": "t", "key": "a", "key_base64": "YQ=="}, 400, "not both"),
    ("records/produce", {"topic": "t", "value_base64": "%"}, 400, "is not base64"),
    ("groups/reset", {"group": "g", "topic": "t", "to": "soon"}, 400, "is none of: beginning"),
    ("groups/reset", {"group": "g", "topic": "t", "to": "end", "partitions": [2]}, 404, "2"),
    ("groups/reset", {"group": "g", "topic": "u", "to": "end"}, 404, "there is no topic u"),
    ("groups/forget", {"group": "g", "topic": "t"}, 404, "has no offsets in topic t"),
    ("groups/delete", {"group": "g"}, 404, "there is no group g"),
    ("users/delete", {"user": "ann"}, 404, "there is no user ann"),
    ("users/create", {"user": "ann", "password": "p", "mechanisms": ["PLAIN"]}, 400, "PLAIN"),
    ("quotas/alter", {"set": {"producer_byte_rate": "1"}}, 400, "name the entity"),
    ("quotas/alter", {"user": "ann"}, 400, "nothing is to be altered"),
    ("quotas/alter", {"user": "ann", "set": {"producer_byte_rate": "x"}}, 400, "not a number"),
    ("quotas/alter", {"user": "ann", "set": {"no_such": "1"}}, 400, "no_such"),
    ("transactions/abort", {"transactional_id": "x"}, 404, "no transactional id x"),
    ("producers/abort", {"topic": "t", "partition": 0}, 400, "producer_id"),
    ("producers/abort", {"topic": "t", "partition": 0, "producer_id": 7}, 409, "no open"),
]


@on_uvloop
async def test_refuses_what_cannot_be_done(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await create(broker, "t", 2)
        await create(broker, "compacted", 1, {"cleanup.policy": "compact"})
        for path, members, status, error in IMPOSSIBLE:
            found = await refused(broker, path, **members)
            assert found[0] == status and error in found[1], (path, members, found)


@on_uvloop
async def test_empties_a_topic_or_the_beginning_of_a_partition(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await create(broker, "t", 2)
        for number in (0, 0, 0, 1):
            await act(broker, "records/produce", topic="t", partition=number, value="v")
        planned = await plan(broker, "topics/empty", topic="t", partition=0, before=2)
        assert planned["rows"] == [{"partition": 0, "start_offset": 0, "start_then": 2}]
        assert await ends(broker, "t") == {0: (0, 3), 1: (0, 1)}
        await act(broker, "topics/empty", topic="t", partition=0, before=2)
        assert await ends(broker, "t") == {0: (2, 3), 1: (0, 1)}
        planned = await plan(broker, "topics/empty", topic="t", partition=0, before=0)
        assert planned["will"] == ["Delete the records at 0 offsets of t."]
        assert planned["rows"] == []
        planned = await plan(broker, "topics/empty", topic="t")
        assert planned["will"] == ["Delete the records at 2 offsets of t."]
        await act(broker, "topics/empty", topic="t")
        assert await ends(broker, "t") == {0: (3, 3), 1: (1, 1)}


@on_uvloop
async def test_warns_of_a_new_policy_and_of_keys_in_more_partitions(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await create(broker, "t", 1, {"cleanup.policy": "compact"})
        change = {"cleanup.policy": "delete,compact", "retention.ms": "1000"}
        planned = await plan(broker, "topics/alter", topic="t", set=change, partitions=2)
        retention, keys = planned["warnings"]
        assert "retention.ms=1000 (1 second), retention.bytes=-1" in retention
        assert "another partition" in keys
        change = {"cleanup.policy": "compact"}
        assert not (await plan(broker, "topics/alter", topic="t", set=change))["warnings"]


# --- records ----------------------------------------------------------------------------------


@on_uvloop
async def test_writes_records_that_a_consumer_reads(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await create(broker, "t", 3)
        data = bytes(range(256))
        encoded = base64.b64encode(data).decode()
        assert await act(
            broker, "records/produce", topic="t", key="p3", value="ü", headers={"a": "b"}
        ) == [f"The record is in partition {partition_of_key(b'p3', 3)} of t, at offset 0."]
        await act(broker, "records/produce", topic="t", key="p3")
        await act(
            broker, "records/produce", topic="t", key_base64=encoded, value_base64=encoded,
            partition=1,
        )  # fmt: skip
        await plan(broker, "records/produce", topic="t", key="never")
        port = broker.server.listeners[0].port
        found = await asyncio.to_thread(read_all, port, "t", 3)
        assert sorted(found, key=repr) == sorted(
            [
                (partition_of_key(b"p3", 3), b"p3", "ü".encode(), [("a", b"b")]),
                (partition_of_key(b"p3", 3), b"p3", None, None),
                (1, data, data, None),
            ],
            key=repr,
        )


def read_all(port: int, topic: str, partitions: int) -> list[tuple[Any, ...]]:
    """Read all records of a topic up to the ends of its partitions."""
    consumer = Consumer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "g", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, one, 0) for one in range(partitions)])
    found, left = [], partitions
    while left:
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            left -= 1
        else:
            found.append(
                (message.partition(), message.key(), message.value(), message.headers())
            )
    consumer.close()
    return found


@on_uvloop
async def test_records_of_one_key_and_offsets_of_a_time_are_found(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await create(broker, "t", 2)
        for key in ("a", "ab", "a", ""):
            await act(broker, "records/produce", topic="t", key=key, value="ab", partition=0)
        for key, wanted in (("a", [2, 0]), ("ab", [1]), ("", [3]), ("b", [])):
            shown = await get(broker, "/api/records", topic="t", key=key)
            assert [one["offset"] for one in shown["records"]] == wanted
        status, _ = await request(broker, "GET", "/api/records?topic=t&key=a&search=b")
        assert status == 400
        shown = await get(broker, "/api/records", topic="t")
        latest_ms = max(one["timestamp_ms"] for one in shown["records"])
        for at_ms, at in ((0, 0), (latest_ms + 1, None)):
            shown = await get(broker, "/api/offsets", topic="t", at_ms=at_ms)
            assert shown["offsets"] == [
                {"partition": 0, "start": 0, "end": 4, "at": at},
                {"partition": 1, "start": 0, "end": 0, "at": None},
            ]


@on_uvloop
async def test_a_record_has_nearly_a_mebibyte_and_a_thousand_headers(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await create(broker, "t", 1)
        await act(broker, "records/produce", topic="t", value="v" * 1_000_000)
        many = {str(at): "" for at in range(1_001)}
        status, error = await refused(broker, "records/produce", topic="t", headers=many)
        assert status == 400 and "1,001 headers" in error


# --- groups -----------------------------------------------------------------------------------


async def commit(broker: Broker, group: str, offsets: Mapping[int, int]) -> None:
    async with client(broker) as one:
        answered = await one.ask(committing(group, {"t": offsets}), version=8)
        assert not any(one.error_code for one in answered.topics[0].partitions)


async def committed(broker: Broker, group: str) -> Mapping[int, int]:
    shown = await get(broker, "/api/group", group=group)
    return {one["partition"]: one["offset"] for one in shown["partition_rows"]}


@on_uvloop
async def test_moves_and_deletes_the_offsets_of_a_group(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await create(broker, "t", 2)
        for _ in range(4):
            await act(broker, "records/produce", topic="t", partition=0, value="v")
        await commit(broker, "g", {0: 1})
        reset = {"group": "g", "topic": "t"}
        planned = await plan(broker, "groups/reset", **reset, to="end")
        assert planned["rows"] == [
            {"topic": "t", "partition": 0, "before": 1, "after": 4},
            {"topic": "t", "partition": 1, "before": None, "after": 0},
        ]
        assert await committed(broker, "g") == {0: 1}
        for to, after in (
            ("end", 4), ("beginning", 0), ("3", 3), ("99", 4), ("@0", 0),
            ("@99999999999999", 4),
        ):  # fmt: skip
            await act(broker, "groups/reset", **reset, to=to, partitions=[0])
            assert await committed(broker, "g") == {0: after}
        await act(broker, "groups/forget", **reset)
        status, error = await refused(broker, "groups/forget", **reset)
        assert status == 404, error


@on_uvloop
async def test_a_group_with_members_stays_as_it_is(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await create(broker, "t", 1)
        port = broker.server.listeners[0].port
        member = Consumer(
            {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "g", "log_level": 0}
        )
        member.subscribe(["t"])

        async def has_joined() -> bool:
            await asyncio.to_thread(member.poll, 0.1)
            found = (await get(broker, "/api/groups"))["groups"]
            return any(one["state"] == "Stable" for one in found)

        await until(has_joined)
        status, error = await refused(broker, "groups/delete", group="g")
        assert status == 409 and "has members" in error
        status, answered = await send(
            broker, "groups/reset", {"group": "g", "topic": "t", "to": "end"}
        )
        assert status >= 400, answered
        await asyncio.to_thread(member.close)
        await act(broker, "groups/delete", group="g")
        assert (await get(broker, "/api/groups"))["groups"] == []


@on_uvloop
async def test_moves_and_deletes_the_offsets_of_a_share_group(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await create(broker, "t", 1)
        for _ in range(4):
            await act(broker, "records/produce", topic="t", value="v")
        async with client(broker) as one:
            for epoch in (0, -1):  # joins, and leaves
                request = ShareGroupHeartbeatRequest(
                    group_id="jobs",
                    member_id="a-member",
                    member_epoch=epoch,
                    subscribed_topic_names=["t"] if epoch == 0 else None,
                )

                async def answered(request: ShareGroupHeartbeatRequest = request) -> bool:
                    answer = await one.ask(request, version=1)
                    return not answer.error_code

                await until(answered)
        reset = {"group": "jobs", "topic": "t"}
        await act(broker, "groups/reset", **reset, to="end")
        planned = await plan(broker, "groups/reset", **reset, to="1")
        assert planned["rows"] == [{"topic": "t", "partition": 0, "before": 4, "after": 1}]
        await act(broker, "groups/reset", **reset, to="1")
        (row,) = (await get(broker, "/api/group", group="jobs"))["partition_rows"]
        assert (row["offset"], row["lag"]) == (1, 3)
        await act(broker, "groups/forget", **reset)
        assert (await refused(broker, "groups/forget", **reset))[0] == 404
        await act(broker, "groups/delete", group="jobs")
        assert (await get(broker, "/api/groups"))["groups"] == []


# --- rights -----------------------------------------------------------------------------------


@on_uvloop
async def test_entries_are_created_listed_and_deleted(tmp_path: Path) -> None:
    entry = {
        "principal": "User:ann", "operation": "READ", "permission": "ALLOW", "host": "*",
        "resource": "TOPIC", "name": "pri", "pattern": "PREFIXED",
    }  # fmt: skip
    async with serving(tmp_path, SECURED) as broker:
        planned = await plan(broker, "acls/create", **entry)
        assert planned["will"] == [
            "Create an entry: User:ann may READ on topic names that begin with pri."
        ]
        assert (await get(broker, "/api/acls"))["acls"] == []
        await act(broker, "acls/create", **entry)
        assert (await get(broker, "/api/acls"))["acls"] == [entry]
        await act(broker, "acls/delete", **entry)
        assert (await get(broker, "/api/acls"))["acls"] == []
        status, error = await refused(broker, "acls/create", **{**entry, "principal": "ann"})
        assert status == 400 and "write User:ann" in error
        status, error = await refused(broker, "acls/create", **{**entry, "operation": "ANY"})
        assert status == 400 and "operation must be one of ALL, READ" in error


@on_uvloop
async def test_entries_without_an_authorizer_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        status, body = await request(broker, "GET", "/api/acls")
        assert status == 400 and b"authorizer" in body.lower()


@on_uvloop
async def test_users_log_in_with_the_password_that_the_page_gave_them(tmp_path: Path) -> None:
    secured = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    }
    async with serving(tmp_path, secured) as broker:
        planned = await plan(broker, "users/create", user="ann", password="a secret")
        assert planned["will"] == [
            "Create user ann, for logins by SCRAM-SHA-256 and SCRAM-SHA-512."
        ]
        assert (await get(broker, "/api/users"))["users"] == []
        await act(broker, "users/create", user="ann", password="a secret", iterations=4096)
        (user,) = (await get(broker, "/api/users"))["users"]
        assert [one["iterations"] for one in user["credentials"]] == [4096, 4096]
        assert set(user["credentials"][0]) == {"mechanism", "iterations"}
        port = broker.server.listeners[0].port
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            topics = await asyncio.to_thread(log_in, port, mechanism, "a secret")
            assert topics == {}
        await act(broker, "users/delete", user="ann", mechanisms=["SCRAM-SHA-256"])
        (user,) = (await get(broker, "/api/users"))["users"]
        assert [one["mechanism"] for one in user["credentials"]] == ["SCRAM-SHA-512"]


def log_in(port: int, mechanism: str, password: str) -> Mapping[str, object]:
    """Log in as ann; return the topics that there are."""
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "ann",
            "sasl.password": password,
        }
    )
    found: Mapping[str, object] = producer.list_topics(timeout=10).topics
    return found


@on_uvloop
async def test_quotas_are_set_listed_and_deleted(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        wanted = {"user": "ann", "client_id": "", "set": {"producer_byte_rate": "1000"}}
        planned = await plan(broker, "quotas/alter", **wanted)
        assert planned["will"] == [
            "Set producer_byte_rate of user ann with every other client id to 1,000."
        ]
        assert (await get(broker, "/api/quotas"))["quotas"] == []
        await act(broker, "quotas/alter", **wanted)
        assert (await get(broker, "/api/quotas"))["quotas"] == [
            {"entity": {"user": "ann", "client-id": ""}, "values": {"producer_byte_rate": 1000.0}}
        ]
        removed = {"user": "ann", "client_id": "", "delete": ["producer_byte_rate"]}
        await act(broker, "quotas/alter", **removed)
        assert (await get(broker, "/api/quotas"))["quotas"] == []


# --- transactions -----------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["coordinator", "partition"])
@on_uvloop
async def test_aborts_a_transaction_that_hangs(tmp_path: Path, way: str) -> None:
    async with serving(tmp_path) as broker:
        await create(broker, "t", 1)
        port = broker.server.listeners[0].port
        producer = await asyncio.to_thread(begin_transaction, port, "t", "pay")
        (shown,) = (await get(broker, "/api/transactions"))["transactions"]
        assert (shown["transactional_id"], shown["state"]) == ("pay", "Ongoing")
        assert shown["partitions"] == [{"topic": "t", "partitions": [0]}]
        (state,) = (await get(broker, "/api/producers", topic="t"))["producers"]
        assert (state["producer_id"], state["transaction_from"]) == (shown["producer_id"], 0)
        if way == "coordinator":
            planned = await plan(broker, "transactions/abort", transactional_id="pay")
            assert planned["will"] == ["Abort the transaction of pay in 1 partition."]
            await act(broker, "transactions/abort", transactional_id="pay")
        else:
            chosen = {"topic": "t", "partition": 0, "producer_id": shown["producer_id"]}
            (sentence,) = (await plan(broker, "producers/abort", **chosen))["will"]
            assert "open since offset 0" in sentence
            await act(broker, "producers/abort", **chosen)

        async def is_over() -> bool:
            (state,) = (await get(broker, "/api/producers", topic="t"))["producers"]
            return state["transaction_from"] is None

        await until(is_over)
        topic = broker.topics.get("t")
        assert topic is not None and topic.logs[0].last_stable_offset == 2
        del producer


# --- a cluster --------------------------------------------------------------------------------


@on_uvloop
async def test_any_broker_acts_on_the_partitions_and_groups_of_others(tmp_path: Path) -> None:
    async with cluster(tmp_path, f"sqlite://{tmp_path / 'catalog.db'}", (1, 2)) as (one, two):
        await act(one, "topics/create", topic="t", partitions=4)
        await known_everywhere([two], "t")
        for number in range(4):
            for broker in (one, two):
                await act(broker, "records/produce", topic="t", partition=number, value="v")
        moved = {"topic": "t", "to": "end"}
        for broker, other in ((one, two), (two, one)):
            for group in GROUPS:
                await act(broker, "groups/reset", group=group, **moved)
                planned = await plan(other, "groups/reset", group=group, **moved)
                assert [row["before"] for row in planned["rows"]] == [2] * 4
                await act(other, "groups/delete", group=group)
        planned = await plan(two, "topics/empty", topic="t")
        assert planned["will"] == ["Delete the records at 8 offsets of t."]
        await act(two, "topics/empty", topic="t")
        assert {**await ends(one, "t"), **await ends(two, "t")} == dict.fromkeys(range(4), (2, 2))

        for asked in (one, two):
            for broker in (one, two):
                found = await get(asked, f"/api/configs?broker={broker.node_id}")
                values = {row["name"]: row["value"] for row in found["settings"]}
                assert values["node.id"] == str(broker.node_id)
        assert (await request(one, "GET", "/api/configs?broker=3"))[0] == 404

        port = one.server.listeners[0].port
        producer = await asyncio.to_thread(begin_transaction, port, "t", "pay")
        for broker in (one, two):
            (shown,) = (await get(broker, "/api/transactions"))["transactions"]
            (state,) = [
                row
                for row in (await get(broker, "/api/producers", topic="t"))["producers"]
                if row["transaction_from"] is not None
            ]
            assert state["producer_id"] == shown["producer_id"]
        (other,) = [broker for broker in (one, two) if broker.node_id != shown["coordinator"]]
        await act(other, "transactions/abort", transactional_id="pay")
        del producer
        await act(two, "topics/delete", topic="t")
