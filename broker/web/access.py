"""Who may read over HTTP, and who may change anything: who shows a token.

The admin token allows all. It is the one that odradek.admin.token sets, else a random one in a
file that only the broker's own user may read, so that commands on the same machine find it:

    data/odradek-admin-token

Each start makes a new one: who has taken the port of a broker that is down, and is shown the token
there, has nothing of the broker that starts afterwards.

Reading is free, as from a PLAINTEXT listener, unless odradek.http.read.token is set: then it takes
that token or the admin's. With an authorizer reading takes a token in any case, for what it denies
over Kafka's protocol is not to be had here. /health tells whether the broker is well to everybody.

Wrong tokens are slowed down (guesses.py), a right one is always served at once.

A token is taken from the header Authorization and from nowhere else: addresses are logged, by
browsers and proxies if not here.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from aiohttp import web

from broker.hosts.addresses import plain_address
from broker.loop.seldom import Seldom
from broker.web.guesses import Guesses, Holds
from broker.web.requests import Problem
from storage.errors import StorageError
from storage.files import FileSystem

logger = logging.getLogger(__name__)

FILE_NAME = "odradek-admin-token"
_TOKEN_BYTES = 16
_SCHEME = "Bearer "
# The files of the page, and whether the broker is well, say nothing of its data.
_FREE = re.compile(r"/|/page/.*|/health(/live|/ready)?")


@dataclass(frozen=True, slots=True)
class AdminToken:
    """What allows everything, and where a person finds it."""

    text: str = field(repr=False)
    source: str
    path: Path | None = None  # the file that it is in, if it is in one


class TooManyWrongTokens(Problem):
    """A wrong token after ten others within a minute; its answer is to be slowed down."""


class Access:
    """Whom the broker lets read and change something over HTTP; the event loop owns it."""

    def __init__(
        self,
        admin: AdminToken,
        now_s: Callable[[], float],
        connections_max: Callable[[], int],
        read_token: Callable[[], str | None] = lambda: None,
        has_authorizer: Callable[[], bool] = lambda: False,
    ) -> None:
        self._admin = admin
        self._guesses, self._holds = Guesses(now_s), Holds(connections_max)
        self._slowed = Seldom(logger, now_s, "slows down wrong tokens over HTTP")
        self._read_token, self._has_authorizer = read_token, has_authorizer

    @property
    def token(self) -> str:
        """The admin token."""
        return self._admin.text

    @property
    def path(self) -> Path | None:
        """The file with the admin token, if there is one."""
        return self._admin.path

    @property
    def is_guarded(self) -> bool:
        """Whether reading takes a token."""
        return self._read_token() is not None or self._has_authorizer()

    def require(self, request: web.Request) -> None:
        """Raise Problem for a request that does not show the admin token."""
        self._require(request, "the admin token", self._admin.text)

    def require_to_read(self, request: web.Request) -> None:
        """Raise Problem for a request that may not read."""
        if not self.is_guarded or _FREE.fullmatch(request.path):
            return
        own = self._read_token()
        if own is None:
            self._require(request, "the admin token", self._admin.text)
        else:
            self._require(request, "a token of the broker's", own, self._admin.text)

    def may_read(self, request: web.Request) -> bool:
        """Return whether a request that takes no token can be answered in full.

        Raises TooManyWrongTokens.
        """
        if not self.is_guarded:
            return True
        own = self._read_token()
        tokens = [self._admin.text] if own is None else [own, self._admin.text]
        if _shows(request, *tokens):
            return True
        if "Authorization" in request.headers:
            self._note_wrong(request, _address(request))
        return False

    async def hold(self) -> None:
        """Wait before a wrong token too many is answered, if there is a place to wait."""
        await self._holds.hold()

    @property
    def held_count(self) -> int:
        """How many answers are held now."""
        return self._holds.count

    def _require(self, request: web.Request, what: str, *tokens: str) -> None:
        if _shows(request, *tokens):
            return
        has_shown = "Authorization" in request.headers
        address = _address(request)
        if has_shown:
            self._note_wrong(request, address)
        told = f"this is not {what}" if has_shown else f"this takes {what}"
        raise Problem(
            401,
            f"{told}: {self._place(address)}",
            {"WWW-Authenticate": 'Bearer realm="odradek"'},
            # For commands on the same machine, which look for the file themselves.
            {"token_file": str(self.path)} if self.path and _is_here(address) else {},
        )

    def _note_wrong(self, request: web.Request, address: str) -> None:
        """Count a wrong token; raise TooManyWrongTokens for one too many."""
        if self._guesses.count(address):
            self._slowed.note(address)
            wait_s = math.ceil(self._guesses.wait_s(address))
            message = f"too many wrong tokens from {address}: wait {wait_s} seconds"
            raise TooManyWrongTokens(429, message, {"Retry-After": str(wait_s)})
        # Without the query, which may hold keys of records.
        logger.warning(
            "refused a wrong token over HTTP address=%s method=%s path=%s",
            address, request.method, request.path,
        )  # fmt: skip

    def _place(self, address: str) -> str:
        """Say where the token is; paths of this machine are for those who are on it."""
        if self._admin.path is None or _is_here(address):
            return self._admin.source
        return f"the broker keeps it in {FILE_NAME} of its first log directory"


def grant_access(fs: FileSystem, directory: Path, configured: str | None) -> AdminToken:
    """Return the admin token: the one configured, or a new one in the file."""
    if configured:
        return AdminToken(configured, "it is the broker's setting odradek.admin.token")
    path = directory / FILE_NAME
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        fs.write_private(path, f"{token}\n".encode())
    except StorageError as error:
        logger.warning("kept no admin token, set odradek.admin.token to have one: %s", error)
        return AdminToken(token, "it could not be kept: set the broker's odradek.admin.token")
    return AdminToken(token, f"it is in {path} on the broker's machine", path)


def _shows(request: web.Request, *tokens: str) -> bool:
    """Return whether a request shows one of some tokens, in a time that tells nothing of them."""
    shown = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
    found = False
    for token in tokens:
        expected = (_SCHEME + token).encode()
        # Digests are of one length, whatever they are of.
        found |= hmac.compare_digest(_digest(shown), _digest(expected))
    return found


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def _address(request: web.Request) -> str:
    """Return who asks; a proxy's word for somebody else does not count."""
    transport = request.transport
    peer = transport.get_extra_info("peername") if transport is not None else None
    return plain_address(str(peer[0])) if peer else ""


def _is_here(address: str) -> bool:
    return bool(address) and ip_address(address.partition("%")[0]).is_loopback
