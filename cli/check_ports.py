"""Checks that the addresses a broker listens on are free, or names the process that uses them."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

from odradek.broker.hosts.addresses import AddressError, bind
from odradek.cli.check_broker import Health
from odradek.cli.finding import OK, PROBLEM, Finding

_LISTENING = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def check_port(name: str, host: str, port: int, health: Health) -> Finding:
    """Check whether a broker can listen on an address; clients cannot connect meanwhile."""
    where = f"{name} at {host or '*'}:{port}"
    try:
        for one in bind(host, port):
            one.close()
    except AddressError as error:
        if health.is_odradek and _answers(host, port):
            return Finding(OK, "port", f"{where} is the running broker's")
        holder = _process_at(port)
        who = f", by {holder}" if holder else ""
        advice = "choose other listeners or another metrics.listener, or stop that process"
        return Finding(PROBLEM, "port", f"{error}{who}", advice)
    return Finding(OK, "port", f"{where} is free")


def _answers(host: str, port: int) -> bool:
    """Return whether a server accepts connections there, as a running broker would."""
    # These addresses are not bound here.
    local = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # nosec B104
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
