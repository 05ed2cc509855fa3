"""The settings in force: the broker's, and those of a topic that falls back to the broker's.

A broker has a static layer (file, environment, --set) and dynamic layers, which clients have set
since for all brokers or for this one; the defaults lie below them. A topic's own settings lie on
top of the same layers.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from odradek.config.acl import AclConfig, acl_problems
from odradek.config.broker import BrokerConfig
from odradek.config.catalog import URL as CATALOG_URL
from odradek.config.catalog import CatalogConfig, catalog_problems
from odradek.config.connections import ConnectionConfig, connection_problems
from odradek.config.consumer import ConsumerConfig, consumer_problems
from odradek.config.errors import ConfigError, raise_any
from odradek.config.http import HttpConfig, http_problems
from odradek.config.inert import INERT, INERT_GROUPS, is_removed
from odradek.config.inter_broker import PROTOCOL, InterBrokerConfig, inter_broker_problems
from odradek.config.oauth import OAuthConfig, oauth_listener_problems, oauth_problems
from odradek.config.object_store import (
    NEEDS_STORE,
    OBJECT,
    STORAGE,
    URL,
    ObjectStoreConfig,
    object_store_problems,
)
from odradek.config.option import Option, fallbacks_of, options_of
from odradek.config.otlp import OtlpConfig, otlp_problems
from odradek.config.per_listener import base_name, layers_of, split_name
from odradek.config.providers import PREFIX as PROVIDERS_PREFIX
from odradek.config.providers import ProvidersConfig
from odradek.config.quota import QuotaConfig, quota_problems
from odradek.config.replication import ReplicationConfig
from odradek.config.resolution import Entry, Layer, Resolved, Source, Synonym, defaults_of, resolve
from odradek.config.sasl import SaslConfig, sasl_listener_problems, sasl_problems
from odradek.config.share import ShareConfig, share_problems
from odradek.config.streams import StreamsConfig, streams_problems
from odradek.config.tls import TlsConfig, tls_problems
from odradek.config.tokens import TokenConfig, token_problems
from odradek.config.topic import TopicConfig, check_topic
from odradek.config.values import Kind
from odradek.config.workers import WorkersConfig

T = TypeVar("T")
# How many unknown names get a suggestion: the search for a similar name takes 0.7 ms, and clients
# may set thousands of names.
_GUESSES_MAX = 20
# Yields the contradictions in a config, each with the names of its options.
_Problems = Callable[[Any], Iterator[tuple[str, Sequence[str]]]]

# The broker's options outside of BrokerConfig, resolved when they are asked for (Configs.of).
_APART: Mapping[type, _Problems] = {
    ConsumerConfig: consumer_problems,
    ConnectionConfig: connection_problems,
    QuotaConfig: quota_problems,
    ShareConfig: share_problems,
    StreamsConfig: streams_problems,
    HttpConfig: http_problems,
    AclConfig: acl_problems,
    SaslConfig: sasl_problems,
    OAuthConfig: oauth_problems,
    TlsConfig: tls_problems,
    TokenConfig: token_problems,
    ProvidersConfig: lambda _: iter(()),
    OtlpConfig: otlp_problems,
    CatalogConfig: catalog_problems,
    WorkersConfig: lambda _: iter(()),
    InterBrokerConfig: lambda _: iter(()),
    ObjectStoreConfig: object_store_problems,
}
# The classes whose options a listener may set for itself (Configs.of_listener).
_OF_LISTENERS: tuple[type, ...] = (SaslConfig, OAuthConfig, TlsConfig, ConnectionConfig)
_LISTENER_OPTION = {option.name: option for cls in _OF_LISTENERS for option in options_of(cls)}

_WITHOUT_ATTRIBUTE = (
    *(option for cls in _APART for option in options_of(cls)),
    *fallbacks_of(TopicConfig),
    *INERT,
)
BROKER_OPTIONS = (*options_of(BrokerConfig), *_WITHOUT_ATTRIBUTE)
BROKER_OPTION = {option.name: option for option in BROKER_OPTIONS}
TOPIC_OPTION = {option.name: option for option in options_of(TopicConfig)}
# Also those that are listed once clients have set them (Kafka's DynamicConfig.Broker).
SETTABLE_OPTION = {
    **BROKER_OPTION, **{option.name: option for option in options_of(ReplicationConfig)}
}  # fmt: skip

_DEFAULTS = defaults_of(BROKER_OPTIONS)
_DEFAULTS_WITH_STORE = Layer(Source.DEFAULT, {**_DEFAULTS.values, STORAGE: OBJECT})
_LOUD = {
    option.name: group.reason for group in INERT_GROUPS if group.loud for option in group.options
}
_FAMILIES = {
    fallback.name: tuple(one.name for one in option.broker or ())
    for option in options_of(TopicConfig)
    for fallback in option.broker or ()
}
_CODEC_MAX = 4  # zstd
_MAP_BYTES_MIN = 1024 * 1024  # Kafka's bound on a cleaner thread's share of the buffer


def declared_options() -> tuple[Option, ...]:
    """Return the options that code reads by attribute, of topics and of the broker."""
    made = (TopicConfig, BrokerConfig, *_APART)
    return tuple(option for cls in made for option in options_of(cls))


def resolve_broker(layers: Iterable[Layer]) -> Resolved[BrokerConfig]:
    """Build the broker's config from its layers; raise one ConfigError for all bad values.

    Names that are not declared cause a warning and no error, as in Kafka. So do security settings
    that would have no effect.
    """
    layers = [_with_both_ids(layer) for layer in layers]
    defaults = _DEFAULTS_WITH_STORE if _has_store(layers) else _DEFAULTS
    resolved = resolve(
        BrokerConfig, [*layers, defaults], also=_WITHOUT_ATTRIBUTE, families=_FAMILIES
    )
    raise_any(
        [
            *(text + _written(layers, names) for text, names in _conflicts(resolved)),
            *(text + _written(layers, names) for text, names in _problems_apart(layers)),
            *(text + _written(layers, names) for text, names in _shared(layers, resolved.config)),
            *_listeners_own_problems(layers),
            *_endpoint_problems(layers, resolved.config),
            *_topic_problems(layers),
        ]
    )
    entries = {**resolved.entries, **_unlisted_entries(layers, resolved.entries)}
    return Resolved(resolved.config, entries, tuple(_warnings(layers)))


def resolve_apart(cls: type[T], layers: Iterable[Layer]) -> T:
    """Build a config outside of BrokerConfig from the broker's layers."""
    return resolve(cls, [*layers, _DEFAULTS]).config


