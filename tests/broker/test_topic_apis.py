"""CreateTopics, DeleteTopics and CreatePartitions, at every version."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.broker.apis import create_partitions, delete_topics
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.create_topics import CreatableTopic
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.wire import ZERO_UUID
from tests.broker.admin import NODE_ID, admin, codes, create, versions
from tests.support.requests import creatable

CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37
STRANGER = bytes(range(16))


# --- CreateTopics -----------------------------------------------------------------------------


@versions(CREATE_TOPICS)
async def test_create_topics_answers_with_what_was_made(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path, {"log.retention.hours": "1"}) as broker:
        asked = creatable("orders", 3, configs={"cleanup.policy": "compact"})
        response = await create(broker, asked, version=version)
        (result,) = response.topics
        assert (result.name, result.error_code, result.error_message) == ("orders", 0, None)
        topic = broker.topics.get("orders")
        assert topic is not None and len(topic.partitions) == 3
        if version >= 7:
            assert result.topic_id == topic.topic_id
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            assert result.configs is not None
            configs = {one.name: one for one in result.configs}
            assert list(configs) == sorted(configs)
            policy, retention = configs["cleanup.policy"], configs["retention.ms"]
            assert (policy.value, policy.config_source) == ("compact", 1)
            assert (retention.value, retention.config_source) == ("3600000", 4)
            assert configs["segment.bytes"].config_source == 5
            assert not any(one.read_only or one.is_sensitive for one in result.configs)


@versions(CREATE_TOPICS)
async def test_validate_only_makes_nothing(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path) as broker:
        good, bad = creatable("orders", 2), creatable("worse", 0)
        response = await create(broker, good, bad, version=version, validate_only=True)
        assert codes(response.topics) == {
            "orders": ErrorCode.NONE,
            "worse": ErrorCode.INVALID_PARTITIONS,
        }
        assert len(broker.topics) == 0


async def test_minus_one_stands_for_the_brokers_defaults(tmp_path: Path) -> None:
    async with admin(tmp_path, {"num.partitions": "4"}) as broker:
        response = await create(broker, creatable("orders", -1, -1))
        (result,) = response.topics
        assert (result.num_partitions, result.replication_factor) == (4, 1)


async def test_partitions_can_be_assigned_by_hand(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        asked = creatable("orders", -1, -1, assignments={1: [NODE_ID], 0: [NODE_ID]})
        response = await create(broker, asked)
        assert codes(response.topics) == {"orders": ErrorCode.NONE}
        assert response.topics[0].num_partitions == 2


START = "The manual partition assignment includes"

REFUSED = [
    (creatable("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: 'a/b' contains"),
    (creatable("orders"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'orders' already exists."),
    (
        creatable("a_b"),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'a_b' collides with existing topic: a.b",
    ),
    (
        creatable("__cluster_metadata"),
        ErrorCode.INVALID_REQUEST,
        "Creation of internal topic __cluster_metadata is prohibited.",
    ),
    (
        creatable("new", 0),
        ErrorCode.INVALID_PARTITIONS,
        "Number of partitions was set to an invalid non-positive value.",
    ),
    (creatable("new", 10_001), ErrorCode.POLICY_VIOLATION, "Excessively large number of part"),
    (
        creatable("new", 1, 0),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Replication factor must be larger than 0, or -1 to use the default value.",
    ),
    (
        creatable("new", 1, 3),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot "
        "be reached because only 1 broker(s) are registered or some brokers have all their log "
        "directories cordoned.",
    ),
    (
        creatable("new", configs={"retention.ms": None, "segment.ms": None}),
        ErrorCode.INVALID_CONFIG,
        "Null value not supported for topic configs: retention.ms,segment.ms",
    ),
    (
        creatable("new", configs={"retention.msec": "1"}),
        ErrorCode.INVALID_CONFIG,
        "Unknown topic config name: retention.msec",
    ),
    (
        creatable("new", configs={"retention.ms": "soon"}),
        ErrorCode.INVALID_CONFIG,
        "Invalid value soon for configuration retention.ms: Not a number of type LONG",
    ),
    (
        creatable("new", -1, 1, assignments={0: [1]}),
        ErrorCode.INVALID_REQUEST,
        "A manual partition assignment was specified, but replication factor was not set to -1.",
    ),
    (
        creatable("new", 1, -1, assignments={0: [1]}),
        ErrorCode.INVALID_REQUEST,
        "A manual partition assignment was specified, but numPartitions was not set to -1.",
    ),
    (
        creatable("new", -1, -1, assignments={0: [1], 2: [1]}),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "partitions should be a consecutive 0-based integer sequence",
    ),
    (
        creatable("new", -1, -1, assignments={0: []}),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"{START} an empty replica list.",
    ),
    (
        creatable("new", -1, -1, assignments={0: [1, 2]}),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"{START} broker 2, but no such broker is registered.",
    ),
    (
        creatable("new", -1, -1, assignments={0: [1, 1]}),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"{START} the broker 1 more than once.",
    ),
]


@pytest.mark.parametrize(("asked", "code", "message"), REFUSED)
async def test_create_topics_refuses_in_kafkas_words(
    tmp_path: Path, asked: CreatableTopic, code: ErrorCode, message: str
) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders"), creatable("a.b"))
        response = await create(broker, asked)
        (result,) = response.topics
        assert result.error_code == code
        assert (result.error_message or "").startswith(message)
        assert len(broker.topics) == 2


async def test_a_partition_assigned_twice_is_refused(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        asked = creatable("new", -1, -1, assignments={0: [1]})
        asked.assignments *= 2
        response = await create(broker, asked)
        assert codes(response.topics) == {"new": ErrorCode.INVALID_REPLICA_ASSIGNMENT}


@versions(CREATE_TOPICS)
async def test_one_bad_topic_leaves_the_others_alone(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path) as broker:
        twice = creatable("twice"), creatable("twice", 2)
        response = await create(
            broker, twice[0], creatable("good"), creatable("bad", 0), twice[1], version=version
        )
        assert list(codes(response.topics).items()) == [
            ("good", ErrorCode.NONE),
            ("bad", ErrorCode.INVALID_PARTITIONS),
            ("twice", ErrorCode.INVALID_REQUEST),
        ]
        assert response.topics[2].error_message == "Duplicate topic name."
        assert [topic.name for topic in broker.topics] == ["good"]


async def test_one_request_can_create_only_so_many_partitions(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        at_most = creatable("half", 5_000), creatable("less", 4_999), creatable("one", -1)
        response = await create(broker, *at_most, validate_only=True)
        assert ErrorCode.POLICY_VIOLATION not in codes(response.topics).values()
        less = creatable("wrong", -5_000)  # takes nothing off
        response = await create(broker, *at_most, creatable("few", 1), creatable("a/b", 1), less)
        assert list(codes(response.topics).values()) == [ErrorCode.POLICY_VIOLATION] * 6
        assert {one.error_message for one in response.topics} == {
            "Excessively large number of partitions per request."
        }
        assert not len(broker.topics)


@versions(CREATE_TOPICS)
async def test_a_refusal_fits_its_version_however_long_the_name(
    tmp_path: Path, version: int
) -> None:
    async with admin(tmp_path) as broker:
        response = await create(broker, creatable("x" * 32_767), version=version)
        assert response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# --- DeleteTopics -----------------------------------------------------------------------------


def deletion(*topics: str | bytes, version: int) -> DeleteTopicsRequest:
    names = [one for one in topics if isinstance(one, str)]
    states = [
        DeleteTopicState(
            name=one if isinstance(one, str) else None,
            topic_id=one if isinstance(one, bytes) else ZERO_UUID,
        )
        for one in topics
    ]
    by_state = version >= 6
    return DeleteTopicsRequest(
        topics=states if by_state else [], topic_names=[] if by_state else names, timeout_ms=1000
    )


@versions(DELETE_TOPICS)
async def test_delete_topics_by_name(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, *(creatable(name) for name in ("kept", "gone", "twice")))
        request = deletion("gone", "nowhere", "twice", "twice", version=version)
        response = await broker.call(delete_topics.handle, request, version)
        assert codes(response.responses) == {
            "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "twice": ErrorCode.INVALID_REQUEST,
            "gone": ErrorCode.NONE,
        }
        if version >= 5:
            messages = {one.name: one.error_message for one in response.responses}
            assert messages["twice"] == "Duplicate topic name."
            assert messages["gone"] is None
        assert sorted(topic.name for topic in broker.topics) == ["kept", "twice"]


async def test_delete_topics_by_id(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, *(creatable(name) for name in ("gone", "twice", "both")))
        gone, twice, both = (
            topic.topic_id
            for name in ("gone", "twice", "both")
            if (topic := broker.topics.get(name))
        )
        request = deletion(gone, STRANGER, twice, twice, both, "both", version=6)
        request.topics += [
            DeleteTopicState(name=None, topic_id=ZERO_UUID),
            DeleteTopicState(name="gone", topic_id=gone),
        ]
        response = await broker.call(delete_topics.handle, request, 6)
        answers = [
            (one.name, one.topic_id, one.error_code, one.error_message)
            for one in response.responses
        ]
        invalid, unknown = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_ID
        mapped = "The provided topic name maps"
        assert sorted(answers, key=_message) == sorted(
            [
                ("gone", gone, invalid, "You may not specify both topic name and topic id."),
                (None, ZERO_UUID, invalid, "Neither topic name nor id were specified."),
                (None, STRANGER, unknown, unknown.sentence),
                (None, twice, invalid, "Duplicate topic id."),
                ("both", both, invalid, f"{mapped} to an ID that was already supplied."),
                ("gone", gone, ErrorCode.NONE, None),
            ],
            key=_message,
        )
        assert sorted(topic.name for topic in broker.topics) == ["both", "twice"]


@versions(DELETE_TOPICS)
async def test_deletion_can_be_switched_off(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path, {"delete.topic.enable": "false"}) as broker:
        await create(broker, creatable("orders"))
        request = deletion("orders", version=version)
        response = await broker.call(delete_topics.handle, request, version)
        expected = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        assert codes(response.responses) == {"orders": expected}
        assert len(broker.topics) == 1


def _message(answer: tuple[object, ...]) -> str:
    return str(answer[-1])


# --- CreatePartitions -------------------------------------------------------------------------


def enlargement(*topics: CreatePartitionsTopic, validate_only: bool) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        topics=list(topics), timeout_ms=1000, validate_only=validate_only
    )


def enlarged(
    name: str, count: int, assignments: list[list[int]] | None = None
) -> CreatePartitionsTopic:
    made = None
    if assignments is not None:
        made = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=made)


@versions(CREATE_PARTITIONS)
@pytest.mark.parametrize("validate_only", [True, False])
async def test_create_partitions(tmp_path: Path, version: int, validate_only: bool) -> None:
    async with admin(tmp_path) as broker:
        names = ("more", "by.hand", "same", "fewer", "elsewhere", "uneven", "twice")
        await create(broker, *(creatable(name, 2) for name in names))
        request = enlargement(
            enlarged("more", 3),
            enlarged("by.hand", 4, [[NODE_ID], [NODE_ID]]),
            enlarged("same", 2),
            enlarged("fewer", 1),
            enlarged("elsewhere", 3, [[9]]),
            enlarged("uneven", 4, [[NODE_ID]]),
            enlarged("nowhere", 3),
            enlarged("twice", 3),
            enlarged("twice", 4),
            validate_only=validate_only,
        )
        response = await broker.call(create_partitions.handle, request, version)
        assert {one.name: (one.error_code, one.error_message) for one in response.results} == {
            "twice": (ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
            "more": (ErrorCode.NONE, None),
            "by.hand": (ErrorCode.NONE, None),
            "same": (ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
            "fewer": (
                ErrorCode.INVALID_PARTITIONS,
                "The topic fewer currently has 2 partition(s); 1 would not be an increase.",
            ),
            "elsewhere": (
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{START} broker 9, but no such broker is registered.",
            ),
            "uneven": (
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Attempted to add 2 additional partition(s), "
                "but only 1 assignment(s) were specified.",
            ),
            "nowhere": (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.sentence,
            ),
        }
        counts = {topic.name: len(topic.partitions) for topic in broker.topics}
        grown = {} if validate_only else {"more": 3, "by.hand": 4}
        assert counts == dict.fromkeys(names, 2) | grown


@versions(CREATE_PARTITIONS)
async def test_a_request_makes_ten_thousand_partitions_at_most(
    tmp_path: Path, version: int
) -> None:
    """Counted in the order of Java's HashSet; what is too many leaves no room for the others."""
    async with admin(tmp_path) as broker:
        await create(broker, *(creatable(name, 1) for name in ("d", "c", "b", "a")))

        async def codes(**counts: int) -> dict[str, int]:
            asked = [enlarged(name, count) for name, count in counts.items()]
            request = enlargement(*asked, validate_only=True)
            response = await broker.call(create_partitions.handle, request, version)
            return {one.name: one.error_code for one in response.results}

        too_many = ErrorCode.UNKNOWN_SERVER_ERROR
        assert await codes(a=10_001) == {"a": 0}
        assert await codes(a=10_002) == {"a": too_many}
        assert await codes(c=2, b=10_001, a=2) == {"a": 0, "b": too_many, "c": too_many}
        assert await codes(d=2, b=5_000, c=10_002, a=2) == {
            "a": 0, "b": 0, "c": too_many, "d": too_many
        }  # fmt: skip
