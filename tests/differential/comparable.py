"""Keeps drawn requests to what can be compared: what Kafka answers, soon, and each time alike."""

from __future__ import annotations

from typing import Any

from tests.differential.world import (
    BROKER,
    CLIENT_METRICS,
    GOOD_BATCHES,
    GROUP,
    LOGGER,
    TOPIC,
    UNKNOWN_CODEC,
    ZSTD_SINCE,
    World,
)

_COUNT_MAX = 10_000
_TYPES = (TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP)


def keep_comparable(request: Any, version: int, world: World) -> None:
    """Change in a drawn request, in place, what could not be compared."""
    _keep_short(request, world)
    _keep_few(request)
    _keep_codecs(request, version)
    _keep_types(request)
    _keep_operations(request)
    _keep_markers(request)


def _keep_short(request: Any, world: World) -> None:
    """Have nobody wait for what will not come: a second member waits for the first to rejoin.

    So each new member enters a group of its own, and none is taken out for being late.
    """
    if type(request).__name__ == "JoinGroupRequest" and not request.member_id:
        world.lonely += 1
        request.group_id = request.group_id and f"lonely-{world.lonely}-{world.seed}"


def _keep_few(request: Any) -> None:
    """Have nobody make thousands of partitions.

    Where a request asks for more than 10,000 new ones Kafka answers with an error, but makes as
    many as that; and for how many more depends on its memory, but for a topic that comes twice.
    """
    if type(request).__name__ != "CreatePartitionsRequest":
        return
    names = [one.name for one in request.topics]
    for one in request.topics:
        if one.count > _COUNT_MAX:
            request.validate_only = True
            if names.count(one.name) > 1:
                one.count = 2**31 - 1


def _keep_codecs(request: Any, version: int) -> None:
    """Have nobody name a codec that there is not, where Kafka refuses the other batches for it."""
    if type(request).__name__ != "ProduceRequest" or version >= ZSTD_SINCE:
        return
    for partition in (one for topic in request.topic_data for one in topic.partition_data):
        if partition.records == UNKNOWN_CODEC:
            partition.records = GOOD_BATCHES[0]


def _keep_types(request: Any) -> None:
    """Have nobody alter two resources of types that there are not, by one name.

    Kafka's controller takes them for the same one, fails, and never answers.
    """
    if type(request).__name__ in ("AlterConfigsRequest", "IncrementalAlterConfigsRequest"):
        named = {(one.resource_type, one.resource_name) for one in request.resources}
        taken = {(kind if kind in _TYPES else None, name): kind for kind, name in named}
        if len(taken) < len(named):
            request.resources = request.resources[:1]


def _keep_operations(request: Any) -> None:
    """Have nobody ask a group for an operation that there is not, beside others.

    Kafka goes by a hash table's order, and tells of what it meets first.
    """
    if type(request).__name__ == "IncrementalAlterConfigsRequest":
        for one in request.resources:
            kinds = {config.config_operation for config in one.configs}
            if one.resource_type == GROUP and not kinds <= set(range(4)):
                one.configs = one.configs[:1]


def _keep_markers(request: Any) -> None:
    """Have nobody ask for several markers at once.

    Kafka never answers where one is written before it comes to another that is for nothing.
    """
    if type(request).__name__ == "WriteTxnMarkersRequest":
        request.markers = request.markers[:1]
