"""Opens URLs of http and https whose answers end by a deadline, whatever the server does.

The timeout of a socket begins again with each byte; a server that sends its answer byte by byte
would hold a thread for as long as it likes. Redirections stay within their scheme: https stays
https, and nothing leads to a file or to FTP.
"""

from __future__ import annotations

import base64
import io
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection, HTTPMessage, HTTPResponse, HTTPSConnection
from typing import IO, Any
from urllib.parse import urljoin, urlsplit

_CHUNK = 64 * 1024
TOO_LONG = "the answer takes too long"


def fetch_within(
    request: urllib.request.Request, timeout_s: float, size_max: int, authority: str | None = None
) -> bytes:
    """Return the body of an answer, at most one byte more than `size_max`.

    Over TLS it trusts the certificates of a file, `authority`, else those that the system trusts.
    Raises urllib's HTTPError for an error as an answer, and OSError, ValueError, EOFError or
    HTTPException.
    """
    opener = _opener(time.monotonic() + timeout_s, authority)
    with opener.open(request, timeout=timeout_s) as response:
        return read_bounded(response, size_max)


def add_login(request: urllib.request.Request, user_info: str) -> None:
    """Log in as USER:PASSWORD, but not at the host of a redirection."""
    credentials = base64.b64encode(user_info.encode()).decode()
    request.add_unredirected_header("Authorization", f"Basic {credentials}")


def _opener(ends_at_s: float, authority: str | None) -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()  # it has no handler for file, ftp or data
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        _WithinAScheme(),
        _Http(ends_at_s),
        _Https(ends_at_s, authority),
    ):
        opener.add_handler(handler)
    return opener


def read_bounded(response: Any, size_max: int) -> bytes:
    """Read an answer, at most one byte more than `size_max`."""
    data = bytearray()
    while len(data) <= size_max and (more := response.read1(_CHUNK)):
        data += more
    return bytes(data[: size_max + 1])


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
            raise urllib.error.URLError("it redirects to an address of another scheme")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Http(urllib.request.HTTPHandler):
    """Opens connections that respect the deadline."""

    def __init__(self, ends_at_s: float) -> None:
        super().__init__()
        self._ends_at_s = ends_at_s

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_ending(HTTPConnection, self._ends_at_s), req)


class _Https(urllib.request.HTTPSHandler):
    """The same over TLS."""

    def __init__(self, ends_at_s: float, authority: str | None) -> None:
        super().__init__()
        self._ends_at_s, self._authority = ends_at_s, authority

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        context = ssl.create_default_context(cafile=self._authority)
        secured = partial(HTTPSConnection, context=context)
        return self.do_open(_ending(secured, self._ends_at_s), req)


def _ending(kind: Callable[..., HTTPConnection], ends_at_s: float) -> Any:
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
        raise TimeoutError(TOO_LONG)
    return left_s
