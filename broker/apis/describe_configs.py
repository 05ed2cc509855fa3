"""DescribeConfigs (32): the settings in force, and their sources.

A topic's own settings take precedence over the broker's. A broker's settings are found under its
node id; under "" are the settings that clients have made for all brokers. A group and a client
metrics subscription have settings even when they do not exist; the settings of loggers are their
levels. The behaviour is that of Kafka's ConfigHelper.

Versions 1 to 4. v1: sources and synonyms. v3: types and documentation (KIP-569). v4: flexible.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from itertools import dropwhile

from odradek.broker.answers.config_permissions import config_refusal
from odradek.broker.context import RequestContext
from odradek.broker.errors import EXPLAINED, Refusal, code_of, message_of
from odradek.broker.loop.repeats import answer_each
from odradek.broker.metadata.configs import ALL_BROKERS
from odradek.broker.metadata.loggers import logger_levels
from odradek.broker.metadata.resource_configs import KINDS
from odradek.broker.metadata.store import Resource, ResourceType
from odradek.broker.orders.java import hash_order
from odradek.broker.security.authorization import AclOperation
from odradek.broker.services import Services
from odradek.broker.topics import names as topic_names
from odradek.config.effective import TOPIC_OPTION
from odradek.config.resolution import Entry, Source
from odradek.config.values import Kind
from odradek.protocol.compiler import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from odradek.protocol.pacing import paced

_DENIED = frozenset(
    (
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )
)
# Among topic settings that share a place in the table, Kafka's LogConfig defines these first.
_DEFINED_FIRST = (
    "segment.bytes",
    "retention.ms",
    "flush.messages",
    "max.compaction.lag.ms",
    "retention.bytes",
)


def handle(
    services: Services, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Describe resources, each on its own."""
    results = answer_each(
        request.resources,
        name=_name,
        subject=lambda asked: _subject(services, asked),
        answer=lambda asked: _describe(services, context, request, asked),
        size_bytes=lambda result: len(
            encode(DescribeConfigsResponse(results=[result]), context.api_version)
        ),
    )
    denied = [one for one in results if one.error_code in _DENIED]
    if denied:  # refused resources come last
        results = [one for one in results if one.error_code not in _DENIED] + denied
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _name(asked: DescribeConfigsResource) -> tuple[int, str, frozenset[str]]:
    keys = frozenset(paced(asked.configuration_keys or ()))
    return asked.resource_type, asked.resource_name, keys


def _subject(services: Services, asked: DescribeConfigsResource) -> tuple[int, str | None]:
    """Return the subject of an answer with any keys: the defaults, where nothing is set."""
    kind, name = asked.resource_type, asked.resource_name
    resources = services.configs.resources
    if kind in KINDS and not resources.has_some(Resource(ResourceType(kind), name)):
        return kind, None  # whether the resource exists or not
    return kind, name


def _describe(
    services: Services,
    context: RequestContext,
    request: DescribeConfigsRequest,
    asked: DescribeConfigsResource,
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_code=0,
        error_message="",
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[],
    )
    try:
        _check_permission(context, asked)
        entries = _in_order(asked.resource_type, _entries(services, asked))
    except EXPLAINED as error:
        result.error_code, result.error_message = code_of(error), message_of(error)
        return result
    keys = set(paced(asked.configuration_keys or ()))  # an empty list means all keys, like null
    result.configs = [
        _config(entry, request) for entry in entries if not keys or entry.name in keys
    ]
    return result


def _check_permission(context: RequestContext, asked: DescribeConfigsResource) -> None:
    if asked.resource_type in set(ResourceType):
        code = config_refusal(
            context, AclOperation.DESCRIBE_CONFIGS, asked.resource_type, asked.resource_name
        )
        if code is not None:
            raise Refusal(code)


