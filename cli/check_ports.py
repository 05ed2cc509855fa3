"""Checks that the addresses a broker listens on are free, or names who has them."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

from broker.hosts.addresses import AddressError, bind
from cli.check_broker import Health
from cli.finding import OK, PROBLEM, Finding

_LISTENING = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def check_port(name: str, host: str, port: int, health: Health) -> Finding:
    """Look whether an address can be listened on; nobody can connect meanwhile."""
    where = f"{name} at {host or '*'}:{port}"
    try:
        for one in bind(host, port):
            one.close()
    except AddressError as error:
        if health.is_odradek and _answers(host, port):
            return Finding(OK, "port", f"{where} is the running broker's")
        holder = _process_at(port)
        who = f", by {holder}" if holder else ""
        advice = "choose other listeners or another metrics.listener, or stop what uses it"
        return Finding(PROBLEM, "port", f"{error}{who}", advice)
    return Finding(OK, "port", f"{where} is free")


def _answers(host: str, port: int) -> bool:
    """Return whether somebody accepts connections there, as a broker that runs would."""
    # None of them is bound here.
    local = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # nosec B104
    where = local.get(host, host)
    try:
        socket.create_connection((where, port), 1).close()
    except OSError:
        return False
    return True


def _process_at(port: int) -> str:
    """Return the process that listens at a port, as far as this user may know."""
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
    """Yield the sockets that listen at a port, by the number that the system has for each."""
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        lines = table.read_text().splitlines()[1:] if table.exists() else ()
        for line in lines:
            _, local, _, state, *rest = line.split()
            if state == _LISTENING and int(local.rpartition(":")[2], 16) == port:
                yield rest[5]
