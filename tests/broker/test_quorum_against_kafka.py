"""Features, the quorum, loggers, groups' and client metrics' settings beside Apache Kafka.

One script of requests goes to both brokers at every version; answers are compared field by field.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.processes import KafkaProcess
from odradek.broker.api_table import BY_KEY
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import snake_case
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.describe_configs import DescribeConfigsRequest
from odradek.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestedPartitionData,
    RequestedTopicData,
)
from odradek.protocol.messages.list_config_resources import ListConfigResourcesRequest
from odradek.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.schema import info_of
from tests.broker.admin import Admin, admin
from tests.broker.kafka_peer import Peer
from tests.broker.test_admin_against_kafka import change, describe, replace, topics
from tests.support.requests import creatable
from tests.support.waiting import last_answer

SETTINGS = {
    "node.id": "1",
    "auto.create.topics.enable": "false",
    # Bounds of the broker's that the defaults of a group lie outside of.
    "group.consumer.session.timeout.ms": "50000",
    "group.consumer.min.session.timeout.ms": "48000",
    "group.streams.max.standby.replicas": "4",
}
SET, DELETE, APPEND, SUBTRACT = range(4)
BROKER, LOGGER, METRICS, GROUP = 4, 8, 16, 32
UPGRADE, SAFE, UNSAFE = 1, 2, 3
SENTENCES = {code.sentence for code in ErrorCode}  # our own, for codes without an explanation

# What differs on purpose, as patterns of where it does.
KNOWN_PLACES = [
    # Ours counts changes of the database, theirs the records of a log that is always written.
    r"finalized_features_epoch|.*\.(high_watermark|log_end_offset|leader_epoch)",
    # Wall clocks.
    r".*\.last_(fetch|caught_up)_timestamp",
    # Our controller listens where the broker does.
    r"nodes\[0\]\.listeners.*",
    # APIs: others of Kafka's follow.
    r"api_keys.*",
    # Only levels whose code is there are announced: see broker/metadata/features.py.
    r"(supp|final)\w+_features\[(group|kraft|share|streams|transaction)\.version\].*",
    # The settings of topics are compared elsewhere.
    r"topics\[.*",
    # Loggers are Python's.
    r"results\[8 1\]\.configs\[(?!root\b).*",
]
# Sentences of ours that say more than Kafka's, and what it says there.
KNOWN_MESSAGES = [
    (r"Unsupported resource type: .*", r"This most likely occurs because of a request .*"),
    (r"Unknown operations type \d+", r"None"),
]


def quorum(topic: str, *partitions: int) -> DescribeQuorumRequest:
    asked = [RequestedPartitionData(partition_index=one) for one in partitions]
    return DescribeQuorumRequest(topics=[RequestedTopicData(topic_name=topic, partitions=asked)])


def update(*levels: tuple[str, int, int], validate_only: bool = False) -> UpdateFeaturesRequest:
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level, kind in levels
    ]
    return UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)


def update_0(name: str, level: int, allow_downgrade: bool) -> UpdateFeaturesRequest:
    one = FeatureUpdateKey(feature=name, max_version_level=level, allow_downgrade=allow_downgrade)
    return UpdateFeaturesRequest(feature_updates=[one])


def listing(*kinds: int) -> ListConfigResourcesRequest:
    return ListConfigResourcesRequest(resource_types=list(kinds))


ELR, METADATA = "eligible.leader.replicas.version", "metadata.version"

# With the versions in which each is asked; None for the last one only.
FEATURE_SCRIPT: list[tuple[Any, range | None]] = [
    (quorum("__cluster_metadata", 0), range(3)),
    (quorum("__cluster_metadata", 1), range(3)),
    (quorum("__cluster_metadata", 0, 1), range(3)),
    (quorum("orders", 0, 1), range(3)),
    (DescribeQuorumRequest(topics=[]), range(3)),
    (update(), range(1, 3)),
    (update(("nosuch", 1, UPGRADE)), range(1, 3)),
    (update(("nosuch", 0, UPGRADE)), None),
    (update(("nosuch", 0, SAFE)), None),
    (update(("nosuch", -1, UPGRADE)), None),
    *(
        (update((METADATA, level, kind)), None)
        for level in (-1, 0, 6, 7, 29, 30, 31, 99)
        for kind in (0, UPGRADE, SAFE, UNSAFE, 4)
    ),
    *(
        (update((ELR, level, kind), validate_only=True), None)
        for level in (-1, 0, 1, 2)
        for kind in (0, UPGRADE, SAFE, UNSAFE, 4)
    ),
    *((update((name, 0, SAFE), validate_only=True), None) for name in ("kraft.version",)),
    (update((ELR, 1, UPGRADE), ("nosuch", 3, UPGRADE), (METADATA, 99, UPGRADE)), range(1, 3)),
    (update((ELR, 2, UPGRADE), (METADATA, 99, UPGRADE)), range(1, 3)),
    (update((ELR, 2, UPGRADE), (ELR, 1, UPGRADE)), range(1, 3)),
    (update((ELR, 1, UPGRADE), (METADATA, 30, UPGRADE)), range(1, 3)),
    (update_0(ELR, 0, False), range(1)),
    (update_0("nosuch", 1, True), range(1)),
    (update_0(ELR, 0, True), range(1)),
    (ApiVersionsRequest(client_software_name="a", client_software_version="1"), range(5)),
    (update((ELR, 0, SAFE)), range(1, 3)),
    (update((ELR, 1, SAFE)), range(1, 3)),
    (update((ELR, 1, UPGRADE)), range(1, 3)),
    (ApiVersionsRequest(client_software_name="a", client_software_version="1"), range(5)),
]

SETTINGS_SCRIPT: list[tuple[Any, range | None]] = [
    (topics(creatable("orders"), creatable("a.b")), None),
    *((listing(kind), range(1, 2)) for kind in (0, 1, 2, 4, 8, 16, 32, 64)),
    (listing(), range(2)),
    (listing(16, 2, 16), range(1, 2)),
    *((describe(kind, ""), None) for kind in (LOGGER, METRICS, GROUP)),
    *((describe(kind, "7"), None) for kind in (LOGGER, METRICS, GROUP)),
    *((describe(LOGGER, name), None) for name in ("x", "-1")),
    (describe(GROUP, "readers"), range(1, 5)),
    (describe(GROUP, "readers", "consumer.session.timeout.ms", "no.such"), None),
    (describe(METRICS, "all"), range(1, 5)),
    (change(METRICS, "", ("metrics", SET, "*")), range(2)),
    (change(GROUP, "", ("consumer.session.timeout.ms", SET, "50000")), range(2)),
    (replace(METRICS, "", metrics="*"), range(3)),
    (replace(GROUP, "", consumer_session_timeout_ms="50000"), range(3)),
    (
        change(
            METRICS,
            "all",
            ("metrics", SET, " org.apache.kafka.producer. ,b,b"),
            ("interval.ms", SET, " 1000 "),
            ("match", SET, "client_id= app.* , client_software_name=.*java.*"),
        ),
        None,
    ),
    (describe(METRICS, "all"), range(1, 5)),
    (describe(METRICS, "all", "match"), None),
    (listing(), range(2)),
    *(
        (change(METRICS, "all", (name, kind, value)), None)
        for name in ("metrics", "interval.ms", "no.such")
        for kind, value in ((APPEND, "1"), (SUBTRACT, "1"), (9, "1"))
    ),
    *(
        (change(METRICS, "all", ("interval.ms", SET, value)), None)
        for value in ("99", "100", "3600000", "3600001", "x", "", "-1", "99999999999", None)
    ),
    *(
        (change(METRICS, "all", ("match", SET, value)), None)
        for value in (
            "a=b", "client_id", "client_id=", "client_id=a=b", "client_id=a=", "client_id=[",
            "client_id=a,client_id=b", "", " ", "client_id=a,", "=x", "=", r"client_id=\p{Alpha}+",
            "client_instance_id=a", "client_source_port=9.*,client_source_address=127\\..*",
            r"client_software_version=(?<n>a)b", "client_id=*",
        )
    ),
    *(
        (change(METRICS, "all", ("metrics", SET, value)), None)
        for value in ("", "*,a", ",", "a,,b", " a , b ", " ")
    ),
    (change(METRICS, "all", ("no.such", SET, "1"), ("interval.ms", SET, "1")), None),
    (change(METRICS, "all", ("no.such", DELETE, None)), None),
    (change(METRICS, "all", ("interval.ms", SET, "500"), ("interval.ms", SET, "600")), None),
    (describe(METRICS, "all"), None),
    (change(METRICS, "empty", ("metrics", SET, "")), None),
    (change(METRICS, "named ö/2", ("interval.ms", SET, "500")), None),
    (listing(16), range(1, 2)),
    (change(METRICS, "all", *((name, DELETE, None) for name in ("metrics", "interval.ms"))), None),
    (change(METRICS, "all", ("match", DELETE, None)), None),
    (change(METRICS, "empty"), None),
    (replace(METRICS, "new", metrics="*", interval_ms="5"), None),
    (replace(METRICS, "new", metrics="*", interval_ms="500"), None),
    (replace(METRICS, "new", no_such="1"), None),
    (describe(METRICS, "new"), None),
    (replace(METRICS, "new", metrics="*"), None),
    (describe(METRICS, "new"), None),
    (listing(16), range(2)),
    (replace(METRICS, "new"), None),
    (listing(16), range(2)),
]

GROUP_VALUES = {
    "consumer.session.timeout.ms": ("47999", "48000", "60001", "0", "x", " 50000 "),
    "consumer.heartbeat.interval.ms": ("4999", "15001", "0", "6000"),
    "consumer.assignment.interval.ms": ("-1", "15001", "0"),
    "consumer.assignor.offload.enable": ("true",),
    "share.session.timeout.ms": ("44999", "60001", "0", "50000"),
    "share.heartbeat.interval.ms": ("4999", "15001", "0", "6000"),
    "share.assignment.interval.ms": ("-1", "15001", "0"),
    "share.record.lock.duration.ms": ("999", "14999", "60001", "20000"),
    "share.delivery.count.limit": ("1", "11", "2"),
    "share.partition.max.record.locks": ("99", "4001", "100"),
    "share.auto.offset.reset": (
        "x", "", "earliest", "EARLIEST", "latest", "none", "by_duration", "by_duration:",
        "by_duration:PT", "by_duration:P", "by_duration:PT1H", "by_duration:P1DT2.5S",
        "by_duration:-PT1H", "by_duration:P1M", "by_duration:P1W", "by_duration:pt1h2m",
        "by_duration:PT-1S", "by_duration:PT+1S", "by_duration:+PT1S", "by_duration:P1DT",
        "by_duration:PT1.S", "by_duration:PT0S", "by_duration:PT1.1234567890S",
        "by_duration:PT1,5S", "by_duration:PT.5S", "by_duration:PT1S1M", "by_duration:--PT1S",
        "by_duration:-PT-1S",
        "by_duration:PT99999999999999999999S",
    ),
    "share.isolation.level": ("x", "read_committed", "READ_COMMITTED"),
    "share.renew.acknowledge.enable": ("x", "FALSE"),
    "streams.session.timeout.ms": ("44999", "60001", "0", "50000"),
    "streams.heartbeat.interval.ms": ("4999", "15001", "0", "6000"),
    "streams.assignment.interval.ms": ("-1", "15001", "0"),
    "streams.num.standby.replicas": ("-1", "5", "4"),
    "streams.initial.rebalance.delay.ms": ("-1", "999999999"),
    "no.such": ("1",),
}  # fmt: skip
GROUP_SCRIPT: list[tuple[Any, range | None]] = [
    *(
        (change(GROUP, "g", (name, SET, value)), None)
        for name, values in GROUP_VALUES.items()
        for value in values
    ),
    (describe(GROUP, "g"), range(1, 5)),
    *((change(GROUP, "g", (name, DELETE, None)), None) for name in GROUP_VALUES),
    (listing(32), range(1, 2)),
    *(
        (
            change(
                GROUP,
                "h",
                (f"{kind}.session.timeout.ms", SET, one),
                (f"{kind}.heartbeat.interval.ms", SET, other),
            ),
            None,
        )
        for kind in ("consumer", "share", "streams")
        for one, other in (("1", "2"), ("50000", "50000"), ("99999", "1"))
    ),
    (change(GROUP, "h", ("consumer.session.timeout.ms", APPEND, "1")), range(2)),
    (change(GROUP, "h", ("no.such", DELETE, None)), None),
    (replace(GROUP, "h", consumer_session_timeout_ms="51000"), None),
    (change(BROKER, "1", ("group.consumer.assignment.interval.ms", SET, "2000")), None),
    (change(BROKER, "", ("group.share.assignment.interval.ms", SET, "3000")), None),
    (describe(GROUP, "h"), None),
    (listing(), range(2)),
    (change(GROUP, "h", ("consumer.assignment.interval.ms", SET, "2500")), None),
    (describe(GROUP, "h"), None),
    (replace(GROUP, "h", no_such="1"), None),
    (replace(GROUP, "h"), None),
    (change(BROKER, "1", ("group.consumer.assignment.interval.ms", DELETE, None)), None),
    (change(BROKER, "", ("group.share.assignment.interval.ms", DELETE, None)), None),
    (listing(32), range(1, 2)),
]

LOGGER_SCRIPT: list[tuple[Any, range | None]] = [
    *((change(LOGGER, name, ("root", SET, "INFO")), None) for name in ("", "x", "7")),
    *(
        (change(LOGGER, "1", ("root", SET, value)), None)
        for value in ("TRACE", "DEBUG", "INFO", "ERROR", "FATAL")
    ),
    (describe(LOGGER, "1", "root"), range(1, 5)),
    *((change(LOGGER, "1", ("root", SET, value)), None) for value in ("OFF", "warn", " WARN", "")),
    (change(LOGGER, "1", ("root", SET, None)), None),
    (change(LOGGER, "1", ("root", DELETE, None)), None),
    *((change(LOGGER, "1", ("root", kind, "INFO")), None) for kind in (APPEND, SUBTRACT, 9)),
    (change(LOGGER, "1", ("no.such", SET, "INFO")), None),
    (change(LOGGER, "1", ("no.such", DELETE, None)), None),
    (change(LOGGER, "1", ("no.such", APPEND, "INFO")), None),
    (change(LOGGER, "1", ("root", SET, "INFO"), ("no.such", SET, "INFO")), None),
    (change(LOGGER, "1", ("no.such", SET, "x"), ("root", APPEND, "INFO")), None),
    (describe(LOGGER, "1", "root"), None),
    (change(LOGGER, "1", ("root", SET, "WARN")), None),
    (change(LOGGER, "1"), None),
    (replace(LOGGER, "1", root="INFO"), range(3)),
    *((change(kind, "x", ("a", SET, "b")), None) for kind in (0, 1, 64)),
    *((describe(kind, "x"), None) for kind in (0, 1, 64)),
]


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_the_same_requests_get_the_same_answers(tmp_path: Path) -> None:
    kafka = KafkaProcess(tmp_path / "kafka", SETTINGS)
    root_level = logging.root.level
    differences: list[str] = []
    try:
        kafka.start()
        with Peer(kafka.port) as peer:
            async with admin(tmp_path / "ours", SETTINGS) as broker:
                for script in (FEATURE_SCRIPT, SETTINGS_SCRIPT, GROUP_SCRIPT, LOGGER_SCRIPT):
                    differences += await _run(script, broker, peer)
    finally:
        kafka.stop()
        logging.root.setLevel(root_level)
    assert not differences, "\n".join(differences)


async def _run(
    script: list[tuple[Any, range | None]], broker: Admin, peer: Peer
) -> list[str]:
    differences = []
    for request, versions in script:
        api = BY_KEY[info_of(type(request)).key]
        handle = importlib.import_module(f"odradek.broker.apis.{snake_case(api.name)}").handle
        for version in versions or [api.last]:
            ours = dict(flat(await broker.call(handle, request, version)))
            found = _differences(ours, request, version, peer)
            differences += [f"{request} v{version} {one}" for one in found]
    return differences


def _differences(ours: dict[str, Any], request: Any, version: int, peer: Peer) -> list[str]:
    """Compare with Kafka, whose broker hears of its controller's changes a little later."""
    return last_answer(
        lambda: compare(ours, dict(flat(peer.ask(request, version)))),
        lambda found: not found or not _only_asks(request),
    )


