"""The broker as a whole: version, state, problems, connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from odradek.broker.observability.exposition.families import counter, gauge
from odradek.broker.version import VERSION

if TYPE_CHECKING:
    from odradek.broker.observability.exposition.snapshot import Snapshot

_RUNNING = 3  # BrokerState

BUILD = gauge(
    "odradek_build_info", "1, with the version of this program as a label.", "version"
)
PROBLEMS = gauge(
    "odradek_health_problems",
    "Problems that an operator should look at, 0 when all is well: /health describes each.",
)
STATE = gauge(
    "kafka_server_kafkaserver_brokerstate",
    "3, running, as in Kafka: when /metrics answers, all logs are loaded.",
)
CONNECTIONS = gauge(
    "kafka_server_socket_server_metrics_connection_count",
    "Open connections; max.connections bounds them. When they only rise, look for clients that"
    " open a connection for each request.",
    "listener",
)
PUSHES = counter(
    "odradek_otlp_pushes_total",
    "Pushes of metrics to odradek.otlp.endpoint, taken or not.",
)
PUSH_FAILURES = counter(
    "odradek_otlp_failures_total",
    "Pushes that the collector did not take: the log says why, and the next push includes their"
    " counts.",
)


def whole_families(snapshot: Snapshot) -> Iterator[Metric]:
    """Iterate over the families."""
    yield BUILD.each([(VERSION, 1)])
    yield PROBLEMS.one(snapshot.problem_count)
    yield STATE.one(_RUNNING)
    yield CONNECTIONS.each(snapshot.connections.items())
    yield PUSHES.one(snapshot.otlp_pushes)
    yield PUSH_FAILURES.one(snapshot.otlp_failures)
