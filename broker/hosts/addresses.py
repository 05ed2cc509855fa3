"""Formats, resolves and binds addresses."""

from __future__ import annotations

import contextlib
import errno
import socket
from ipaddress import IPv6Address, ip_address


class AddressError(Exception):
    """The broker cannot listen on an address; the message has the address and the reason."""


ANY = ""
_NAME_MAX = 255  # RFC 1035
# Kafka's server sockets set this, too; without it a restart waits for old connections to die.
_REUSE = (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def plain_address(host: str) -> str:
    """Return an address as text; an IPv4 address that came through an IPv6 socket is IPv4."""
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    return str(address.ipv4_mapped or address)


def java_address(host: str) -> str:
    """Return an address as Java and Kafka's tools print it: `0:0:0:0:0:0:0:1` for ::1."""
    if ":" not in host:
        return host
    groups = IPv6Address(host).exploded.split(":")
    return ":".join(f"{int(group, 16):x}" for group in groups)


def own_name() -> str:
    """Return the name by which other machines may reach this one; localhost when it has none."""
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        socket.getaddrinfo(name, None)
        return name
    return "localhost"


def resolve(host: str) -> list[str]:
    """Return the addresses of a host, none when it is unknown. May wait for the network."""
    return _resolve(host, 0)


def resolve_number(host: str) -> list[str]:
    """Return the address that a text denotes, none when it is a name. Waits for nothing."""
    return _resolve(host, socket.AI_NUMERICHOST)


def _resolve(host: str, flags: int) -> list[str]:
    if len(host) > _NAME_MAX:
        return []
    # Texts that cannot be names, such as one with a dot too many, raise ValueError.
    with contextlib.suppress(OSError, ValueError):
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)
        return list(dict.fromkeys(plain_address(str(one[4][0])) for one in found))
    return []


def bind(host: str, port: int) -> list[socket.socket]:
    """Bind sockets to every address of a host, all to one port; they do not listen yet.

    An empty host means every interface. With port 0 the system chooses a port. Raises
    AddressError when no address can be bound, or when one is in use.
    """
    bound: list[socket.socket] = []
    try:
        everywhere = ["::", "0.0.0.0"]  # noqa: S104 - a setting, and the log says so
        wanted = everywhere if host == ANY else _addresses(host, port)
        for address in wanted:
            try:
                made = _bind_one(address, port)
            except OSError as error:
                # A name may have an IPv6 address on a machine that has no IPv6.
                if error.errno == errno.EADDRINUSE or (not bound and address == wanted[-1]):
                    raise
                continue
            bound.append(made)
            port = made.getsockname()[1]
            if address == "::":  # it takes IPv4 connections, too
                break
    except OSError as error:
        for one in bound:
            one.close()
        where = f"[{host}]:{port}" if ":" in host else f"{host or '*'}:{port}"
        raise AddressError(f"cannot listen on {where}: {error.strerror or error}") from error
    return bound


def listen(bound: socket.socket, backlog: int) -> None:
    """Let clients connect to a bound socket. Raises AddressError when it is in use by now."""
    try:
        bound.listen(backlog)
    except OSError as error:
        where = bound.getsockname()
        raise AddressError(f"cannot listen on {where[0]}:{where[1]}: {error.strerror}") from error


def _addresses(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def _bind_one(address: str, port: int) -> socket.socket:
    is_v6 = ip_address(address.partition("%")[0]).version == 6
    made = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(*_REUSE)
        if is_v6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
        made.bind((address, port))
    except OSError:
        made.close()
        raise
    return made