def _only_asks(request: Any) -> bool:
    kinds = DescribeConfigsRequest | ListConfigResourcesRequest | ApiVersionsRequest
    return isinstance(request, kinds)


def flat(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each plain value in an answer by its place; items of lists go by their names."""
    if is_dataclass(value):
        for one in fields(value):
            yield from flat(getattr(value, one.name), f"{where}.{one.name}".lstrip("."))
    elif isinstance(value, list) and any(map(is_dataclass, value)):
        for number, one in enumerate(value):
            yield from flat(one, f"{where}[{_identity(one, number)}]")
    else:
        yield where, value


def _identity(one: Any, number: int) -> str:
    named = " ".join(
        str(getattr(one, key)) for key in ("name", "resource_type", "source") if hasattr(one, key)
    )
    if hasattr(one, "resource_name"):
        return f"{named} {one.resource_name}"
    return named or str(number)


def compare(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Return where two answers differ, but for what is known."""
    differing = [
        place
        for place in {**ours, **theirs}
        if ours.get(place) != theirs.get(place)
        and not any(re.fullmatch(known, place) for known in KNOWN_PLACES)
    ]
    return [
        f"{place}: ours {ours.get(place, 'absent')!r}, Kafka's {theirs.get(place, 'absent')!r}"
        for place in differing
        if not _is_known(ours.get(place), theirs.get(place))
    ]


def _is_known(mine: Any, other: Any) -> bool:
    if isinstance(mine, str) and mine in SENTENCES and isinstance(other, str):
        return True
    return any(
        re.fullmatch(one, str(mine)) and re.fullmatch(two, str(other))
        for one, two in KNOWN_MESSAGES
    )
