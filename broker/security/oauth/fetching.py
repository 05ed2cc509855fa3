"""Fetches a JWKS, from a file or over HTTP; it blocks, so threads call it.

Size and time are bounded, whatever the server does.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from odradek.deadline_http import TOO_LONG, fetch_within

SIZE_MAX = 1024 * 1024
TIMEOUT_S = 10.0
_SHOWN_MAX = 200


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
    headers = {"Accept": "application/json"}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - HTTP only
    try:
        return _bounded(fetch_within(request, timeout_s, SIZE_MAX))
    except urllib.error.HTTPError as error:
        error.close()
        raise FetchFailed(f"the answer is {error.code}") from None
    except TimeoutError:
        raise FetchFailed(TOO_LONG) from None
    except urllib.error.URLError as error:
        raise FetchFailed(_shown(error.reason)) from error
    except (OSError, ValueError, EOFError, HTTPException) as error:
        raise FetchFailed(_shown(error)) from error


def _bounded(data: bytes) -> bytes:
    if len(data) > SIZE_MAX:
        raise FetchFailed(f"it is larger than {SIZE_MAX} bytes")
    return data


def _shown(error: object) -> str:
    """Return an error's text, shortened; it may quote the answer."""
    return " ".join(str(error)[:_SHOWN_MAX].split()) or type(error).__name__
