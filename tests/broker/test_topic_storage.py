"""A topic keeps the storage that it was created with: the log directories or an object store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.broker.apis.describe_configs import handle as describe_configs
from odradek.broker.metadata.store import ResourceType
from odradek.broker.topics import names
from odradek.broker.topics.plans import NewTopic, TopicPlan
from odradek.config.errors import ConfigError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tests.broker import admin as admins
from tests.broker.admin import Admin, admin
from tests.broker.live import create, on_uvloop, until
from tests.broker.test_cluster import SLOW, member
from tests.broker.test_config_apis import change, replace
from tests.support.requests import creatable

STORAGE = "odradek.storage"
LOCAL, OBJECT = {STORAGE: "local"}, {STORAGE: "object"}
NEEDS_STORE = "odradek.storage=object needs an object store: set odradek.object.store.url"
SET, DELETE = 0, 1


def with_store(path: Path, **settings: str) -> dict[str, str]:
    return {
        "odradek.catalog.url": f"sqlite://{path}/catalog.db",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "odradek.object.store.url": path.as_uri(),
        **settings,
    }


def storage_of(broker: Admin, name: str) -> str:
    topic = broker.topics.get(name)
    assert topic is not None
    return topic.config.odradek_storage


async def created(broker: Admin, name: str, configs: Mapping[str, str] | None = None) -> str:
    (outcome,) = await broker.topics.create([NewTopic(name, configs=configs or {})])
    assert isinstance(outcome, TopicPlan), outcome
    return storage_of(broker, name)


async def test_topics_get_the_storage_that_they_ask_for(tmp_path: Path) -> None:
    async with admin(tmp_path, with_store(tmp_path)) as broker:
        assert await created(broker, "plain") == "object"
        assert await created(broker, "local", LOCAL) == "local"
        assert await created(broker, "shared", OBJECT) == "object"
    async with admin(tmp_path, with_store(tmp_path)) as broker:
        assert [storage_of(broker, one) for one in ("plain", "local", "shared")] == [
            "object", "local", "object",
        ]  # fmt: skip


async def test_new_topics_get_the_brokers_storage_and_keep_it(tmp_path: Path) -> None:
    async with admin(tmp_path, with_store(tmp_path)) as broker:
        assert await created(broker, "before") == "object"
        await broker.configs.alter("", lambda _: LOCAL, validate_only=False)
        assert storage_of(broker, "before") == "object"
        assert await created(broker, "during") == "local"
        assert await created(broker, "shared", OBJECT) == "object"
        await broker.topics.internal(names.SHARE_GROUP_STATE)
        await broker.configs.alter("", lambda _: {}, validate_only=False)
        await broker.topics.internal(names.CONSUMER_OFFSETS)
        assert await created(broker, "after") == "object"
    async with admin(tmp_path, with_store(tmp_path)) as broker:
        found = {topic.name: topic.config.odradek_storage for topic in broker.topics}
        assert found == {
            "before": "object", "during": "local", "shared": "object", "after": "object",
            names.SHARE_GROUP_STATE: "local", names.CONSUMER_OFFSETS: "object",
        }  # fmt: skip


async def test_without_a_store_no_topic_can_be_shared(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        for is_dry in (True, False):
            wanted = creatable("shared", configs=OBJECT)
            (result,) = (await admins.create(broker, wanted, validate_only=is_dry)).topics
            assert result.error_code == ErrorCode.INVALID_CONFIG
            assert NEEDS_STORE in (result.error_message or "")
        await created(broker, "plain")
        code, message = await change(
            broker, ResourceType.TOPIC, "plain", (STORAGE, SET, "object")
        )
        assert code == ErrorCode.INVALID_CONFIG
        assert NEEDS_STORE in (message or "")
        code, message = await change(broker, ResourceType.BROKER, "", (STORAGE, SET, "object"))
        assert code == ErrorCode.INVALID_REQUEST
        assert NEEDS_STORE in (message or "")
        assert storage_of(broker, "plain") == "local"


async def test_the_storage_of_a_topic_changes_only_when_it_is_named(tmp_path: Path) -> None:
    async with admin(tmp_path, with_store(tmp_path)) as broker:
        await created(broker, "plain", LOCAL)
        await created(broker, "shared", OBJECT)
        topic = ResourceType.TOPIC
        refused = [
            await change(broker, topic, "shared", (STORAGE, DELETE, None)),
            await replace(broker, topic, "shared", {"retention.ms": "5"}),
        ]
        message = f"topic shared has {STORAGE}=object: keep it, or set local"
        assert refused == [(ErrorCode.INVALID_CONFIG, message)] * 2
        accepted = [
            await change(broker, topic, "plain", (STORAGE, SET, "local")),
            await change(broker, topic, "plain", (STORAGE, DELETE, None)),
            await change(broker, topic, "shared", (STORAGE, SET, "object")),
            await change(broker, topic, "shared", ("retention.ms", SET, "5")),
            await replace(broker, topic, "shared", {**OBJECT, "retention.ms": "6"}),
        ]
        assert accepted == [(ErrorCode.NONE, None)] * len(accepted)
        assert (storage_of(broker, "plain"), storage_of(broker, "shared")) == ("local", "object")
        accepted = [
            await change(broker, topic, "plain", (STORAGE, SET, "object")),
            await change(broker, topic, "shared", (STORAGE, SET, "local")),
        ]
        assert accepted == [(ErrorCode.NONE, None)] * 2
        assert (storage_of(broker, "plain"), storage_of(broker, "shared")) == ("object", "local")


async def test_a_start_without_the_store_of_a_shared_topic_names_the_topic(tmp_path: Path) -> None:
    async with admin(tmp_path, with_store(tmp_path)) as broker:
        await created(broker, "shared", OBJECT)
    with pytest.raises(ConfigError, match=f"topic shared: {NEEDS_STORE}"):
        async with admin(tmp_path):
            pass


async def test_storage_is_described_where_it_is_set(tmp_path: Path) -> None:
    async with admin(tmp_path, with_store(tmp_path)) as broker:
        await created(broker, "plain", LOCAL)
        await created(broker, "shared", OBJECT)
        asked = [
            DescribeConfigsResource(
                resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=None
            )
            for name in ("plain", "shared")
        ]
        response = await broker.call(describe_configs, DescribeConfigsRequest(resources=asked), 4)
        found = [
            [one.value for one in result.configs if one.name == STORAGE]
            for result in response.results
        ]
        assert found == [["local"], ["object"]]


@on_uvloop
async def test_a_broker_without_the_store_does_not_take_a_shared_topic_for_a_local_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite://{tmp_path}/catalog.db"
    store = {**SLOW, "odradek.object.store.url": tmp_path.as_uri()}
    async with member(tmp_path, url, 1, store) as one, member(tmp_path, url, 2) as two:
        await until(lambda: len(one.brokers) == 2)
        await create(one, "shared", 2, OBJECT)
        await until(lambda: two.topics.get("shared") is not None)
        found = two.topics.get("shared")
        assert found is not None
        assert found.config.odradek_storage == "object"
        assert f"do not fit topic=shared: {NEEDS_STORE}" in caplog.text
