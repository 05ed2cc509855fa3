"""The broker's present configuration: the settings at its start, and those that were set since.

Clients change a running broker with AlterConfigs, for all brokers (resource name "") or for
this one (its node id). Their settings are kept in the metadata store and take precedence over the
static settings; a topic without an option of its own follows the broker's at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from odradek.broker.errors import Refusal
from odradek.broker.metadata.changes import Changes
from odradek.broker.metadata.resource_configs import ResourceConfigs
from odradek.broker.metadata.store import MetadataStore, Resource, ResourceType
from odradek.config.broker import BrokerConfig
from odradek.config.consumer import ConsumerConfig
from odradek.config.dynamic import check_dynamic, drop_not_dynamic
from odradek.config.effective import (
    BROKER_OPTION,
    resolve_apart,
    resolve_broker,
    resolve_listener,
    resolve_topic,
)
from odradek.config.errors import ConfigError
from odradek.config.reloading import differences, plan_reload
from odradek.config.resolution import Entry, Layer, Resolved, Source
from odradek.config.share import ShareConfig
from odradek.config.topic import TopicConfig
from odradek.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

ALL_BROKERS = ""
# While eligible leader replicas (KIP-966) are in force, all brokers share this setting: Kafka
# makes it one of all brokers when it formats a cluster, and keeps it so.
_MIN_ISR = "min.insync.replicas"

T = TypeVar("T")
Layers = Sequence[Layer]
Alteration = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Makes a resource's new settings from its present ones; may raise Refusal."""


