"""The web page: files that a browser gets as they are, with nothing from outside.

Nothing is built and nothing fetched from elsewhere: plain modules of JavaScript, and a policy
(broker/web/headers.py) that has the browser refuse whatever else would be loaded or run.
"""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

_FILES = Path(__file__).parent / "page"


def add_page(app: web.Application) -> None:
    """Serve the page."""
    app.router.add_get("/", _index)
    app.router.add_static("/page", _FILES)


async def _index(_: web.Request) -> web.FileResponse:
    return web.FileResponse(_FILES / "index.html")
