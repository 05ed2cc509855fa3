"""The web page: files that a browser gets as they are, with nothing from outside.

Nothing is built and nothing fetched from elsewhere: plain modules of JavaScript, and a policy
that has the browser refuse whatever else would be loaded or run.
"""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

_FILES = Path(__file__).parent / "page"
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # A newer broker at the same address has other files: ask whether they have changed.
    "Cache-Control": "no-cache",
}


def add_page(app: web.Application) -> None:
    """Serve the page."""
    app.router.add_get("/", _index)
    app.router.add_static("/page", _FILES)
    app.on_response_prepare.append(_protect)


async def _index(_: web.Request) -> web.FileResponse:
    return web.FileResponse(_FILES / "index.html")


async def _protect(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
