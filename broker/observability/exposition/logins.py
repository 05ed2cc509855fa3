"""Logins at listeners that authenticate clients: accepted, refused, repeated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric

from odradek.broker.observability.exposition.families import counter, gauge

_PREFIX = "kafka_server_socket_server_metrics_"
_AGAIN = "(KIP-368)"

LOGINS = {
    "successful_authentication": counter(
        f"{_PREFIX}successful_authentication_total",
        "Connections whose client logged in.",
        "listener",
    ),
    "failed_authentication": counter(
        f"{_PREFIX}failed_authentication_total",
        "Connections refused at the login or before it: look in the log for the peer and the"
        " reason. When it rises, somebody guesses passwords, or a client has an old password.",
        "listener",
    ),
    "successful_reauthentication": counter(
        f"{_PREFIX}successful_reauthentication_total",
        f"Repeated logins over an open connection {_AGAIN}.",
        "listener",
    ),
    "failed_reauthentication": counter(
        f"{_PREFIX}failed_reauthentication_total",
        f"Repeated logins that were refused {_AGAIN}: look in the log for the reason.",
        "listener",
    ),
    "successful_authentication_no_reauth": counter(
        f"{_PREFIX}successful_authentication_no_reauth_total",
        "Logins of clients that are too old to repeat their login: connections.max.reauth.ms would"
        " disconnect them.",
        "listener",
    ),
    "expired_connections_killed": gauge(
        f"{_PREFIX}expired_connections_killed_count",
        "Connections closed since the start because their login had ended and the client continued"
        " without a new one.",
        "listener",
    ),
}
CERTIFICATES = gauge(
    "odradek_tls_certificate_end_seconds",
    "End of the validity of a listener's certificate, in seconds since 1970: replace it before"
    " that, as docs/tls.md describes.",
    "listener",
)


def login_families(
    counts: Mapping[str, Mapping[str, int]], certificates: Mapping[str, float]
) -> Iterator[Metric]:
    """Iterate over the families; the counts are by listener and by outcome."""
    yield CERTIFICATES.each(certificates.items())
    for what, family in LOGINS.items():
        yield family.each((listener, found.get(what, 0)) for listener, found in counts.items())
