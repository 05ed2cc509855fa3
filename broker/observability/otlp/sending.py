"""Sends request bodies to a collector by HTTP, in a thread."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from urllib.parse import SplitResult

from odradek.dataclass import dataclass

_ANSWER_BYTES_MAX = 64 * 1024
# JSON of metrics is repetitive: the lowest level compresses it to a twentieth.
_GZIP_LEVEL = 1


class PushRefused(Exception):
    """A collector did not take metrics; the message says why, and contains no secret."""


def pack(body: bytes) -> bytes:
    """Compress a body."""
    return gzip.compress(body, _GZIP_LEVEL)


@dataclass(frozen=True, slots=True)
class Collector:
    """The target of the pushes; `headers` contain secrets, and the URL's query may, too."""

    url: SplitResult
    headers: Mapping[str, str]
    timeout_s: float

    @property
    def shown(self) -> str:
        """The address without the parts that may be secret."""
        return f"{self.url.scheme}://{self.url.netloc}{self.url.path}"

    def send(self, bodies: Iterable[bytes]) -> None:
        """Send compressed bodies, one after the other.

        Raises PushRefused, TimeoutError or OSError.
        """
        with closing(self._connection()) as connection:
            for body in bodies:
                self._send_in_time(connection, body)

    def _connection(self) -> http.client.HTTPConnection:
        assert self.url.hostname is not None
        if self.url.scheme == "http":
            return http.client.HTTPConnection(
                self.url.hostname, self.url.port, timeout=self.timeout_s
            )
        return http.client.HTTPSConnection(
            self.url.hostname, self.url.port, timeout=self.timeout_s
        )

    def _send_in_time(self, connection: http.client.HTTPConnection, body: bytes) -> None:
        # A timeout for each operation does not bound an answer that comes byte by byte.
        is_late = threading.Event()
        alarm = threading.Timer(self.timeout_s, _cut, [connection, is_late])
        alarm.daemon = True
        alarm.start()
        try:
            self._send(connection, body)
        except (http.client.HTTPException, OSError) as error:
            if is_late.is_set():
                raise TimeoutError from error
            if isinstance(error, OSError):
                raise
            raise PushRefused(f"it does not speak HTTP ({type(error).__name__})") from error
        finally:
            alarm.cancel()
        if is_late.is_set():  # an incomplete answer may look like a whole one
            raise TimeoutError

    def _send(self, connection: http.client.HTTPConnection, body: bytes) -> None:
        path = self.url.path + (f"?{self.url.query}" if self.url.query else "")
        headers = {
            "Content-Type": "application/json",
            "Content-Encoding": "gzip",
            "User-Agent": "odradek",
            **self.headers,
        }
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        text = answer.read(_ANSWER_BYTES_MAX)
        if answer.status // 100 != 2:
            # Without the body of the answer, which may repeat secrets of the request.
            raise PushRefused(f"it answered {answer.status} {_reason(answer.status)}")
        refused = _rejected_points(text)
        if refused:
            raise PushRefused(f"it left out {refused} values")


def _reason(status: int) -> str:
    return http.client.responses.get(status, "")


def _rejected_points(text: bytes) -> int:
    """Return the number of points that a collector reports as left out."""
    try:
        return int(json.loads(text or b"{}")["partialSuccess"]["rejectedDataPoints"])
    except (ValueError, KeyError, TypeError):
        return 0


def _cut(connection: http.client.HTTPConnection, is_late: threading.Event) -> None:
    is_late.set()
    with suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)
