"""A request for each rule of the table, made of names that its sender may or may not use.

What it does when it is allowed to is nothing: it only validates, names what is not there or
changes what is as it was. Only values that matter are given; all others are their types' zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from odradek.broker.api_table import API_VERSIONS
from odradek.protocol.batches import (
    Record,
    encode_batch,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import message_classes
from odradek.protocol.schema import fields_of, info_of
from tests.authorization.rules import Rule

NODE_ID = 1
SESSION_EPOCH_LAST = -1
_TOPIC, _BROKER, _LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_ANY, _MATCH = 1, 2
_EARLIEST = -2
_SOME_ID = bytes(range(16))

DENIALS = frozenset(
    (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
)


@dataclass(frozen=True, slots=True)
class Names:
    """What a request speaks of."""

    topic: str
    topic_id: bytes
    group: str  # of consumers, with offsets and a member that reads the topic
    share_group: str  # likewise
    streams_group: str  # with a member that reads the topic
    transactional_id: str  # with an open transaction that has the topic
    fresh_topic: str = ""  # there for this request alone
    fresh_topic_id: bytes = bytes(16)
    new_topic: str = ""  # not there yet
    member_id: str = ""


Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and how its answer is read."""

    values: Callable[[Names], Values]
    version: int | None = None  # the last, unless it matters
    # Whether an answer shows what is left out for those who may not see it.
    shows: Callable[[Any, Names], bool] | None = None
    takes_fresh_topic: bool = False
    # The same in the fields of older versions.
    older: Callable[[Names], Values] | None = None


def request_of(rule: Rule, names: Names, version: int | None = None) -> tuple[Any, int]:
    """Return the request of a rule, and its version: that of the case unless one is given."""
    if version is None:
        version = rule_version(rule)
    cls, case = message_classes(rule.api)[0], CASES[rule.name]
    values = case.values(names)
    if case.older is not None and not _has_all(cls, version, values):
        values = case.older(names)
    return made(cls, version, values), version


def versions_of(rule: Rule, names: Names) -> Iterator[int]:
    """Yield the versions in which the request of a rule can be sent."""
    cls, case = message_classes(rule.api)[0], CASES[rule.name]
    info = info_of(cls)
    for version in range(info.versions.first, API_VERSIONS[info.key][1] + 1):
        if case.older is not None or _has_all(cls, version, case.values(names)):
            yield version


def _has_all(cls: type, version: int, values: Values) -> bool:
    has = {field.name for field in fields_of(cls) if version in field.spec.versions}
    optional = {name for name in values if name.startswith(("include_", "allow_", "validate_"))}
    return values.keys() - optional <= has


def rule_version(rule: Rule) -> int:
    """Return the version in which the requests of a rule are sent."""
    version = CASES[rule.name].version
    if version is None:
        version = API_VERSIONS[info_of(message_classes(rule.api)[0]).key][1]
    return version


def is_refused(rule: Rule, answer: Any, names: Names) -> bool:
    """Return whether an answer denies something, or keeps it to itself."""
    shows = CASES[rule.name].shows
    denied = any(code in DENIALS for code in codes(answer))
    return denied or (shows is not None and not shows(answer, names))


def codes(value: Any) -> Iterator[int]:
    """Yield all error codes of an answer."""
    if isinstance(value, list):
        for one in value:
            yield from codes(one)
    elif is_dataclass(value):
        for field in fields(value):
            inner = getattr(value, field.name)
            if field.name.endswith("error_code"):
                if field.name != "topic_config_error_code":
                    yield inner
            else:
                yield from codes(inner)


def made(cls: type, version: int, values: Values) -> Any:
    """Make a message of the values that matter, without those that a version does not have."""
    declared = {field.name: field for field in fields_of(cls)}
    assert values.keys() <= declared.keys(), (cls.__name__, values.keys() - declared.keys())
    known = {name: one for name, one in declared.items() if version in one.spec.versions}
    told: dict[str, Any] = {}
    for name, field in known.items():
        value = values[name] if name in values else field.default()
        if value is None and not field.is_nullable(version):
            value = field.default()
        if field.struct is not None and name in values and value is not None:
            one = field.struct
            value = [made(one, version, v) for v in value] if field.is_array else value
            if isinstance(value, Mapping):
                value = made(one, version, value)
        told[name] = value
    return cls(**told)


def _batch(*, is_transactional: bool = False) -> bytes:
    record = Record(0, 1_700_000_000_000, b"key", b"value")
    if not is_transactional:
        return bytes(encode_batch([record]))
    return bytes(
        encode_batch(
            [record], producer_id=4_711, producer_epoch=0, base_sequence=0, transactional=True
        )
    )


