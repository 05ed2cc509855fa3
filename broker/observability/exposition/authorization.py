"""The decisions of the authorizer; without one, the families are empty."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from odradek.broker.counters.authorization import AuthorizationCounts
from odradek.broker.observability.exposition.families import counter, gauge
from odradek.dataclass import dataclass

_PLUGIN = ("authorizer.class.name", "StandardAuthorizer", "broker")
_PREFIX = "kafka_server_plugins_"
_LABELS = ("config", "class", "role")

REQUESTED = gauge(
    f"{_PREFIX}authorization_request_rate_per_minute",
    "Decisions of the authorizer in the last whole minute: one for each resource that a request"
    " names.",
    *_LABELS,
)
ALLOWED = gauge(
    f"{_PREFIX}authorization_allowed_rate_per_minute",
    "Decisions of the last whole minute that allowed the operation.",
    *_LABELS,
)
DENIED = gauge(
    f"{_PREFIX}authorization_denied_rate_per_minute",
    "Decisions of the last whole minute that denied the operation: the logger"
    " kafka.authorizer.logger names client, operation, resource and rule.",
    *_LABELS,
)
ACLS = gauge(
    f"{_PREFIX}acls_total_count", "Access control entries in force, for all resources.", *_LABELS
)
DECISIONS = counter(
    "odradek_authorizations_total",
    "Decisions of the authorizer since the start. When denials rise, a client lacks a right, or"
    " tries an operation that it should not.",
    "result",
)


@dataclass(frozen=True, slots=True)
class AuthorizationRow:
    """The values of the authorizer's families."""

    counts: AuthorizationCounts
    acl_count: int


def authorization_families(row: AuthorizationRow | None) -> Iterator[Metric]:
    """Iterate over the families, without values where there is no authorizer."""
    values: tuple[int | None, ...] = (None,) * 6
    if row is not None:
        minute = row.counts.allowed_per_minute, row.counts.denied_per_minute
        values = sum(minute), *minute, row.acl_count, row.counts.allowed, row.counts.denied
    requested, allowed, denied, acls, allowed_total, denied_total = values
    yield REQUESTED.each([(*_PLUGIN, requested)])
    yield ALLOWED.each([(*_PLUGIN, allowed)])
    yield DENIED.each([(*_PLUGIN, denied)])
    yield ACLS.each([(*_PLUGIN, acls)])
    yield DECISIONS.each([("allowed", allowed_total), ("denied", denied_total)])