class Configs:
    """The configurations in force. The event loop owns it; read `broker` again for each use."""

    def __init__(
        self,
        static: Layer,
        stored: Mapping[Resource, Mapping[str, str]],
        store: MetadataStore,
        changes: Changes,
    ) -> None:
        """Put the stored settings above the static ones.

        Raises ConfigError when the two do not fit together.
        """
        self._static, self._store, self._changes = static, store, changes
        self._dynamic = {ALL_BROKERS: _stored_settings(stored, ALL_BROKERS)}
        self._sources = {ALL_BROKERS: Source.DYNAMIC_DEFAULT_BROKER}
        self._layers = self._layers_of(self._dynamic)
        self._resolved = resolve_broker(self._layers)
        # Only now is the node id known, and so the settings of this broker.
        name = str(self.node_id)
        self._dynamic[name] = _stored_settings(stored, name)
        self._sources[name] = Source.DYNAMIC_BROKER
        min_isr = self._resolved.entries[_MIN_ISR].value
        self._dynamic[ALL_BROKERS].setdefault(_MIN_ISR, min_isr or "")
        self._layers = self._layers_of(self._dynamic)
        self._resolved = resolve_broker(self._layers)
        self._of_plain_topic = resolve_topic({}, self._layers)
        # Settings declared outside of BrokerConfig, by class, listener and mechanism.
        self._apart: dict[tuple[type, str, str], Any] = {}
        # Called with new layers, before they are stored; raise ConfigError to refuse.
        self.checks: list[Callable[[Layers], None]] = []
        # Whether the feature that fixes min.insync.replicas is in force.
        self.min_isr_is_fixed: Callable[[], bool] = lambda: False
        # Called once new settings are in force.
        self.on_changed: list[Callable[[BrokerConfig], None]] = []
        # The settings of groups and of client metrics subscriptions.
        self.resources = ResourceConfigs(stored, store, changes, lambda: self.entries)

    @property
    def broker(self) -> BrokerConfig:
        """The broker's settings in force; a change replaces them as a whole."""
        return self._resolved.config

    @property
    def consumers(self) -> ConsumerConfig:
        """The settings of consumer groups in force; a change replaces them as a whole."""
        return self.of(ConsumerConfig)

    @property
    def shares(self) -> ShareConfig:
        """The settings of share groups in force; a change replaces them as a whole."""
        return self.of(ShareConfig)

    @property
    def node_id(self) -> int:
        """The number of this broker, which cannot change while it runs."""
        return self._resolved.config.node_id

    @property
    def entries(self) -> Mapping[str, Entry]:
        """The entries of DescribeConfigs for each of the broker's options."""
        return self._resolved.entries

    @property
    def defaults_of_all_brokers(self) -> Mapping[str, str]:
        """The settings that clients have made for all brokers."""
        return self._dynamic[ALL_BROKERS]

    @property
    def layers(self) -> Layers:
        """The layers that the settings in force are resolved from."""
        return self._layers

    def of(self, cls: type[T]) -> T:
        """Return settings of the broker outside of BrokerConfig; a change replaces them."""
        return self.of_listener(cls, "")

    def of_listener(self, cls: type[T], listener: str, mechanism: str = "") -> T:
        """Return such settings for a listener, or for a SASL mechanism of the listener."""
        key = cls, listener, mechanism
        found: T | None = self._apart.get(key)
        if found is None:
            if listener:
                found = resolve_listener(cls, self._layers, listener, mechanism)
            else:
                found = resolve_apart(cls, self._layers)
            self._apart[key] = found
        return found

    def of_topic(
        self, overrides: Mapping[str, str], layers: Layers | None = None
    ) -> Resolved[TopicConfig]:
        """Resolve a topic's settings above the broker's, or above `layers`, which are proposed.

        Raises ConfigError for settings that are not valid.
        """
        if layers is not None:
            return resolve_topic(overrides, layers)
        if not overrides:  # most topics share this one
            return self._of_plain_topic
        return resolve_topic(overrides, self._layers)

    async def alter(self, name: str, alteration: Alteration, *, validate_only: bool) -> None:
        """Change the settings of all brokers (`""`) or of this one, by its node id.

        Raises Refusal for settings that a running broker cannot change, and MetadataError.
        """
        self.check_name(name)
        await self._changes.run(lambda: self._alter(name, alteration, validate_only))

    async def _alter(self, name: str, alteration: Alteration, validate_only: bool) -> None:
        values = alteration(self._dynamic[name])
        dynamic = self._dynamic | {name: dict(values)}
        layers = self._layers_of(dynamic)
        try:
            check_dynamic(values, per_broker=name != ALL_BROKERS)
            resolved = self._resolve(layers)
        except ConfigError as error:
            # Kafka's code is the wrong one, and is kept for compatibility (KAFKA-13609).
            raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from error
        # In Kafka the broker has checked the values by now, and the controller checks this.
        if self.min_isr_is_fixed():
            _check_min_isr(values, of_all=name == ALL_BROKERS)
        if validate_only:
            return
        await self._store.replace_configs({Resource(ResourceType.BROKER, name): values})
        self._dynamic = dynamic
        # Only names are logged: a value may be a secret.
        logger.info("changed broker settings broker=%r names=%s", name, ",".join(sorted(values)))
        self._put_in_force(layers, resolved)

    def follow(self, stored: Mapping[Resource, Mapping[str, str]]) -> None:
        """Put the settings in force that were stored for all brokers or for this one.

        Another broker has checked them. If they do not fit this one's static settings, those in
        force stay, with an error in the log.
        """
        names = [name for name in self._sources if Resource(ResourceType.BROKER, name) in stored]
        if not names:
            return
        dynamic = self._dynamic | {name: _stored_settings(stored, name) for name in names}
        layers = self._layers_of(dynamic)
        try:
            resolved = self._resolve(layers)
        except ConfigError as error:
            logger.error("settings that another broker stored do not fit here: %s", error)
            return
        self._dynamic = dynamic
        logger.info("followed broker settings of=%s", ",".join(map(repr, names)))
        self._put_in_force(layers, resolved)

    async def reload(self, read: Layer) -> None:
        """Apply the static settings that were read again, as far as they may change at runtime.

        Clients' settings stay above them. Raises ConfigError when the settings are not valid, and
        changes nothing then.
        """
        await self._changes.run(lambda: self._reload(read))

    async def _reload(self, read: Layer) -> None:
        plan = plan_reload(self._static, read)
        resolve_broker(self._layers_of(self._dynamic, read))  # as the next start would
        layers = self._layers_of(self._dynamic, plan.layer)
        resolved = self._resolve(layers)
        for name in plan.awaiting_restart:
            logger.warning("a new value needs a restart setting=%s", name)
        found = {one.name: one for one in differences(self.entries, resolved.entries)}
        for one in found.values():
            old, new = ("unset" if value is None else value for value in (one.old, one.new))
            logger.info("reloaded setting=%s old=%s new=%s", one.name, old, new)
        for name in plan.changed:
            option = BROKER_OPTION.get(name)
            if name not in found and option is not None:
                why = "hidden" if option.sensitive else "another setting takes precedence"
                logger.info("reloaded setting=%s (%s)", name, why)
        self._static = plan.layer
        self._put_in_force(layers, resolved)

    def _resolve(self, layers: Layers) -> Resolved[BrokerConfig]:
        """Resolve layers that are proposed. Raises ConfigError if anybody objects to them."""
        resolved = resolve_broker(layers)
        for check in self.checks:
            check(layers)
        return resolved

    def _put_in_force(self, layers: Layers, resolved: Resolved[BrokerConfig]) -> None:
        self._layers, self._resolved = layers, resolved
        self._of_plain_topic = resolve_topic({}, layers)
        self._apart.clear()
        for changed in self.on_changed:
            changed(self.broker)

    def check_name(self, name: str) -> None:
        """Raise Refusal for a name that is neither "" nor the node id of this broker."""
        if name in self._sources:
            return
        try:
            int(name)
        except ValueError:
            message = f"Node id must be an integer, but it is: {name}"
            raise Refusal(ErrorCode.INVALID_REQUEST, message) from None
        message = f"Unexpected broker id, expected {self.node_id}, but received {name}"
        raise Refusal(ErrorCode.INVALID_REQUEST, message)

    def _layers_of(
        self, dynamic: Mapping[str, Mapping[str, str]], static: Layer | None = None
    ) -> Layers:
        return [
            *(
                Layer(source, dynamic[name], dict.fromkeys(dynamic[name], "set dynamically"))
                for name, source in self._sources.items()
            ),
            static or self._static,
        ]


def _stored_settings(stored: Mapping[Resource, Mapping[str, str]], name: str) -> dict[str, str]:
    """Return a broker's settings that clients made, without those that they may not make."""
    values = stored.get(Resource(ResourceType.BROKER, name), {})
    kept, reasons = drop_not_dynamic(values, per_broker=name != ALL_BROKERS)
    for reason in reasons:
        logger.error("ignored stored broker settings broker=%r: %s", name, reason)
    return kept


def _check_min_isr(values: Mapping[str, str], *, of_all: bool) -> None:
    if of_all and _MIN_ISR not in values:
        message = f"Cluster-level {_MIN_ISR} cannot be removed while ELR is enabled."
        raise Refusal(ErrorCode.INVALID_CONFIG, message)
    if not of_all and _MIN_ISR in values:
        message = f"Broker-level {_MIN_ISR} cannot be altered while ELR is enabled."
        raise Refusal(ErrorCode.INVALID_CONFIG, message)