def resolve_listener(
    cls: type[T], layers: Iterable[Layer], listener: str, mechanism: str = ""
) -> T:
    """Build a config for one listener, or for one SASL mechanism there."""
    return resolve_apart(cls, layers_of(layers, listener, mechanism))


def resolve_topic(
    overrides: Mapping[str, str], broker_layers: Iterable[Layer] = ()
) -> Resolved[TopicConfig]:
    """Build a topic's config from its own settings and the broker's layers.

    Where internal.segment.bytes is set, the config has it as segment_bytes; the entries keep the
    two apart. Raise ConfigError for unknown names, bad values and contradictions (Kafka's
    LogConfig.validate).
    """
    raise_any(
        f"Unknown topic config name: {name}" for name in overrides if name not in TOPIC_OPTION
    )
    layers = [Layer(Source.TOPIC, overrides), *broker_layers, _DEFAULTS]
    resolved = resolve(TopicConfig, layers)
    check_topic(resolved.config)
    if resolved.config.odradek_storage == OBJECT and not _has_store(layers[1:-1]):
        raise ConfigError(NEEDS_STORE)
    if resolved.config.internal_segment_bytes is None:
        return resolved
    smaller = dataclasses.replace(
        resolved.config, segment_bytes=resolved.config.internal_segment_bytes
    )
    return dataclasses.replace(resolved, config=smaller)


def is_sensitive(name: str) -> bool:
    """Return whether the value of a setting, also of a listener's, must never be shown."""
    option = _option_of(name)
    return option is not None and option.sensitive


