"""The headers of every answer: they forbid browsers to run, load, frame, guess or store more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # headers are sent before the library is loaded, too (early.py)
    from aiohttp import web

# JavaScript modules, styles, images and fetches from here; nothing else is loaded or run.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Hides the name and version of the HTTP library.
    "Server": "Odradek",
}


async def protect(request: web.Request, response: web.StreamResponse) -> None:
    """Put the headers on an answer; a handler's own Cache-Control stays."""
    response.headers.update(HEADERS)
    is_page = request.path == "/" or request.path.startswith("/page/")
    # A newer broker at the same address has other files, so browsers check for changes. Data of
    # the broker must not be stored on a disk.
    response.headers.setdefault("Cache-Control", "no-cache" if is_page else "no-store")