def _one(**values: Any) -> list[Values]:
    return [values]


def _producing(n: Names, *, by_id: bool = False, transactional: bool = False) -> Values:
    return {
        "transactional_id": n.transactional_id if transactional else None,
        "acks": -1,
        "timeout_ms": 1_000,
        "topic_data": _one(
            **({"topic_id": n.topic_id} if by_id else {"name": n.topic}),
            partition_data=_one(index=0, records=_batch(is_transactional=transactional)),
        ),
    }


def _fetching(n: Names, *, by_id: bool = False, **more: Any) -> Values:
    return {
        "max_bytes": 1_000,
        "topics": _one(
            **({"topic_id": n.topic_id} if by_id else {"topic": n.topic}),
            partitions=_one(partition=0, partition_max_bytes=100),
        ),
        **more,
    }


def _reading(topic: str, changelogs: list[Values] | None = None) -> Values:
    """Return a topology that reads a topic."""
    part = {
        "subtopology_id": "0",
        "source_topics": [topic],
        "state_changelog_topics": changelogs or [],
    }
    return {"subtopologies": [part]}


def _creating(n: Names) -> Values:
    return {
        "topics": _one(name=n.new_topic + "-x", num_partitions=1, replication_factor=1),
        "timeout_ms": 1_000,
        "validate_only": True,
    }


def _committing(n: Names, *, by_id: bool = False) -> Values:
    return {
        "group_id": n.group + "-simple",
        "topics": _one(
            **({"topic_id": n.topic_id} if by_id else {"name": n.topic}),
            partitions=_one(partition_index=0, committed_offset=3),
        ),
    }


def _fetching_offsets(n: Names, topics: list[Values] | None) -> Values:
    return {"groups": _one(group_id=n.group + "-simple", topics=topics)}


def _settings(kind: int, name: str) -> Values:
    return {"resources": _one(resource_type=kind, resource_name=name, configuration_keys=["x"])}


def _setting(kind: int, name: str, key: str, value: str) -> Values:
    return {
        "validate_only": True,
        "resources": _one(
            resource_type=kind, resource_name=name, configs=_one(name=key, value=value)
        ),
    }


def _state(n: Names) -> Values:
    # Of no partition that there is.
    partitions = _one(partition=77)
    return {
        "group_id": "nobody",
        "topics": _one(topic_id=_SOME_ID, partitions=partitions),
    }


def _named(items: Iterable[Any], name: str, field: str = "name") -> bool:
    return any(getattr(item, field) == name for item in items)