def _entries(services: Services, asked: DescribeConfigsResource) -> Iterable[Entry]:
    if asked.resource_type == ResourceType.TOPIC:
        return _of_topic(services, asked.resource_name)
    if asked.resource_type == ResourceType.BROKER:
        return _of_broker(services, asked.resource_name)
    if asked.resource_type == ResourceType.BROKER_LOGGER:
        return _of_loggers(services, asked.resource_name)
    if asked.resource_type in KINDS:
        resource = Resource(ResourceType(asked.resource_type), asked.resource_name)
        return _of_resource(services, resource)
    raise Refusal(
        ErrorCode.INVALID_REQUEST,
        f"Unsupported resource type: {asked.resource_type}. Ask for topics (2), "
        "the broker (4), its loggers (8), client metrics (16) or groups (32).",
    )


def _in_order(kind: int, entries: Iterable[Entry]) -> Iterable[Entry]:
    """Return entries in the order of Kafka's HashMap, where Kafka has the same entries.

    Kafka's brokers have other settings, and other loggers.
    """
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return entries
    by_name = {entry.name: entry for entry in entries}
    return [by_name[name] for name in _names_in_order(tuple(by_name))]


@lru_cache(maxsize=16)
def _names_in_order(names: tuple[str, ...]) -> list[str]:
    first = [name for name in _DEFINED_FIRST if name in names]
    return hash_order([*first, *names])


def _of_topic(services: Services, name: str) -> Iterable[Entry]:
    problem = topic_names.problem(name)
    if problem:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    topic = services.topics.get(name)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    entries = services.configs.of_topic(topic.overrides).entries.values()
    return [_as_listed(entry) for entry in entries]


def _as_listed(entry: Entry) -> Entry:
    """Leave out the synonyms that Kafka does: broker names set before the first of them is."""
    names = TOPIC_OPTION[entry.name].broker or ()
    if len(names) < 2:
        return entry
    own = [one for one in entry.synonyms if one.source is Source.TOPIC]
    rest = dropwhile(lambda one: one.name != names[0].name, entry.synonyms[len(own) :])
    synonyms = (*own, *rest)
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return replace(entry, synonyms=synonyms, source=source)


def _of_broker(services: Services, name: str) -> Iterable[Entry]:
    configs = services.configs
    if name == ALL_BROKERS:
        return [
            _as_set_for_all(configs.entries[option], value)
            for option, value in configs.defaults_of_all_brokers.items()
        ]
    if name != str(configs.node_id):
        raise Refusal(ErrorCode.INVALID_REQUEST, _no_such_broker(name, configs.node_id))
    return configs.entries.values()


def _of_loggers(services: Services, name: str) -> Iterable[Entry]:
    node_id = services.configs.node_id
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if name != str(node_id):
        problem = _no_such_broker(name, node_id).replace(" or empty string, but", " but")
        raise Refusal(ErrorCode.INVALID_REQUEST, problem)
    return [
        Entry(logger, level, Source.BROKER_LOGGER, (), False, False, Kind.UNKNOWN, "")
        for logger, level in logger_levels().items()
    ]


def _of_resource(services: Services, resource: Resource) -> Iterable[Entry]:
    if not resource.name:
        is_group = resource.type is ResourceType.GROUP
        what = "Group" if is_group else "Client metrics subscription"
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{what} name must not be empty")
    return services.configs.resources.entries(resource).values()


def _no_such_broker(name: str, node_id: int) -> str:
    try:
        int(name)
    except ValueError:
        return f"Broker id must be an integer, but it is: {name}"
    return f"Unexpected broker id, expected {node_id} or empty string, but received {name}"


def _as_set_for_all(entry: Entry, value: str) -> Entry:
    """Describe the setting made for all brokers, though a broker may have a setting of its own."""
    source = Source.DYNAMIC_DEFAULT_BROKER
    return replace(
        entry,
        value=None if entry.sensitive else value,
        source=source,
        synonyms=tuple(one for one in entry.synonyms if one.source is source),
    )


def _config(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source)
            for one in entry.synonyms
            if request.include_synonyms
        ],
        config_type=entry.kind,
        documentation=_documentation(entry, request),
    )


def _documentation(entry: Entry, request: DescribeConfigsRequest) -> str | None:
    """Return an option's documentation if the request asks for it; a logger's is always empty."""
    if entry.source is Source.BROKER_LOGGER:
        return ""
    return entry.doc or None if request.include_documentation else None
