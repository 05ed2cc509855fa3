"""Where options differ from Kafka's on purpose. These lists may only shrink."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.config.effective import BROKER_OPTION
from odradek.config.per_listener import base_name, split_name

KAFKA_4_4 = {
    "errors.deadletterqueue.auto.create.topics.enable",
    "errors.deadletterqueue.group.enable",
    "errors.deadletterqueue.topic.name.prefix",
    "group.consumer.assignor.offload.enable",
    "group.share.assignor.offload.enable",
    "group.share.dlq.manager.class.name",
    "group.streams.acceptable.recovery.lag",
    "group.streams.assignor.offload.enable",
    "group.streams.assignors",
    "group.streams.max.warmup.replicas",
    "group.streams.min.task.offset.interval.ms",
    "group.streams.num.warmup.replicas",
    "group.streams.rack.aware.assignment.tags",
    "group.streams.task.offset.interval.ms",
    "group.streams.topology.description.plugin.class",
    "log.remote.copy.lag.bytes",
    "log.remote.copy.lag.ms",
    "max.decompressed.message.bytes",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
    "sasl.oauthbearer.allow.unverified.audience",
    "sasl.oauthbearer.allow.unverified.issuer",
}
OURS = {
    "internal.segment.bytes",  # Kafka has it for topics only
    "log.cleaner.verify",
    "log.flush.acks.all",
    "metrics.listener",
    # Kafka gives them to the authorizer, and does not know them itself.
    "super.users",
    "allow.everyone.if.no.acl.found",
    *(name for name in BROKER_OPTION if name.startswith("odradek.")),
}
# Kafka requires these three, for its controller.
REQUIRED = {"node.id", "process.roles", "controller.listener.names"}
# One broker on its own machine cannot have three replicas, and should not answer everybody.
OTHER_DEFAULTS = {
    "listeners",
    "log.dir",
    "offsets.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
    # A broker takes over within seconds, since no controller has to be elected first.
    "broker.heartbeat.interval.ms",
    "broker.session.timeout.ms",
    # Java classes, of which there are none.
    "group.share.persister.class.name",
    "principal.builder.class",
    "remote.log.metadata.manager.class.name",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "metric.reporters",
}
OTHER_BOUNDS = {
    "authorizer.class.name",  # there is one, Kafka takes any class that it can load
    "group.consumer.assignors",  # may be Java classes there
    "controller.listener.names",  # may be empty, since there need be no controller
    "internal.segment.bytes",  # Kafka lets it be 0
    "max.connections.per.ip.overrides",  # Kafka looks at it later
}
NOT_DYNAMIC = {
    # Sockets stay open as they were opened.
    "listeners",
    "listener.security.protocol.map",
    # Clients could read files of the broker's machine by them.
    "config.providers",
}


def is_stricter(values: Mapping[str, str]) -> bool:
    """Return whether clients may make settings of Kafka that they may not make here.

    Each of them would let a client reach files or addresses of the broker's machine, or have the
    broker believe other credentials, without a restart (config/dynamic.py).
    """
    return any(
        # An option of a listener that needs a restart without the listener's prefix.
        (split_name(name) is not None and _needs_restart(base_name(name)))
        # The providers of references, and the references.
        or base_name(name).startswith("config.providers")
        or "${file:" in text
        for name, text in values.items()
    )


def _needs_restart(name: str) -> bool:
    option = BROKER_OPTION.get(name)
    return option is not None and option.read_only