def _with_both_ids(layer: Layer) -> Layer:
    """Let node.id stand for broker.id and vice versa (KafkaConfig.populateSynonyms)."""
    values = dict(layer.values)
    origins = dict(layer.origins)
    for one, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if one in values and other not in values:
            values[other] = values[one]
            origins[other] = f"as {one}{', ' if one in origins else ''}{origins.get(one, '')}"
    return Layer(layer.source, values, origins)


def _option_of(name: str) -> Option | None:
    """Return the option that a setting is for; the setting may be a listener's."""
    if split_name(name) is not None:
        return _LISTENER_OPTION.get(base_name(name))
    return SETTABLE_OPTION.get(name)


def _problems_apart(layers: Sequence[Layer]) -> Iterator[tuple[str, Sequence[str]]]:
    for cls, problems in _APART.items():
        try:
            config: Any = resolve_apart(cls, layers)
        except ConfigError:
            continue  # bad values have been reported
        yield from problems(config)


def _shared(
    layers: Sequence[Layer], config: BrokerConfig
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the problems that keep a broker from having shared topics."""
    try:
        has_store = _has_store(layers)
        has_catalog = bool(resolve_apart(CatalogConfig, layers).odradek_catalog_url)
        workers = resolve_apart(WorkersConfig, layers).odradek_workers
    except ConfigError:
        return  # bad values have been reported
    if has_store and not has_catalog and workers == 1:  # several have a catalog of their own
        yield f"{URL} is set, but shared topics need a catalog: set {CATALOG_URL}", (URL,)
    if config.odradek_storage == OBJECT and not has_store:
        yield NEEDS_STORE, (STORAGE,)


def _has_store(layers: Iterable[Layer]) -> bool:
    """Return whether the first layer with an address of a store has one, which may be bad."""
    ordered = sorted(layers, key=lambda layer: layer.source)
    return bool(next((one.values[URL] for one in ordered if URL in one.values), ""))


def _endpoint_problems(layers: Sequence[Layer], config: BrokerConfig) -> Iterator[str]:
    """Yield the problems that keep a listener from serving its protocol."""

    def sasl_of(listener: str, mechanism: str) -> SaslConfig:
        return resolve_listener(SaslConfig, layers, listener, mechanism.lower())

    def oauth_of(listener: str, mechanism: str) -> OAuthConfig:
        return resolve_listener(OAuthConfig, layers, listener, mechanism.lower())

    try:
        endpoints = config.bound_endpoints
        yield from sasl_listener_problems(endpoints, sasl_of, config.connections_max_idle_ms)
        yield from oauth_listener_problems(endpoints, sasl_of, oauth_of)
        if resolve_apart(CatalogConfig, layers).odradek_catalog_url:
            yield from inter_broker_problems(
                resolve_apart(InterBrokerConfig, layers),
                config.advertised_endpoints,
                sasl_of,
                lambda listener: resolve_listener(TlsConfig, layers, listener),
                is_protocol_set=any(PROTOCOL in layer.values for layer in layers),
            )
    except ConfigError:
        return  # bad values have been reported


def _listeners_own_problems(layers: Sequence[Layer]) -> Iterator[str]:
    """Yield the problems in the settings that listeners have of their own."""
    found = {parts for layer in layers for name in layer.values if (parts := split_name(name))}
    places = sorted({(parts.listener, parts.mechanism) for parts in found})
    for listener, mechanism in places:
        for cls in _OF_LISTENERS:
            try:
                own: Any = resolve_listener(cls, layers, listener, mechanism)
            except ConfigError as error:
                yield from (f"listener {listener}: {problem}" for problem in error.problems)
                continue
            known = {text for text, _ in _APART[cls](resolve_apart(cls, layers))}
            for text, _ in _APART[cls](own):
                if text not in known:
                    yield f"listener {listener}: {text}"


def _topic_problems(layers: Sequence[Layer]) -> Iterator[str]:
    """Yield the problems in the settings that topics fall back to."""
    try:
        topic = resolve_topic({}, layers).config
    except ConfigError as error:
        yield from error.problems
        return
    if topic.retention_ms == 0:
        text = "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
        yield text + _written(layers, _FAMILIES["log.retention.ms"])


def _conflicts(resolved: Resolved[BrokerConfig]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each contradiction, with the names of its options."""
    config = resolved.config
    if config.broker_id not in (-1, config.node_id):
        yield (
            "You must set `node.id` to the same value as `broker.id`.",
            ("node.id", "broker.id"),
        )
    if "broker" not in config.process_roles:
        yield "process.roles must contain broker: add it, or remove the option", ("process.roles",)
    threads = max(1, config.log_cleaner_threads)
    if config.log_cleaner_dedupe_buffer_size // threads <= _MAP_BYTES_MIN:
        yield (
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
            ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads"),
        )
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        yield (
            "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
            ("queued.max.request.bytes", "socket.request.max.bytes"),
        )
    if config.max_connections_per_ip == 0 and not config.connections_per_host:
        yield (
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
            "property is set.",
            ("max.connections.per.ip",),
        )
    codec = config.offsets_topic_compression_codec
    if not 0 <= codec <= _CODEC_MAX:
        yield f"Unknown compression type id: {codec}", ("offsets.topic.compression.codec",)
    yield from _listener_problems(config)


def _listener_problems(config: BrokerConfig) -> Iterator[tuple[str, Sequence[str]]]:
    try:
        _ = config.advertised_endpoints
    except ConfigError as error:
        names = ("listeners", "advertised.listeners", "listener.security.protocol.map")
        for problem in error.problems:
            yield problem, names


def _written(layers: Iterable[Layer], names: Iterable[str]) -> str:
    """Return a note of where the named settings were written, for the end of an error."""
    layers = sorted(layers, key=lambda layer: layer.source)
    notes = []
    for name in names:
        origin = next((layer.origins[name] for layer in layers if name in layer.origins), None)
        if origin is not None:
            notes.append(f"{name}: {origin}")
    return f" ({'; '.join(notes)})" if notes else ""


def _unlisted_entries(
    layers: Iterable[Layer], entries: Mapping[str, Entry]
) -> dict[str, Entry]:
    """Describe the settings that are not the broker's own options, as Kafka does.

    After a listener's own value comes the broker's. The value of an unknown name is hidden in
    case it is a secret.
    """
    found: dict[str, Entry] = {}
    ordered = sorted(layers, key=lambda layer: layer.source)
    for name in dict.fromkeys(name for layer in ordered for name in layer.values):
        if name in BROKER_OPTION:
            continue
        option = SETTABLE_OPTION.get(base_name(name))
        hidden = option is None or option.sensitive
        line = [
            Synonym(name, None if hidden else layer.values[name], layer.source)
            for layer in ordered
            if name in layer.values
        ]
        kind, doc = (Kind.UNKNOWN, "") if option is None else (option.kind, option.doc)
        value, source = line[0].value, line[0].source
        if option is not None and option.name in entries:
            line += entries[option.name].synonyms
        is_fixed = name not in SETTABLE_OPTION
        found[name] = Entry(name, value, source, tuple(line), is_fixed, hidden, kind, doc)
    return found


def _warnings(layers: Iterable[Layer]) -> Iterator[str]:
    unknown_count = 0
    for layer in layers:
        for name in layer.values:
            origin = layer.origins.get(name)
            setting = f"{name} ({origin})" if origin else name
            if name in _LOUD:
                yield f"{setting} has no effect: {_LOUD[name]}"
            elif _option_of(name) is None and not name.startswith(PROVIDERS_PREFIX):
                unknown_count += 1
                yield f"{setting} is ignored: {_why_unknown(name, unknown_count <= _GUESSES_MAX)}"


def _why_unknown(name: str, may_guess: bool) -> str:
    if is_removed(name):
        return "Kafka has no such option any more"
    near: list[str] = []
    if may_guess:
        near = difflib.get_close_matches(name, BROKER_OPTION, n=1, cutoff=0.8)
    if near:
        return f"no such option, did you mean {near[0]}?"
    return "no such option, docs/configs.md lists them all"
