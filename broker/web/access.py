"""The admin token: what a request has to show to change anything.

Reading needs none, as from a PLAINTEXT listener. The token is the one that odradek.admin.token
sets, else a random one in a file that only the broker's own user may read, so that commands on
the same machine find it, and that stays from one start to the next:

    data/odradek-admin-token
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from broker.web.requests import Problem
from storage.errors import StorageError
from storage.files import FileSystem

logger = logging.getLogger(__name__)

FILE_NAME = "odradek-admin-token"
_TOKEN_BYTES = 16
_TOKEN = re.compile(r"[A-Za-z0-9_-]{22}")
_SCHEME = "Bearer "


@dataclass(frozen=True, slots=True)
class Access:
    """Whom the broker lets change something over HTTP."""

    token: str
    source: str  # where a person finds the token
    path: Path | None = None  # the file that the token is in, if it is in one

    def require(self, request: web.Request) -> None:
        """Raise Problem for a request that does not show the token."""
        shown = request.headers.get("Authorization", "")
        expected = (_SCHEME + self.token).encode()
        if hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), expected):
            return
        wrong = "this is not the admin token" if shown else "this takes the admin token"
        raise Problem(401, f"{wrong}: {self.source}")


def grant_access(fs: FileSystem, directory: Path, configured: str | None) -> Access:
    """Return who has access: with the token configured, that of the file, or a new one."""
    if configured:
        return Access(configured, "it is the broker's setting odradek.admin.token")
    path = directory / FILE_NAME
    try:
        kept = fs.read_bytes(path).decode("ascii", "replace").strip() if fs.exists(path) else ""
        token = kept if _TOKEN.fullmatch(kept) else secrets.token_urlsafe(_TOKEN_BYTES)
        # Even when it stays the same: somebody may have made the file readable for others.
        fs.write_private(path, f"{token}\n".encode())
    except StorageError as error:
        logger.warning("kept no admin token, the next start makes another: %s", error)
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        return Access(token, "the broker has printed it at its start")
    return Access(token, f"it is in {path} on the broker's machine", path)
