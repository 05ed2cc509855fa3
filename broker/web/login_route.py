"""The route of logins; its parts are imported with the first login."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from aiohttp import web

from odradek.broker.web.access import Access, is_here
from odradek.broker.web.requests import Parameters, Problem, answer, client_address

if TYPE_CHECKING:
    from odradek.broker.web.logins import Logins
    from odradek.broker.web.services import WebServices

_MEMBERS = ("user", "password")
_BODY_BYTES_MAX = 16 << 10


def add_login_route(app: web.Application, broker: WebServices, access: Access) -> None:
    """Add the route to an application, and let access know its logins."""

    @cache
    def logins() -> Logins:
        from odradek.broker.web.logins import Logins

        return Logins(broker.security, access.token, broker.clock.now_ms)

    async def log_in(request: web.Request) -> web.StreamResponse:
        from odradek.broker.web.console.body import read_body

        Parameters(request, ())
        if not request.secure and not is_here(client_address(request)):
            raise Problem(
                403,
                "a password over HTTP could be read on its way: set odradek.http.tls.certificate "
                "and odradek.http.tls.key, or use the page on the broker's machine",
            )
        body = await read_body(request, _MEMBERS, _BODY_BYTES_MAX)
        user, password = body.text("user"), body.text("password")
        signed = await logins().log_in(user, password)
        if signed is None:
            access.note_wrong_password(request)
            raise Problem(401, "there is no such user, or the password is wrong")
        token, expires_ms = signed
        return answer({"user": user, "token": token, "expires_ms": expires_ms})

    access.know_logins(lambda token: logins().read(token), broker)
    app.router.add_post("/api/login", log_in)
