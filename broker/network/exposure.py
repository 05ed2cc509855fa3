"""Logs the listeners that answer anybody who reaches them: one line each, at the start.

Kafka's images listen on every interface, and so do ours. An operator who puts one on a network
should read the consequences once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from ipaddress import ip_address

from odradek.broker.hosts.listener import Listener
from odradek.broker.metadata.configs import Configs
from odradek.broker.network.server import Server
from odradek.config.tls import TlsConfig

logger = logging.getLogger(__name__)

Addresses = Sequence[tuple[str, int]]


def report_open_listeners(server: Server, configs: Configs) -> None:
    """Log a warning for each listener beyond loopback that does not authenticate clients."""
    for one in server.listeners:
        client_auth = configs.of_listener(TlsConfig, one.name).ssl_client_auth
        warning = warn_of_listener(one, server.addresses_of(one), client_auth)
        if warning:
            logger.warning("%s", warning)


def warn_of_listener(listener: Listener, addresses: Addresses, client_auth: str) -> str:
    """Return the warning for a listener, "" for none; `client_auth` is its ssl.client.auth."""
    where = beyond_loopback(addresses)
    is_mutual = listener.protocol == "SSL" and client_auth == "required"
    if not where or is_mutual or listener.protocol.startswith("SASL_"):
        return ""
    way = f"map {listener.name} to SASL_SSL in listener.security.protocol.map"
    if listener.protocol == "SSL":
        way = "set ssl.client.auth=required"
    return (
        f"anybody who reaches this listener may use the broker, no password or certificate needed "
        f"listener={listener.name} address={where}: let it listen on 127.0.0.1 (listeners), "
        f"or {way}"
    )


def warn_of_http(addresses: Addresses, *, is_guarded: bool, is_secured: bool) -> str:
    """Return the warning for the HTTP listener, "" for none.

    `is_guarded` says whether reading takes a token, `is_secured` whether it speaks TLS.
    """
    where = beyond_loopback(addresses)
    if not where or (is_guarded and is_secured):
        return ""
    listener = f"listener=HTTP address={where}: let it listen on 127.0.0.1 (metrics.listener), or"
    if is_guarded:
        return (
            f"tokens cross the network in the clear {listener} set odradek.http.tls.certificate"
        )
    return (
        f"anybody who reaches this listener may read all records and settings {listener} set "
        "odradek.http.read.token"
    )


def beyond_loopback(addresses: Addresses) -> str:
    """Return the first address that other machines can reach, "" for none."""
    for host, port in addresses:
        if not ip_address(host.partition("%")[0]).is_loopback:
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return ""
