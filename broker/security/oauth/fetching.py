"""Fetches a JWKS, from a file or over HTTP; waits, and so is called in threads.

Bounded in size and time, whatever the other side does. A redirection is followed within a scheme
only: https stays https.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.parse import urljoin, urlsplit

SIZE_MAX = 1024 * 1024
TIMEOUT_S = 10.0
_CHUNK = 64 * 1024


class FetchFailed(Exception):
    """The keys cannot be had; says why."""


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
    """Return what changes when a file does, None when it cannot be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def fetch(url: str, timeout_s: float = TIMEOUT_S) -> bytes:
    """Fetch a JWKS over HTTP. Raises FetchFailed."""
    ends_at_s = time.monotonic() + timeout_s
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    opener = urllib.request.build_opener(_WithinAScheme)
    try:
        with opener.open(request, timeout=timeout_s) as response:
            return _read(response, ends_at_s)
    except urllib.error.HTTPError as error:
        error.close()
        raise FetchFailed(f"the answer is {error.code}") from None
    except urllib.error.URLError as error:
        raise FetchFailed(str(error.reason)) from error
    except (OSError, ValueError, EOFError) as error:
        raise FetchFailed(str(error) or type(error).__name__) from error


def _read(response: Any, ends_at_s: float) -> bytes:
    """Read to the end; a server that sends a byte now and then is not waited for."""
    data = bytearray()
    while len(data) <= SIZE_MAX and (more := response.read1(_CHUNK)):
        data += more
        if time.monotonic() > ends_at_s:
            raise FetchFailed("the answer takes too long")
    return _bounded(bytes(data))


def _bounded(data: bytes) -> bytes:
    if len(data) > SIZE_MAX:
        raise FetchFailed(f"it is larger than {SIZE_MAX} bytes")
    return data


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
        to = urljoin(req.full_url, newurl)
        if urlsplit(to).scheme != urlsplit(req.full_url).scheme:
            raise FetchFailed("it redirects to an address of another scheme")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
