"""Checks that the addresses a broker listens on are free, or names the process that uses them."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from odradek.broker.hosts.addresses import AddressError, bind
from odradek.broker.serve import reason_and_remedy
from odradek.cli.finding import OK, PROBLEM, Finding
from odradek.dataclass import dataclass

_LISTENING = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen at, with the name of its listener."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        """Return the text that findings have."""
        return f"{self.name} at {self.host or '*'}:{self.port}"


def check_ports(addresses: Iterable[Address], *, is_running: bool) -> list[Finding]:
    """Check whether a broker can listen on all addresses at a time.

    Clients cannot connect meanwhile. `is_running` means that this broker may listen there now.
    """
    findings: list[Finding] = []
    bound: list[socket.socket] = []
    try:
        for one in addresses:
            try:
                made = bind(one.host, one.port)
                taken = _taken(made, bound)
                bound += made
                if taken:
                    raise AddressError(taken)
            except AddressError as error:
                findings.append(_judge(one, error, is_running))
            else:
                findings.append(Finding(OK, "port", f"{one} is free"))
    finally:
        for made_one in bound:
            made_one.close()
    return findings


def _judge(address: Address, error: AddressError, is_running: bool) -> Finding:
    if is_running and _answers(address.host, address.port):
        return Finding(OK, "port", f"{address} is the running broker's")
    holder = _process_at(address.port)
    reason, remedy = reason_and_remedy(error)
    return Finding(PROBLEM, "port", f"{reason}, by {holder}" if holder else reason, remedy)


def _taken(made: Iterable[socket.socket], others: Iterable[socket.socket]) -> str:
    """Return the error of the listener that comes second to a port, "" for none.

    Two sockets may be bound to one port until both listen.
    """
    wildcards = {"::", "0.0.0.0"}  # noqa: S104 - they are compared only
    for one in made:
        host, port = one.getsockname()[:2]
        for other in others:
            other_host, other_port = other.getsockname()[:2]
            is_same = host == other_host or "::" in (host, other_host)
            is_same |= one.family == other.family and bool({host, other_host} & wildcards)
            if port == other_port and is_same:
                return f"cannot listen on {host}:{port}: {os.strerror(errno.EADDRINUSE)}"
    return ""


def _answers(host: str, port: int) -> bool:
    """Return whether a server accepts connections there, as a running broker would."""
    # These addresses are not bound here.
    local = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - as above
    where = local.get(host, host)
    try:
        socket.create_connection((where, port), 1).close()
    except OSError:
        return False
    return True


def _process_at(port: int) -> str:
    """Return the process that listens on a port, or "" when this user may not see it."""
    inodes = set(_listening(port))
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            for descriptor in (folder / "fd").iterdir():
                found = _SOCKET.fullmatch(str(descriptor.readlink()))
                if found and found[1] in inodes:
                    name = (folder / "comm").read_text().strip()
                    return f"process {folder.name} ({name})"
        except OSError:  # another user's, or gone meanwhile
            continue
    return ""


def _listening(port: int) -> Iterator[str]:
    """Yield the inode number of each socket that listens on a port."""
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        lines = table.read_text().splitlines()[1:] if table.exists() else ()
        for line in lines:
            _, local, _, state, *rest = line.split()
            if state == _LISTENING and int(local.rpartition(":")[2], 16) == port:
                yield rest[5]
