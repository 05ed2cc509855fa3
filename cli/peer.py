"""Finds the user whose process is at the other end of a connection within this machine.

Linux lists every TCP socket with its addresses and its owner, in /proc/net/tcp and /proc/net/tcp6:

    sl: local address:port  remote address:port  state  queues  timer  retransmits  uid  …  inode

An address is written as 32-bit words, each in the machine's own order. A connection that no
process has accepted yet, or whose end is closed already, has the inode 0 and a uid that means
nothing.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

TABLES = Path("/proc/net")

_WORD_BYTES = 4
_MAPPED = bytes(10) + b"\xff\xff"  # before an IPv4 address in an IPv6 socket


def owner_of_peer(connection: socket.socket, tables: Path | None = None) -> int | None:
    """Return the uid of the process that accepted a connection; None where it is not known."""
    wanted = (_end(connection.getpeername()), _end(connection.getsockname()))
    for line in _lines(tables or TABLES):
        fields = line.split()
        with contextlib.suppress(ValueError, IndexError):
            if (_written(fields[1]), _written(fields[2])) == wanted and int(fields[9]):
                return int(fields[7])
    return None


def _lines(tables: Path) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), (tables / name).open(encoding="ascii") as opened:
            next(opened, None)  # the titles
            yield from opened


def _end(name: tuple[str, int]) -> tuple[bytes, int]:
    return _plain(ip_address(name[0].partition("%")[0]).packed), name[1]


def _written(text: str) -> tuple[bytes, int]:
    address, _, port = text.partition(":")
    swapped = bytes.fromhex(address)
    words = range(0, len(swapped), _WORD_BYTES)
    step = -1 if sys.byteorder == "little" else 1
    packed = b"".join(swapped[at : at + _WORD_BYTES][::step] for at in words)
    return _plain(packed), int(port, 16)


def _plain(packed: bytes) -> bytes:
    return packed.removeprefix(_MAPPED)
