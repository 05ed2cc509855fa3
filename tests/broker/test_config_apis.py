"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, at every version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.answers.config_operations import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    Edit,
    ResourceEdits,
    alteration,
)
from odradek.broker.apis import alter_configs, describe_configs, incremental_alter_configs
from odradek.broker.errors import CloseConnection
from odradek.broker.metadata.store import Resource, ResourceType
from odradek.config.resolution import Source
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import alter_configs as replacing
from odradek.protocol.messages import incremental_alter_configs as changing
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from tests.broker.admin import NODE_ID, Admin, admin, create, versions
from tests.support.requests import creatable

DESCRIBE, ALTER, INCREMENTAL = 32, 33, 44
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
ME = str(NODE_ID)


async def describe(
    broker: Admin,
    kind: int,
    name: str,
    *,
    keys: Sequence[str] | None = None,
    version: int = 4,
    explain: bool = True,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind,
                resource_name=name,
                configuration_keys=None if keys is None else list(keys),
            )
        ],
        include_synonyms=explain,
        include_documentation=explain and version >= 3,
    )
    response = await broker.call(describe_configs.handle, request, version)
    (result,) = response.results
    assert isinstance(result, DescribeConfigsResult)
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def entry(broker: Admin, kind: int, name: str, key: str) -> DescribeConfigsResourceResult:
    result = await describe(broker, kind, name, keys=[key])
    assert result.error_code == ErrorCode.NONE
    (config,) = result.configs
    return config


def synonyms(config: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(one.name, one.value, one.source) for one in config.synonyms]


Change = tuple[str, int, str | None]


async def change(
    broker: Admin,
    kind: int,
    name: str,
    *changes: Change,
    version: int = 1,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    """Send IncrementalAlterConfigs for one resource."""
    request = changing.IncrementalAlterConfigsRequest(
        resources=[changed(kind, name, *changes)], validate_only=validate_only
    )
    response = await broker.call(incremental_alter_configs.handle, request, version)
    (result,) = response.responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message


def changed(kind: int, name: str, *changes: Change) -> changing.AlterConfigsResource:
    return changing.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            changing.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )


async def replace(
    broker: Admin,
    kind: int,
    name: str,
    configs: Mapping[str, str | None],
    *,
    version: int = 2,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    """Send AlterConfigs for one resource."""
    resource = replacing.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            replacing.AlterableConfig(name=key, value=value) for key, value in configs.items()
        ],
    )
    request = replacing.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    response = await broker.call(alter_configs.handle, request, version)
    (result,) = response.responses
    return result.error_code, result.error_message


def overrides(broker: Admin, name: str = "orders") -> dict[str, str]:
    topic = broker.topics.get(name)
    assert topic is not None
    return dict(topic.overrides)


# --- DescribeConfigs --------------------------------------------------------------------------


@versions(DESCRIBE)
async def test_describe_a_topic(tmp_path: Path, version: int) -> None:
    settings = {"log.retention.minutes": "5", "log.roll.ms": "7", "log.roll.hours": "2"}
    async with admin(tmp_path, settings) as broker:
        await create(broker, creatable("orders", configs={"cleanup.policy": "compact"}))
        result = await describe(broker, TOPIC, "orders", version=version)
        configs = {config.name: config for config in result.configs}
        policy, retention = configs["cleanup.policy"], configs["retention.ms"]
        assert (policy.value, policy.config_source) == ("compact", Source.TOPIC)
        assert synonyms(policy) == [
            ("cleanup.policy", "compact", Source.TOPIC),
            ("log.cleanup.policy", "delete", Source.DEFAULT),
        ]
        # As in Kafka, which forgets the names that come before the first one.
        assert (retention.value, retention.config_source) == ("300000", Source.DEFAULT)
        assert synonyms(retention) == []
        segment = configs["segment.ms"]
        assert (segment.value, segment.config_source) == ("7", Source.STATIC_BROKER)
        assert synonyms(segment) == [
            ("log.roll.ms", "7", Source.STATIC_BROKER),
            ("log.roll.hours", "2", Source.STATIC_BROKER),
            ("log.roll.hours", "168", Source.DEFAULT),
        ]
        assert not any(config.read_only or config.is_sensitive for config in result.configs)
        if version >= 3:
            assert (policy.config_type, retention.config_type) == (7, 5)  # list, long
            assert all(config.documentation for config in result.configs)


