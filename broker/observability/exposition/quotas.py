"""Quotas: the rates of clients, how long they are held back, and refused connections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import Metric

from odradek.broker.observability.exposition.families import Family, counter, gauge
from odradek.broker.observability.exposition.quota_rows import SHOWN_MAX, QuotaRow, QuotaRows
from odradek.broker.security.quotas.entities import FETCH, MUTATION, PRODUCE, REQUEST

_WHO = ("user", "client_id")
_SHOWN = f" The {SHOWN_MAX} that were active last are shown."


def _throttle(kind: str, text: str) -> Family:
    return gauge(
        f"kafka_server_{kind}_throttle_time",
        f"Milliseconds for which {text} were held back, the average of those held back in the last"
        " minute.",
        *_WHO,
    )


LIMITS = gauge("odradek_quotas", "Quotas that are set, by their name.", "quota")
RATES: Mapping[str, Family] = {
    PRODUCE: gauge(
        "kafka_server_produce_byte_rate",
        f"Bytes a second in Produce requests of a client that has this quota.{_SHOWN}",
        *_WHO,
    ),
    FETCH: gauge(
        "kafka_server_fetch_byte_rate",
        "Bytes a second in answers to Fetch requests of a client that has this quota.",
        *_WHO,
    ),
    REQUEST: gauge(
        "kafka_server_request_request_time",
        "Percent of the event loop's time that the requests of a client take that has this quota:"
        " 100 is all of it.",
        *_WHO,
    ),
    MUTATION: gauge(
        "kafka_server_controllermutation_mutation_rate",
        "Partitions created and deleted a second by a client that has this quota.",
        *_WHO,
    ),
}
TOKENS = gauge(
    "kafka_server_controllermutation_tokens",
    "Partitions that a client may create or delete at once; below 0, it has to wait.",
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
    "Clients whose rate was forgotten because too many others came: raise"
    " odradek.quota.sensors.max, or look for a client that makes up client ids.",
)
ADDRESSES = gauge(
    "kafka_server_socket_server_metrics_connection_accept_rate",
    f"New connections a second from an address that has this quota.{_SHOWN}",
    "ip",
)
ACCEPTED = counter(
    "odradek_connections_accepted_total",
    "Connections that were accepted. When it rises fast, look for clients that open a connection"
    " for each request.",
    "listener",
)
REFUSED = counter(
    "odradek_connections_refused_total",
    "Connections closed because their address connected more often than"
    " connection_creation_rate: the log names the address.",
    "listener",
)


def quota_families(rows: QuotaRows) -> Iterator[Metric]:
    """Iterate over the families."""
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
