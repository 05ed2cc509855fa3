"""What is answered, and told in the log, where bytes are no request.

The library would log the bytes with a traceback, for each of them: whoever connects could fill the
disk, and a token that stands in a header ending wrongly would be in the log. The answer would name
the library and its version, and lack what every answer says (headers.py).
"""

from __future__ import annotations

import logging
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from broker.web.headers import HEADERS
from broker.web.limits import Limits
from broker.web.requests import answer

logger = logging.getLogger(__name__)

# Of a request's head, and of its body.
_MALFORMED = (HttpProcessingError, web.RequestPayloadError)


class RequestHandler(web.RequestHandler):
    """The library's part of a connection, which tells as little of strangers as can be."""

    def __init__(self, manager: web.Server, limits: Limits, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._limits = limits

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Tell of a bug with its trace; what is wrong with a request is none."""
        if isinstance(kw.get("exc_info"), _MALFORMED):
            self._limits.note_malformed(self.transport)
        else:
            super().log_exception(*args, **kw)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to what is no request, or to what a bug has kept from an answer."""
        if not isinstance(exc, _MALFORMED):
            return super().handle_error(request, status, exc, message)
        self.log_exception("", exc_info=exc)
        body = {"error": f"this is no request of HTTP: {type(exc).__name__}"}
        response = answer(body, status, {**HEADERS, "Cache-Control": "no-store"})
        response.force_close()
        return response
