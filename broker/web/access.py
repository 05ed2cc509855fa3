"""Decides by tokens which requests may read or change anything over HTTP.

The admin token (admin_token.py) allows all requests.

Reading is free, as from a PLAINTEXT listener, unless odradek.http.read.token is set: then it needs
that token or the admin token. With an authorizer, reading always needs a token: HTTP must not show
data that the authorizer denies over Kafka's protocol. /health says to everybody whether the broker
is well.

A person who logged in (logins.py) has the rights of their principal (rights.py), for reading and
for actions.

Answers to wrong tokens are slowed down (guesses.py); a right one is always served at once.

A token is read only from the header Authorization: browsers and proxies log addresses, even if
the broker does not.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import re
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from odradek.broker.loop.seldom import Seldom
from odradek.broker.web.admin_token import FILE_NAME, AdminToken
from odradek.broker.web.console.actor import Actor
from odradek.broker.web.guesses import Guesses, Holds
from odradek.broker.web.requests import ACTOR, Problem, client_address
from odradek.broker.web.rights import require_route

if TYPE_CHECKING:
    from odradek.broker.security.principals import Principal
    from odradek.broker.web.services import WebServices
    from odradek.config.http import HttpConfig

logger = logging.getLogger(__name__)

_SCHEME = "Bearer "
# Tokens of logins begin with this (logins.py).
LOGIN = "login."
# The files of the page, and the broker's health, reveal nothing of its data.
_FREE = re.compile(r"/|/page/.*|/health(/live|/ready)?|/api/login")


class TooManyWrongTokens(Problem):
    """A wrong token after ten others within a minute; its answer is slowed down."""


class Access:
    """The tokens for reading and for changes over HTTP; the event loop owns it."""

    def __init__(
        self,
        admin: AdminToken,
        now_s: Callable[[], float],
        connections_max: Callable[[], int],
        config: Callable[[], HttpConfig],
        has_authorizer: Callable[[], bool],
    ) -> None:
        self._admin = admin
        self._guesses, self._holds = Guesses(now_s), Holds(connections_max)
        self._slowed = Seldom(logger, now_s, "slowed down wrong tokens over HTTP")
        self._config, self._has_authorizer = config, has_authorizer
        # Returns the person of a login's token; None before there can be logins.
        self._read_login: Callable[[str], Principal | None] | None = None
        self._broker: WebServices | None = None

    def know_logins(
        self, read: Callable[[str], Principal | None], broker: WebServices
    ) -> None:
        """Let people who logged in make requests, by their rights at a broker."""
        self._read_login, self._broker = read, broker

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
        """Whether reading needs a token."""
        return self._config().guards_reading(self._has_authorizer())

    def require(self, request: web.Request) -> Actor:
        """Return the person of an action; raise Problem without the admin token or a right."""
        logged_in: Actor | None = request.get(ACTOR)
        if logged_in is not None:  # require_to_read has checked the right
            return logged_in
        self._require(request, "the admin token", self._admin.text)
        return Actor(client_address(request))

    def require_to_read(self, request: web.Request) -> None:
        """Raise Problem for a request that may not read; keep its person, if there is one."""
        if _FREE.fullmatch(request.path):
            return
        principal = self._logged_in(request)
        if principal is not None and self._broker is not None:
            actor = Actor(client_address(request), principal)
            require_route(self._broker, actor, request)
            request[ACTOR] = actor
            return
        if not self.is_guarded:
            return
        own = self._config().odradek_http_read_token
        if own is None:
            self._require(request, "the admin token", self._admin.text)
        else:
            self._require(request, "a token of the broker", own, self._admin.text)

    def may_read(self, request: web.Request) -> bool:
        """Return whether a request that needs no token may get the full answer.

        Raises TooManyWrongTokens.
        """
        if not self.is_guarded or self._logged_in(request) is not None:
            return True
        own = self._config().odradek_http_read_token
        tokens = [self._admin.text] if own is None else [own, self._admin.text]
        if _shows(request, *tokens):
            return True
        if "Authorization" in request.headers:
            self._note_wrong(request, client_address(request))
        return False

    def note_wrong_password(self, request: web.Request) -> None:
        """Count a wrong password; raise TooManyWrongTokens for one too many."""
        self._note_wrong(request, client_address(request))

    async def hold(self) -> None:
        """Wait before the answer to one wrong token too many, if there is a place to wait."""
        await self._holds.hold()

    @property
    def held_count(self) -> int:
        """The number of answers that are held."""
        return self._holds.count

    def _logged_in(self, request: web.Request) -> Principal | None:
        shown = request.headers.get("Authorization", "")
        if self._read_login is None or not shown.startswith(_SCHEME + LOGIN):
            return None
        return self._read_login(shown.removeprefix(_SCHEME))

    def _require(self, request: web.Request, what: str, *tokens: str) -> None:
        if _shows(request, *tokens):
            return
        has_shown = "Authorization" in request.headers
        address = client_address(request)
        if has_shown:
            self._note_wrong(request, address)
        problem = f"this is not {what}" if has_shown else f"this needs {what}"
        raise Problem(
            401,
            f"{problem}: {self._place(address)}",
            {"WWW-Authenticate": 'Bearer realm="odradek"'},
            # For commands on the same machine, which read the file themselves.
            {"token_file": str(self.path)} if self.path and is_here(address) else {},
        )

    def _note_wrong(self, request: web.Request, address: str) -> None:
        """Count a wrong token; raise TooManyWrongTokens for one too many."""
        if self._guesses.count(address):
            self._slowed.note(address)
            wait_s = math.ceil(self._guesses.wait_s(address))
            message = f"too many wrong tokens from {address}: wait {wait_s} seconds"
            raise TooManyWrongTokens(429, message, {"Retry-After": str(wait_s)})
        # Without the query, which may contain keys of records.
        logger.warning(
            "refused a wrong token over HTTP address=%s method=%s path=%s",
            address, request.method, request.path,
        )  # fmt: skip

    def _place(self, address: str) -> str:
        """Return the place of the token; only clients on this machine get its paths."""
        if self._admin.path is None or is_here(address):
            return self._admin.source
        return f"the broker keeps it in {FILE_NAME} of its first log directory"


def _shows(request: web.Request, *tokens: str) -> bool:
    """Return whether a request has one of some tokens, in a time that does not depend on them."""
    shown = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
    found = False
    for token in tokens:
        expected = (_SCHEME + token).encode()
        # All digests have the same length.
        found |= hmac.compare_digest(_digest(shown), _digest(expected))
    return found


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def is_here(address: str) -> bool:
    """Return whether an address is one of this machine's own loopback."""
    return bool(address) and ip_address(address.partition("%")[0]).is_loopback
