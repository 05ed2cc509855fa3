"""Answers and logs bytes that are not a request.

aiohttp would log the bytes with a traceback, each time: any client could fill the disk, and a
token in a malformed header would be in the log. Its answer would name the library and its version,
and lack the headers of every answer (headers.py).
"""

from __future__ import annotations

import logging
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from odradek.broker.web.headers import HEADERS
from odradek.broker.web.limits import Limits
from odradek.broker.web.requests import answer

logger = logging.getLogger(__name__)

# Errors in the head and in the body of a request.
_MALFORMED = (HttpProcessingError, web.RequestPayloadError)


class RequestHandler(web.RequestHandler):
    """aiohttp's part of a connection, without its log and answers for malformed requests."""

    def __init__(self, manager: web.Server, limits: Limits, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._limits = limits

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log a bug with its trace, and a malformed request in one line."""
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
        """Return the answer to a malformed request, or to a request that hit a bug."""
        if not isinstance(exc, _MALFORMED):
            return super().handle_error(request, status, exc, message)
        self.log_exception("", exc_info=exc)
        body = {"error": f"this is not an HTTP request: {type(exc).__name__}"}
        response = answer(body, status, {**HEADERS, "Cache-Control": "no-store"})
        response.force_close()
        return response
