"""The admin token, which allows all requests over HTTP.

It is the value of odradek.admin.token, else a random one in a file that only the broker's own user
may read, so that commands on the same machine find it:

    data/odradek-admin-token

Each start creates a new token: a process that took the port of a stopped broker, and got the token
from a client, cannot use it with the next broker. All workers of a machine have the same one.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import field
from pathlib import Path

from odradek.dataclass import dataclass
from odradek.storage.errors import StorageError
from odradek.storage.files import FileSystem

logger = logging.getLogger(__name__)

FILE_NAME = "odradek-admin-token"
_TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class AdminToken:
    """The token that allows everything, and the place where a person finds it."""

    text: str = field(repr=False)
    source: str
    path: Path | None = None  # the file with the token, if there is one


def create_admin_token(fs: FileSystem, directory: Path, configured: str | None) -> AdminToken:
    """Return the admin token: the configured one, or a new one in the file."""
    if configured:
        return AdminToken(configured, "it is the broker's setting odradek.admin.token")
    path = directory / FILE_NAME
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        fs.write_private(path, f"{token}\n".encode())
    except StorageError as error:
        logger.warning("could not store an admin token, set odradek.admin.token: %s", error)
        return AdminToken(token, "it could not be stored: set the broker's odradek.admin.token")
    return AdminToken(token, f"it is in {path} on the broker's machine", path)
