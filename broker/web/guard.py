"""Checks requests before every route: token, host name, origin, time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from aiohttp import web

from odradek.broker.web.access import Access, TooManyWrongTokens
from odradek.broker.web.limits import Limits
from odradek.broker.web.origins import refuse_other_names, refuse_other_sites
from odradek.broker.web.requests import Problem, answer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Guard:
    """Passes a request on to its handler, or answers why it is refused."""

    def __init__(self, access: Access, names: Callable[[], Collection[str]]) -> None:
        self._access, self._names = access, names
        # None before the listener is set up.
        self.limits: Limits | None = None

    @web.middleware
    async def handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request."""
        transport, limits = request.transport, self.limits
        if limits is not None:
            limits.began(transport)
        try:
            refuse_other_names(request, self._names())
            refuse_other_sites(request)
            self._access.require_to_read(request)
            return await handler(request)
        except TooManyWrongTokens as problem:
            await self._access.hold()
            response = _refusal(problem)
            response.force_close()
            return response
        except Problem as problem:
            return _refusal(problem)
        finally:
            if limits is not None:
                limits.ended(transport)


def _refusal(problem: Problem) -> web.Response:
    body = {"error": str(problem), **problem.facts}
    return answer(body, problem.status, problem.headers)
