"""Tells systemd how far the broker is, when it asks to be told: sd_notify(3), Type=notify.

A datagram of lines `NAME=value` to the socket that NOTIFY_SOCKET names; "@" begins the name of
one without a file.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Mapping

logger = logging.getLogger(__name__)


class ServiceSocket:
    """Where systemd listens; silent when nobody does."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")

    def ready(self, status: str) -> None:
        """Say that the broker accepts connections, or goes on after a reload."""
        self._tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Say that settings are being read again; ready() follows."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._tell("RELOADING=1", f"MONOTONIC_USEC={now_us}")

    def stopping(self) -> None:
        """Say that the broker is on its way out."""
        self._tell("STOPPING=1", "STATUS=stopping")

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
                told.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            logger.warning("could not tell the service manager socket=%s: %s", address, error)
