"""Who has a quota, how fast they go, how long they are held back, and who connects too often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import Metric

from broker.observability.exposition.families import Family, counter, gauge
from broker.observability.exposition.quota_rows import SHOWN_MAX, QuotaRow, QuotaRows
from broker.security.quotas.entities import FETCH, MUTATION, PRODUCE, REQUEST

_WHO = ("user", "client_id")
_SHOWN = f" The {SHOWN_MAX} that were active last are shown."


def _throttle(kind: str, text: str) -> Family:
    return gauge(
        f"kafka_server_{kind}_throttle_time",
        f"Milliseconds that {text} were held back for, on average of the last minute, of those"
        " that were.",
        *_WHO,
    )


LIMITS = gauge("odradek_quotas", "Quotas that are set, by their name.", "quota")
RATES: Mapping[str, Family] = {
    PRODUCE: gauge(
        "kafka_server_produce_byte_rate",
        f"Bytes a second that come in Produce requests, of who has a quota for it.{_SHOWN}",
        *_WHO,
    ),
    FETCH: gauge(
        "kafka_server_fetch_byte_rate",
        "Bytes a second that go out in answers to Fetch, of who has a quota for it.",
        *_WHO,
    ),
    REQUEST: gauge(
        "kafka_server_request_request_time",
        "Percent of the event loop's time that requests take, of who has a quota for it: 100 is"
        " all that there is.",
        *_WHO,
    ),
    MUTATION: gauge(
        "kafka_server_controllermutation_mutation_rate",
        "Partitions made and deleted a second, of who has a quota for it.",
        *_WHO,
    ),
}
TOKENS = gauge(
    "kafka_server_controllermutation_tokens",
    "Partitions that may be made or deleted at once; below 0 it has to wait.",
    *_WHO,
)
THROTTLES: Mapping[str, Family] = {
    PRODUCE: _throttle("produce", "producers"),
    FETCH: _throttle("fetch", "consumers"),
    REQUEST: _throttle("request", "clients that take too much time"),
    MUTATION: _throttle("controllermutation", "clients that change too many topics"),
}
EVICTIONS = counter(
    "odradek_quota_evictions_total",
    "Clients whose rate began again as too many others came: raise odradek.quota.sensors.max, or"
    " look for one that makes up client ids.",
)
ADDRESSES = gauge(
    "kafka_server_socket_server_metrics_connection_accept_rate",
    f"New connections a second from an address that has a quota for it.{_SHOWN}",
    "ip",
)
ACCEPTED = counter(
    "odradek_connections_accepted_total",
    "Connections that were accepted. When it rises fast, look for clients that connect again for"
    " each request.",
    "listener",
)
REFUSED = counter(
    "odradek_connections_refused_total",
    "Connections closed since their address came more often than connection_creation_rate: the"
    " log names the address.",
    "listener",
)


def quota_families(rows: QuotaRows) -> Iterator[Metric]:
    """Yield every family."""
    yield LIMITS.each(rows.limits.items())
    for kind, family in RATES.items():
        yield family.each((*_who(one), one.rate) for one in rows.clients.get(kind, ()))
    yield TOKENS.each((*_who(one), one.tokens) for one in rows.clients.get(MUTATION, ()))
    for kind, family in THROTTLES.items():
        yield family.each((*_who(one), one.throttle_ms) for one in rows.clients.get(kind, ()))
    yield EVICTIONS.one(rows.evictions)
    yield ADDRESSES.each(rows.addresses)
    yield ACCEPTED.each(rows.accepted.items())
    yield REFUSED.each(rows.refused.items())


def _who(row: QuotaRow) -> Sequence[str]:
    return row.user, row.client_id
