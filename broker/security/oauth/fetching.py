"""Fetches a JWKS, from a file or over HTTP; it blocks, so threads call it.

Size and time are bounded, whatever the server does. Only redirections within a scheme are
followed: https stays https.
"""

from __future__ import annotations

import io
import socket
import time
import urllib.error
import urllib.request
from functools import partial
from http.client import (
    HTTPConnection,
    HTTPException,
    HTTPMessage,
    HTTPResponse,
    HTTPSConnection,
)
from pathlib import Path
from typing import IO, Any
from urllib.parse import urljoin, urlsplit

SIZE_MAX = 1024 * 1024
TIMEOUT_S = 10.0
_CHUNK = 64 * 1024
_SHOWN_MAX = 200
_TOO_LONG = "the answer takes too long"


class FetchFailed(Exception):
    """The keys could not be fetched; the message says why."""


def file_of(url: str) -> Path | None:
    """Return the file that a URL names, None when it names none."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return None
    return Path(urllib.request.url2pathname(parts.path))


def read_file(path: Path) -> bytes:
    """Read a JWKS from a file. Raises FetchFailed."""
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_MAX + 1)
    except OSError as error:
        raise FetchFailed(error.strerror or type(error).__name__) from error
    return _bounded(data)


def state_of(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes with the file, None when the file cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def fetch(url: str, timeout_s: float = TIMEOUT_S) -> bytes:
    """Fetch a JWKS over HTTP. Raises FetchFailed."""
    opener = _opener(time.monotonic() + timeout_s)
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    try:
        with opener.open(request, timeout=timeout_s) as response:
            return _read(response)
    except urllib.error.HTTPError as error:
        error.close()
        raise FetchFailed(f"the answer is {error.code}") from None
    except TimeoutError:
        raise FetchFailed(_TOO_LONG) from None
    except urllib.error.URLError as error:
        raise FetchFailed(_shown(error.reason)) from error
    except (OSError, ValueError, EOFError, HTTPException) as error:
        raise FetchFailed(_shown(error)) from error


def _opener(ends_at_s: float) -> urllib.request.OpenerDirector:
    """Return an opener for HTTP only: it has no handler for file, ftp or data."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        _WithinAScheme(),
        _Http(ends_at_s),
        _Https(ends_at_s),
    ):
        opener.add_handler(handler)
    return opener


def _read(response: Any) -> bytes:
    data = bytearray()
    while len(data) <= SIZE_MAX and (more := response.read1(_CHUNK)):
        data += more
    return _bounded(bytes(data))


def _bounded(data: bytes) -> bytes:
    if len(data) > SIZE_MAX:
        raise FetchFailed(f"it is larger than {SIZE_MAX} bytes")
    return data


def _shown(error: object) -> str:
    """Return an error's text, shortened; it may quote the answer."""
    return " ".join(str(error)[:_SHOWN_MAX].split()) or type(error).__name__


class _WithinAScheme(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        # Unless it is closed, urllib reads the whole body of a redirection, whatever its size.
        fp.close()
        to = urljoin(req.full_url, newurl)
        if urlsplit(to).scheme != urlsplit(req.full_url).scheme:
            raise FetchFailed("it redirects to an address of another scheme")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Http(urllib.request.HTTPHandler):
    """Opens connections that respect the deadline."""

    def __init__(self, ends_at_s: float) -> None:
        super().__init__()
        self._ends_at_s = ends_at_s

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_ending(HTTPConnection, self._ends_at_s), req)


class _Https(urllib.request.HTTPSHandler):
    """The same over TLS, with the certificates that the system trusts."""

    def __init__(self, ends_at_s: float) -> None:
        super().__init__()
        self._ends_at_s = ends_at_s

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_ending(HTTPSConnection, self._ends_at_s), req)


def _ending(kind: type[HTTPConnection], ends_at_s: float) -> Any:
    """Return a factory of connections whose answers are read until a deadline, and no longer."""

    def make(host: str, *, timeout: float, **_: Any) -> HTTPConnection:
        connection = kind(host, timeout=min(timeout, _left_s(ends_at_s)))
        connection.response_class = partial(_EndingResponse, ends_at_s)  # type: ignore[assignment]
        return connection

    return make


class _EndingResponse(HTTPResponse):
    """An answer whose header and body are not read past a deadline.

    The socket's own timeout begins again with each byte.
    """

    def __init__(self, ends_at_s: float, sock: socket.socket, *args: Any, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        self.fp = io.BufferedReader(_EndingBytes(sock, self.fp.detach(), ends_at_s))


class _EndingBytes(io.RawIOBase):
    def __init__(self, sock: socket.socket, source: io.RawIOBase, ends_at_s: float) -> None:
        super().__init__()
        self._socket, self._source, self._ends_at_s = sock, source, ends_at_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._socket.settimeout(_left_s(self._ends_at_s))
        return self._source.readinto(buffer)

    def close(self) -> None:
        self._source.close()
        super().close()


def _left_s(ends_at_s: float) -> float:
    """Return the time until the deadline. Raises TimeoutError when it has passed."""
    left_s = ends_at_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError(_TOO_LONG)
    return left_s
