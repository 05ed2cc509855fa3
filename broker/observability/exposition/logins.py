"""Who logged in at listeners that ask for it, and who was refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric

from broker.observability.exposition.families import counter, gauge

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
        "Connections refused at the login, or before it: look in the log for the peer and the"
        " reason of each. When it rises, somebody guesses passwords, or a client has an old one.",
        "listener",
    ),
    "successful_reauthentication": counter(
        f"{_PREFIX}successful_reauthentication_total",
        f"Logins repeated over an open connection {_AGAIN}.",
        "listener",
    ),
    "failed_reauthentication": counter(
        f"{_PREFIX}failed_reauthentication_total",
        f"Logins whose repetition was refused {_AGAIN}: look in the log for the reason.",
        "listener",
    ),
    "successful_authentication_no_reauth": counter(
        f"{_PREFIX}successful_authentication_no_reauth_total",
        "Logins of clients too old to repeat theirs: connections.max.reauth.ms would disconnect"
        " them.",
        "listener",
    ),
    "expired_connections_killed": gauge(
        f"{_PREFIX}expired_connections_killed_count",
        "Connections closed since the start because their login had ended and the client went on"
        " without a new one.",
        "listener",
    ),
}
CERTIFICATES = gauge(
    "odradek_tls_certificate_end_seconds",
    "Until when the certificate that a listener shows is valid, in seconds since 1970: put another"
    " in its place before, docs/tls.md says how.",
    "listener",
)


def login_families(
    counts: Mapping[str, Mapping[str, int]], certificates: Mapping[str, float]
) -> Iterator[Metric]:
    """Yield every family; the counts are by listener and by what happened."""
    yield CERTIFICATES.each(certificates.items())
    for what, family in LOGINS.items():
        yield family.each((listener, found.get(what, 0)) for listener, found in counts.items())
