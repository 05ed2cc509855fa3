"""The web page: files that a browser gets unchanged, with nothing from other sites.

The page has no build step and fetches nothing from elsewhere: it is plain JavaScript modules, and
a policy (broker/web/headers.py) makes the browser refuse to load or run anything else.
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
