"""Notifies systemd of the broker's state, if systemd asks for it: sd_notify(3), Type=notify.

A message is a datagram of lines `NAME=value` to the socket that NOTIFY_SOCKET names. A name that
begins with "@" is a socket without a file.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Mapping

logger = logging.getLogger(__name__)


class ServiceSocket:
    """The socket on which systemd listens; without one, nothing is sent."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")

    def ready(self, status: str) -> None:
        """Report that the broker accepts connections, or that a reload is over."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Report that settings are being read again; ready() follows."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={now_us}")

    def stopping(self) -> None:
        """Report that the broker is stopping."""
        self._send("STOPPING=1", "STATUS=stopping")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            logger.warning("could not notify the service manager socket=%s: %s", address, error)