@versions(DESCRIBE)
async def test_describe_leaves_out_what_is_not_asked_for(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders"))
        keys = ["retention.ms", "no.such.option"]
        result = await describe(broker, TOPIC, "orders", keys=keys, version=version, explain=False)
        (config,) = result.configs
        assert (config.name, config.synonyms) == ("retention.ms", [])
        assert not config.documentation


async def test_describe_takes_an_empty_list_of_keys_for_all(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders"))
        some = await describe(broker, TOPIC, "orders", keys=[])
        assert some == await describe(broker, TOPIC, "orders")


async def test_describe_this_broker(tmp_path: Path) -> None:
    settings = {
        "num.partitions": "3",
        "ssl.keystore.password": "hunter2",
        "log.retention.ms": "1000",
        "my.own": "hunter2",
    }
    async with admin(tmp_path, settings) as broker:
        result = await describe(broker, BROKER, ME)
        configs = {config.name: config for config in result.configs}
        partitions = configs["num.partitions"]
        assert (partitions.value, partitions.config_source) == ("3", Source.STATIC_BROKER)
        assert synonyms(partitions) == [
            ("num.partitions", "3", Source.STATIC_BROKER),
            ("num.partitions", "1", Source.DEFAULT),
        ]
        assert partitions.read_only and not configs["log.retention.ms"].read_only
        for name in ("ssl.keystore.password", "my.own"):
            assert configs[name].is_sensitive
            assert configs[name].value is None
        assert "hunter2" not in repr(result)


async def test_describe_all_brokers_lists_only_settings_made_for_all(tmp_path: Path) -> None:
    async with admin(tmp_path, {"log.retention.ms": "1000"}) as broker:
        (kept,) = (await describe(broker, BROKER, "")).configs  # As Kafka's controller sets it.
        assert (kept.name, kept.value) == ("min.insync.replicas", "1")
        assert (await change(broker, BROKER, "", ("log.retention.ms", SET, "2000")))[0] == 0
        assert (await change(broker, BROKER, ME, ("log.retention.ms", SET, "3000")))[0] == 0
        config, _ = sorted((await describe(broker, BROKER, "")).configs, key=lambda c: c.name)
        source = Source.DYNAMIC_DEFAULT_BROKER
        assert (config.value, config.config_source) == ("2000", source)
        assert synonyms(config) == [("log.retention.ms", "2000", source)]
        mine = await entry(broker, BROKER, ME, "log.retention.ms")
        assert [value for _, value, _ in synonyms(mine)][:3] == ["3000", "2000", "1000"]


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid"),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid"),
        (BROKER, "7", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1"),
        (BROKER, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (64, ME, ErrorCode.INVALID_REQUEST, "Unsupported resource type: 64"),
        (0, "", ErrorCode.INVALID_REQUEST, "Unsupported resource type: 0"),
    ],
)
async def test_describe_says_what_it_cannot(
    tmp_path: Path, kind: int, name: str, code: ErrorCode, message: str
) -> None:
    async with admin(tmp_path) as broker:
        result = await describe(broker, kind, name)
        assert result.error_code == code
        assert message in (result.error_message or "")
        assert result.configs == []


# --- IncrementalAlterConfigs ------------------------------------------------------------------


@versions(INCREMENTAL)
async def test_single_settings_are_changed_and_others_stay(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path) as broker:
        kept = {"segment.ms": "1000", "retention.ms": "5", "cleanup.policy": "delete"}
        await create(broker, creatable("orders", configs=kept))
        changes: list[Change] = [
            ("retention.ms", DELETE, None),
            ("cleanup.policy", APPEND, "compact"),
            ("max.message.bytes", SET, "2048"),
        ]
        outcome = await change(broker, TOPIC, "orders", *changes, version=version)
        assert outcome == (ErrorCode.NONE, None)
        expected = {
            "segment.ms": "1000",
            "cleanup.policy": "delete,compact",
            "max.message.bytes": "2048",
        }
        assert overrides(broker) == expected
    async with admin(tmp_path) as broker:
        assert overrides(broker) == expected


@versions(INCREMENTAL)
async def test_validation_alone_changes_nothing(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders"))
        for kind, name, key in (
            (TOPIC, "orders", "retention.ms"),
            (BROKER, ME, "log.retention.ms"),
        ):
            for value, code in (("5", ErrorCode.NONE), ("soon", None)):
                found, _ = await change(
                    broker, kind, name, (key, SET, value), version=version, validate_only=True
                )
                assert found == code if code is not None else found != ErrorCode.NONE
        assert overrides(broker) == {}
        of_all = (await describe(broker, BROKER, "")).configs
        assert [one.name for one in of_all] == ["min.insync.replicas"]


async def test_a_resource_changes_wholly_or_not_at_all(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders"))
        outcome = await change(
            broker, TOPIC, "orders", ("retention.ms", SET, "5"), ("segment.ms", SET, "0")
        )
        assert outcome == (
            ErrorCode.INVALID_CONFIG,
            "Invalid value 0 for configuration segment.ms: Value must be at least 1",
        )
        assert overrides(broker) == {}


REFUSED: list[tuple[int, str, list[Change], ErrorCode, str]] = [
    (
        TOPIC,
        "orders",
        [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
        ErrorCode.INVALID_REQUEST,
        "Error due to duplicate config keys",
    ),
    (
        TOPIC,
        "orders",
        [("retention.ms", SET, None), ("cleanup.policy", APPEND, None)],
        ErrorCode.INVALID_REQUEST,
        "Null value not supported for : retention.ms, cleanup.policy",
    ),
    (
        TOPIC,
        "orders",
        [("retention.ms", 9, "1")],
        ErrorCode.UNKNOWN_SERVER_ERROR,
        "Unknown operations type 9",
    ),
    (
        TOPIC,
        "orders",
        [("retention.ms", APPEND, "1")],
        ErrorCode.INVALID_CONFIG,
        "Can't APPEND to key retention.ms because its type is not LIST.",
    ),
    (
        TOPIC,
        "orders",
        [("no.such", SUBTRACT, "1")],
        ErrorCode.INVALID_CONFIG,
        "Can't SUBTRACT to key no.such because its type is not LIST.",
    ),
    (
        TOPIC,
        "orders",
        [("no.such", SET, "1")],
        ErrorCode.INVALID_CONFIG,
        "Unknown topic config name: no.such",
    ),
    (
        TOPIC,
        "orders",
        [("min.compaction.lag.ms", SET, "5"), ("max.compaction.lag.ms", SET, "4")],
        ErrorCode.INVALID_CONFIG,
        "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)",
    ),
    (
        TOPIC,
        "nowhere",
        [("retention.ms", SET, "1")],
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "The topic 'nowhere' does not exist.",
    ),
    (
        TOPIC,
        "",
        [("retention.ms", SET, "1")],
        ErrorCode.INVALID_REQUEST,
        "Default topic resources are not allowed.",
    ),
    (TOPIC, "a/b", [], ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: 'a/b'"),
    # What a list is comes before the topic's name, and whose broker it is before the operation.
    (
        TOPIC,
        "a/b",
        [("retention.ms", 9, "1"), ("no.such", APPEND, "1")],
        ErrorCode.INVALID_CONFIG,
        "Can't APPEND to key no.such because its type is not LIST.",
    ),
    (
        BROKER,
        "7",
        [("log.retention.ms", 9, "1")],
        ErrorCode.INVALID_REQUEST,
        "Unexpected broker id, expected 1, but received 7",
    ),
    (
        BROKER,
        ME,
        [("no.such", APPEND, "1")],
        ErrorCode.INVALID_CONFIG,
        "Unknown config name: no.such",
    ),
    (64, ME, [("root", 9, "1")], ErrorCode.INVALID_REQUEST, "Unknown resource type 64"),
    (
        BROKER,
        "7",
        [("log.retention.ms", SET, "1")],
        ErrorCode.INVALID_REQUEST,
        "Unexpected broker id, expected 1, but received 7",
    ),
    (
        BROKER,
        ME,
        [("num.partitions", SET, "3")],
        ErrorCode.INVALID_REQUEST,
        "Cannot update these configs dynamically: [num.partitions]",
    ),
    (
        BROKER,
        "",
        [("listener.name.a.ssl.keystore.type", SET, "PEM")],
        ErrorCode.INVALID_REQUEST,
        "Cannot update these configs at default cluster level, broker id must be specified",
    ),
    (
        BROKER,
        ME,
        [("log.retention.ms", SET, "soon")],
        ErrorCode.INVALID_REQUEST,
        "Invalid value soon for configuration log.retention.ms",
    ),
    (64, ME, [("root", SET, "DEBUG")], ErrorCode.INVALID_REQUEST, "Unknown resource type 64"),
    (0, "", [], ErrorCode.INVALID_REQUEST, "Unknown resource type 0"),
]


@pytest.mark.parametrize(("kind", "name", "changes", "code", "message"), REFUSED)
async def test_wrong_changes_are_refused_in_kafkas_words(
    tmp_path: Path, kind: int, name: str, changes: list[Change], code: ErrorCode, message: str
) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders"))
        found, text = await change(broker, kind, name, *changes)
        assert found == code
        assert (text or "").startswith(message)
        assert overrides(broker) == {}


async def test_a_resource_that_comes_twice_is_refused_and_others_are_not(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders"), creatable("other"))
        setting: Change = ("retention.ms", SET, "5")
        names = ("orders", "other", "orders")
        request = changing.IncrementalAlterConfigsRequest(
            resources=[changed(TOPIC, name, setting) for name in names], validate_only=False
        )
        response = await broker.call(incremental_alter_configs.handle, request, 1)
        assert [(one.resource_name, one.error_code) for one in response.responses] == [
            ("orders", ErrorCode.INVALID_REQUEST),
            ("other", ErrorCode.NONE),
            ("orders", ErrorCode.INVALID_REQUEST),
        ]
        assert (overrides(broker), overrides(broker, "other")) == ({}, {"retention.ms": "5"})


async def test_a_broker_is_changed_at_once_and_for_good(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        heard: list[int] = []
        broker.configs.on_changed.append(lambda one: heard.append(one.max_connections_per_ip))
        for name, value in (("", "50"), (ME, "60")):
            limit: Change = ("max.connections.per.ip", SET, value)
            assert (await change(broker, BROKER, name, limit))[0] == 0
        assert heard == [50, 60]
    async with admin(tmp_path) as broker:
        assert broker.config.max_connections_per_ip == 60
        unset: Change = ("max.connections.per.ip", DELETE, None)
        assert (await change(broker, BROKER, ME, unset))[0] == 0
        assert broker.config.max_connections_per_ip == 50


async def test_a_topic_shows_that_a_setting_comes_from_the_broker(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders"))
        assert (await change(broker, BROKER, ME, ("message.max.bytes", SET, "6000")))[0] == 0
        found = await entry(broker, TOPIC, "orders", "max.message.bytes")
        assert (found.value, found.config_source) == ("6000", Source.DYNAMIC_BROKER)


# --- AlterConfigs -----------------------------------------------------------------------------


@versions(ALTER)
async def test_replacing_settings_drops_those_left_out(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders", configs={"retention.ms": "5"}))
        new = {"segment.ms": "1000"}
        for validate_only, expected in ((True, {"retention.ms": "5"}), (False, new)):
            outcome = await replace(
                broker, TOPIC, "orders", new, version=version, validate_only=validate_only
            )
            assert outcome == (ErrorCode.NONE, None)
            assert overrides(broker) == expected


async def test_replacing_the_settings_of_the_broker(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        for configs in ({"message.max.bytes": "5000"}, {"log.retention.ms": "5"}):
            assert (await replace(broker, BROKER, "", configs))[0] == ErrorCode.NONE
        assert broker.configs.defaults_of_all_brokers == {"log.retention.ms": "5"}


@pytest.mark.parametrize(
    ("name", "configs", "code"),
    [
        ("orders", {"retention.ms": None}, ErrorCode.INVALID_REQUEST),
        ("orders", {"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ("nowhere", {"retention.ms": "1"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_a_replacement_that_is_refused_drops_nothing(
    tmp_path: Path, name: str, configs: dict[str, str | None], code: ErrorCode
) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders", configs={"retention.ms": "5"}))
        assert (await replace(broker, TOPIC, name, configs))[0] == code
        assert overrides(broker) == {"retention.ms": "5"}


# --- What operations make of settings, by themselves ------------------------------------------

words = st.sampled_from(["compact", "delete", "archive"])
lists = st.lists(words, max_size=4).map(",".join)


def operate(kind: int, value: str | None, present: Mapping[str, str]) -> dict[str, str]:
    operation = Edit("cleanup.policy", kind, value)
    return dict(alteration(ResourceEdits(TOPIC, "orders", [operation]))(present))


@given(present=lists, value=lists.filter(bool))
def test_appended_words_are_there_once_after_the_present_ones(present: str, value: str) -> None:
    made = operate(APPEND, value, {"cleanup.policy": present})["cleanup.policy"].split(",")
    before = [word for word in present.split(",") if word]
    assert made[: len(before)] == before
    assert set(made) == {*before, *value.split(",")}
    assert len(made) - len(before) == len(set(value.split(",")) - set(before))


@given(present=st.lists(words, unique=True).map(",".join), value=lists)
def test_subtracted_words_are_gone_and_the_rest_stays(present: str, value: str) -> None:
    made = operate(SUBTRACT, value, {"cleanup.policy": present})["cleanup.policy"]
    gone = set(value.split(","))
    assert [word for word in made.split(",") if word] == [
        word for word in present.split(",") if word and word not in gone
    ]


def test_a_list_that_is_not_set_begins_as_its_declared_default() -> None:
    assert operate(APPEND, "compact", {}) == {"cleanup.policy": "delete,compact"}
    assert operate(SUBTRACT, "delete", {}) == {"cleanup.policy": ""}


def test_long_lists_are_changed_in_time_that_grows_with_their_length() -> None:
    # Compared item by item with each other they would take minutes.
    names = [f"item-{number}" for number in range(100_000)]
    present = {"cleanup.policy": ",".join(names)}
    for kind, value in ((APPEND, [f"{name}-more" for name in names]), (SUBTRACT, names[::-1])):
        operation = Edit("cleanup.policy", kind, ",".join(value))
        altered = alteration(ResourceEdits(ResourceType.TOPIC, "t", [operation]))(present)
        left = altered["cleanup.policy"].split(",")
        assert len(left) == (2 * len(names) if kind == APPEND else 1)


async def test_a_resource_that_is_named_again_is_described_again_in_bounds(
    tmp_path: Path,
) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("t"))
        asked = [
            DescribeConfigsResource(
                resource_type=TOPIC, resource_name="t", configuration_keys=keys
            )
            for keys in (None, [], ["cleanup.policy"], None, 2 * ["cleanup.policy"])
        ]
        request = DescribeConfigsRequest(resources=asked)
        response = await broker.call(describe_configs.handle, request, 4)
        counts = [len(one.configs) for one in response.results]
        assert counts == [counts[0], counts[0], 1, counts[0], 1] and counts[0] > 1
        with pytest.raises(CloseConnection):
            too_often = DescribeConfigsRequest(resources=10_000 * asked)
            await broker.call(describe_configs.handle, too_often, 4)


@versions(INCREMENTAL)
async def test_min_insync_replicas_stays_a_setting_of_all_brokers(
    tmp_path: Path, version: int
) -> None:
    removal, addition = ("min.insync.replicas", DELETE, None), ("min.insync.replicas", SET, "2")
    async with admin(tmp_path, {"min.insync.replicas": "3"}) as broker:
        broker.configs.min_isr_is_fixed = lambda: True
        for name, wish in (("", removal), (ME, addition)):
            found, message = await change(broker, BROKER, name, wish, version=version)
            assert found == ErrorCode.INVALID_CONFIG
            assert message is not None and message.endswith("while ELR is enabled.")
        assert broker.configs.defaults_of_all_brokers == {"min.insync.replicas": "3"}
        assert (await change(broker, BROKER, "", addition, version=version))[0] == ErrorCode.NONE
        mine = await entry(broker, BROKER, ME, "min.insync.replicas")
        assert [value for _, value, _ in synonyms(mine)] == ["2", "3", "1"]
        broker.configs.min_isr_is_fixed = lambda: False
        assert (await change(broker, BROKER, "", removal, version=version))[0] == ErrorCode.NONE


async def test_stored_settings_that_clients_may_not_make_are_ignored_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    planted = "listener.name.external.sasl.oauthbearer.jwks.endpoint.url"
    settings = {planted: "file:///etc/passwd", "log.cleaner.backoff.ms": "7000"}
    async with admin(tmp_path) as broker:
        await broker.store.replace_configs({Resource(ResourceType.BROKER, "1"): settings})
    async with admin(tmp_path) as broker:
        names = {one.name for one in (await describe(broker, BROKER, "1")).configs}
        assert planted not in names
        assert (await entry(broker, BROKER, "1", "log.cleaner.backoff.ms")).value == "7000"
        assert f"Cannot update these configs dynamically: [{planted}]" in caplog.text
        # They do not keep others from being changed.
        change_it = ("log.cleaner.backoff.ms", SET, "8000")
        assert await change(broker, BROKER, "1", change_it) == (0, None)


async def test_settings_of_many_groups_are_written_at_once(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        before = broker.store.revision
        timeout = "consumer.session.timeout.ms"
        asked = [changed(ResourceType.GROUP, f"g{n}", (timeout, SET, "46000")) for n in range(50)]
        refused = changed(ResourceType.GROUP, "bad", (timeout, SET, "1"))
        heard: list[int] = []
        broker.configs.resources.on_changed.append(lambda some: heard.append(len(some)))
        request = changing.IncrementalAlterConfigsRequest(
            resources=[*asked, refused], validate_only=False
        )
        response = await broker.call(incremental_alter_configs.handle, request, 1)
        codes = [one.error_code for one in response.responses]
        assert codes[:-1] == 50 * [ErrorCode.NONE] and codes[-1] != ErrorCode.NONE
        assert broker.store.revision == before + 1
        assert heard == [50]
        assert len(broker.configs.resources.of_type(ResourceType.GROUP)) == 50