_ACL = {
    "resource_pattern_type": 3,
    "principal": "User:nobody",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_RESOURCES = (
    ("of a topic", _TOPIC, "retention.ms"),
    ("of a group", _GROUP, "consumer.session.timeout.ms"),
    ("of the broker", _BROKER, "log.cleaner.threads"),
    ("of loggers", _LOGGER, "root"),
    ("of client metrics", _CLIENT_METRICS, "interval.ms"),
)


def _resource(kind: int, n: Names) -> str:
    named = {_TOPIC: n.topic, _GROUP: n.group, _CLIENT_METRICS: "metrics"}
    return named.get(kind, str(NODE_ID))


def _config_cases() -> Iterator[tuple[str, Case]]:
    for what, kind, key in _RESOURCES:
        value = "INFO" if kind == _LOGGER else "1" if kind == _BROKER else "50000"
        yield (
            f"DescribeConfigs {what}",
            Case(lambda n, kind=kind: _settings(kind, _resource(kind, n))),  # type: ignore[misc]
        )
        for api in ("AlterConfigs", "IncrementalAlterConfigs"):
            if kind == _LOGGER and api == "AlterConfigs":
                continue  # which does not know them
            yield (
                f"{api} {what}",
                Case(
                    lambda n, kind=kind, key=key, value=value: _setting(  # type: ignore[misc]
                        kind, _resource(kind, n), key, value
                    )
                ),
            )


CASES: Mapping[str, Case] = {
    "Produce by name": Case(_producing, 12),
    "Produce by id": Case(lambda n: _producing(n, by_id=True), 13),
    "Produce in a transaction": Case(lambda n: _producing(n, transactional=True), 12),
    "Fetch by name": Case(_fetching, 12),
    "Fetch by id": Case(lambda n: _fetching(n, by_id=True)),
    "Fetch by a follower": Case(lambda n: _fetching(n, replica_id=5), 12),
    "ListOffsets": Case(
        lambda n: {
            "replica_id": -1,
            "topics": _one(
                name=n.topic, partitions=_one(partition_index=0, timestamp=_EARLIEST)
            ),
        }
    ),
    "OffsetForLeaderEpoch": Case(
        lambda n: {
            "replica_id": -1,
            "topics": _one(topic=n.topic, partitions=_one(partition=0, leader_epoch=0)),
        }
    ),
    "Metadata by name": Case(
        lambda n: {
            "topics": _one(name=n.topic),
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        }
    ),
    "Metadata by id": Case(
        lambda n: {
            "topics": _one(topic_id=n.topic_id, name=None),
            "include_topic_authorized_operations": True,
        }
    ),
    "Metadata of all topics": Case(
        lambda n: {
            "topics": None,
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True,
        },
        10,
        shows=lambda answer, n: _named(answer.topics, n.topic),
    ),
    "Metadata of a topic that it creates": Case(
        lambda n: {"topics": _one(name=n.new_topic), "allow_auto_topic_creation": True}
    ),
    "DescribeTopicPartitions by name": Case(lambda n: {"topics": _one(name=n.topic)}),
    "DescribeTopicPartitions of all topics": Case(
        lambda n: {"topics": []}, shows=lambda answer, n: _named(answer.topics, n.topic)
    ),
    "DescribeProducers": Case(
        lambda n: {"topics": _one(name=n.topic, partition_indexes=[0])}
    ),
    "CreateTopics": Case(_creating),
    "CreateTopics with its settings in the answer": Case(
        _creating, shows=lambda answer, n: not answer.topics[0].topic_config_error_code
    ),
    "DeleteTopics by name": Case(
        lambda n: {"topics": _one(name=n.fresh_topic), "timeout_ms": 1_000},
        takes_fresh_topic=True,
        older=lambda n: {"topic_names": [n.fresh_topic], "timeout_ms": 1_000},
    ),
    "DeleteTopics by id": Case(
        lambda n: {
            "topics": _one(name=None, topic_id=n.fresh_topic_id),
            "timeout_ms": 1_000,
        },
        takes_fresh_topic=True,
    ),
    "CreatePartitions": Case(
        lambda n: {
            "topics": _one(name=n.topic, count=3, assignments=None),
            "timeout_ms": 1_000,
            "validate_only": True,
        }
    ),
    "DeleteRecords": Case(
        lambda n: {
            "topics": _one(name=n.topic, partitions=_one(partition_index=0, offset=0)),
            "timeout_ms": 1_000,
        }
    ),
    "OffsetCommit by name": Case(_committing, 9),
    "OffsetCommit by id": Case(lambda n: _committing(n, by_id=True)),
    "OffsetFetch by name": Case(
        lambda n: _fetching_offsets(n, _one(name=n.topic, partition_indexes=[0])),
        9,
        older=lambda n: {
            "group_id": n.group + "-simple",
            "topics": _one(name=n.topic, partition_indexes=[0]),
        },
    ),
    "OffsetFetch by id": Case(
        lambda n: _fetching_offsets(n, _one(topic_id=n.topic_id, partition_indexes=[0]))
    ),
    "OffsetFetch of all topics": Case(
        lambda n: _fetching_offsets(n, None),
        9,
        shows=lambda answer, n: _named(answer.groups[0].topics, n.topic),
    ),
    "OffsetDelete": Case(
        lambda n: {
            "group_id": n.group + "-simple",
            "topics": _one(name=n.topic, partitions=_one(partition_index=1)),
        }
    ),
    "FindCoordinator of a group": Case(
        lambda n: {"coordinator_keys": [n.group]}, older=lambda n: {"key": n.group}
    ),
    "FindCoordinator of a transaction": Case(
        lambda n: {"key_type": 1, "coordinator_keys": [n.transactional_id]},
        older=lambda n: {"key_type": 1, "key": n.transactional_id},
    ),
    "FindCoordinator of a share-partition": Case(
        lambda n: {"key_type": 2, "coordinator_keys": ["g:AAECAwQFBgcICQoLDA0ODw:0"]}
    ),
    "JoinGroup": Case(
        lambda n: {"group_id": n.group, "protocol_type": "consumer", "session_timeout_ms": 1}
    ),
    "SyncGroup": Case(
        lambda n: {
            "group_id": n.group + "-nobody",
            "member_id": "nobody",
            "protocol_type": "consumer",
            "protocol_name": "range",
        }
    ),
    "Heartbeat": Case(lambda n: {"group_id": n.group + "-nobody", "member_id": "nobody"}),
    "LeaveGroup": Case(
        lambda n: {"group_id": n.group + "-nobody", "members": _one(member_id="nobody")},
        older=lambda n: {"group_id": n.group + "-nobody", "member_id": "nobody"},
    ),
    "DescribeGroups": Case(
        lambda n: {"groups": [n.group], "include_authorized_operations": True}
    ),
    "ListGroups": Case(
        lambda n: {}, shows=lambda answer, n: _named(answer.groups, n.group, "group_id")
    ),
    "DeleteGroups": Case(lambda n: {"groups_names": [n.group + "-nobody"]}),
    "ConsumerGroupHeartbeat without topics": Case(
        lambda n: {"group_id": n.group, "member_id": "nobody", "member_epoch": 5}
    ),
    "ConsumerGroupHeartbeat with topics": Case(
        lambda n: {
            "group_id": n.group,
            "member_id": "nobody",
            "member_epoch": 5,
            "subscribed_topic_names": [n.topic],
        }
    ),
    "ConsumerGroupDescribe": Case(
        lambda n: {"group_ids": [n.group], "include_authorized_operations": True}
    ),
    "ShareGroupHeartbeat without topics": Case(
        lambda n: {"group_id": n.share_group, "member_id": "nobody", "member_epoch": 5}
    ),
    "ShareGroupHeartbeat with topics": Case(
        lambda n: {
            "group_id": n.share_group,
            "member_id": "nobody",
            "member_epoch": 5,
            "subscribed_topic_names": [n.topic],
        }
    ),
    "ShareGroupDescribe": Case(
        lambda n: {"group_ids": [n.share_group], "include_authorized_operations": True}
    ),
    "StreamsGroupHeartbeat without a topology": Case(
        lambda n: {"group_id": n.streams_group, "member_id": "nobody", "member_epoch": 5}
    ),
    "StreamsGroupHeartbeat with a topology": Case(
        lambda n: {
            "group_id": n.streams_group,
            "member_id": "nobody",
            "member_epoch": 5,
            "topology": _reading(n.topic),
        }
    ),
    "StreamsGroupHeartbeat whose internal topics are missing": Case(
        lambda n: {
            "group_id": n.new_topic,
            "member_id": n.member_id,
            "rebalance_timeout_ms": 900_000,
            "process_id": n.member_id,
            "topology": _reading(n.topic, [{"name": n.new_topic + "-changelog"}]),
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
        },
        shows=lambda answer, n: not any(
            "Unauthorized" in one.status_detail for one in answer.status
        ),
    ),
    "StreamsGroupDescribe": Case(
        lambda n: {"group_ids": [n.streams_group], "include_authorized_operations": True}
    ),
    "ShareFetch": Case(
        lambda n: {
            "group_id": n.share_group,
            "member_id": n.member_id,
            "max_wait_ms": 500,
            "max_records": 1,
            "topics": _one(topic_id=n.topic_id, partitions=_one(partition_index=0)),
        }
    ),
    # Ends the session that ShareFetch has begun.
    "ShareAcknowledge": Case(
        lambda n: {
            "group_id": n.share_group,
            "member_id": n.member_id,
            "share_session_epoch": SESSION_EPOCH_LAST,
            "topics": _one(
                topic_id=n.topic_id,
                partitions=_one(
                    partition_index=0,
                    acknowledgement_batches=_one(
                        first_offset=900, last_offset=900, acknowledge_types=[1]
                    ),
                ),
            ),
        }
    ),
    "DescribeShareGroupOffsets by name": Case(
        lambda n: {
            "groups": _one(
                group_id=n.share_group, topics=_one(topic_name=n.topic, partitions=[0])
            )
        }
    ),
    "DescribeShareGroupOffsets of all topics": Case(
        lambda n: {"groups": _one(group_id=n.share_group, topics=None)},
        shows=lambda answer, n: _named(answer.groups[0].topics, n.topic, "topic_name"),
    ),
    "AlterShareGroupOffsets": Case(
        lambda n: {
            "group_id": n.share_group + "-nobody",
            "topics": _one(
                topic_name=n.topic, partitions=_one(partition_index=77, start_offset=0)
            ),
        }
    ),
    "DeleteShareGroupOffsets": Case(
        lambda n: {
            "group_id": n.share_group + "-nobody",
            "topics": _one(topic_name=n.topic),
        }
    ),
    "InitializeShareGroupState": Case(_state),
    "ReadShareGroupState": Case(_state),
    "WriteShareGroupState": Case(_state),
    "DeleteShareGroupState": Case(_state),
    "ReadShareGroupStateSummary": Case(_state),
    "InitProducerId of a transaction": Case(
        lambda n: {
            "transactional_id": n.transactional_id + "-other",
            "transaction_timeout_ms": 2**31 - 1,  # more than anybody may have
            "producer_id": -1,
            "producer_epoch": -1,
        }
    ),
    "InitProducerId without a transaction": Case(
        lambda n: {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
    ),
    "AddPartitionsToTxn by a client": Case(
        lambda n: {
            "v3_and_below_transactional_id": n.transactional_id,
            "v3_and_below_producer_id": 4_711,
            "v3_and_below_topics": _one(name=n.topic, partitions=[0]),
        },
        3,
    ),
    "AddPartitionsToTxn by a broker": Case(
        lambda n: {
            "transactions": _one(
                transactional_id=n.transactional_id,
                producer_id=4_711,
                topics=_one(name=n.topic, partitions=[0]),
            )
        }
    ),
    "AddOffsetsToTxn": Case(
        lambda n: {
            "transactional_id": n.transactional_id,
            "producer_id": 4_711,
            "group_id": n.group,
        }
    ),
    "TxnOffsetCommit": Case(
        lambda n: {
            "transactional_id": n.transactional_id,
            "group_id": n.group,
            "producer_id": 4_711,
            "topics": _one(
                name=n.topic, partitions=_one(partition_index=0, committed_offset=1)
            ),
        },
        3,
    ),
    "EndTxn": Case(
        lambda n: {"transactional_id": n.transactional_id, "producer_id": 4_711}
    ),
    "WriteTxnMarkers": Case(
        lambda n: {
            "markers": _one(
                producer_id=4_711,
                topics=_one(name=n.topic + "-nowhere", partition_indexes=[0]),
            )
        }
    ),
    "DescribeTransactions": Case(
        lambda n: {"transactional_ids": [n.transactional_id]},
        shows=lambda answer, n: _named(answer.transaction_states[0].topics, n.topic, "topic"),
    ),
    "ListTransactions": Case(
        lambda n: {"duration_filter": -1},
        shows=lambda answer, n: _named(
            answer.transaction_states, n.transactional_id, "transactional_id"
        ),
    ),
    **dict(_config_cases()),
    "ListConfigResources": Case(lambda n: {}),
    "DescribeLogDirs": Case(
        lambda n: {"topics": _one(topic=n.topic, partitions=[0])}, 4
    ),
    "AlterReplicaLogDirs": Case(
        lambda n: {"dirs": _one(path="/nowhere", topics=_one(name=n.topic, partitions=[0]))}
    ),
    "ElectLeaders": Case(
        lambda n: {"topic_partitions": _one(topic=n.topic, partitions=[0])}
    ),
    "AlterPartitionReassignments": Case(
        lambda n: {
            "topics": _one(name=n.topic, partitions=_one(partition_index=0, replicas=None))
        }
    ),
    "ListPartitionReassignments": Case(lambda n: {"topics": None, "timeout_ms": 1_000}),
    "DescribeQuorum": Case(
        lambda n: {
            "topics": _one(
                topic_name="__cluster_metadata", partitions=_one(partition_index=0)
            )
        }
    ),
    "AddRaftVoter": Case(lambda n: {"cluster_id": "another", "voter_id": 7}),
    "RemoveRaftVoter": Case(lambda n: {"cluster_id": "another", "voter_id": 7}),
    "UnregisterBroker": Case(lambda n: {"broker_id": 99}),
    "UpdateFeatures": Case(
        lambda n: {
            "feature_updates": _one(feature="no.such.feature", max_version_level=1),
            "validate_only": True,
        }
    ),
    "DescribeAcls": Case(
        lambda n: {
            "resource_type_filter": _TOPIC,
            "resource_name_filter": "nobody's",
            "principal_filter": None,
            "host_filter": None,
            "operation": _ANY,
            "permission_type": _ANY,
        }
    ),
    # Of a cluster that there is not.
    "CreateAcls": Case(lambda n: {"creations": _one(**_ACL, resource_type=4, resource_name="x")}),
    "DeleteAcls": Case(
        lambda n: {
            "filters": _one(
                resource_type_filter=_TOPIC,
                resource_name_filter="nobody",
                principal_filter=None,
                host_filter=None,
                operation=_ANY,
                permission_type=_ANY,
            )
        }
    ),
    "DescribeClientQuotas": Case(lambda n: {"components": []}),
    "AlterClientQuotas": Case(
        lambda n: {
            "entries": _one(
                entity=_one(entity_type="user", entity_name="nobody"),
                ops=_one(key="consumer_byte_rate", value=1_000.0, remove=False),
            ),
            "validate_only": True,
        }
    ),
    "DescribeUserScramCredentials": Case(lambda n: {"users": _one(name="nobody")}),
    "AlterUserScramCredentials": Case(lambda n: {"deletions": _one(name="nobody", mechanism=1)}),
}
