"""What every answer tells a browser not to do: run, load, frame, guess or keep anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # headers are sent before the library is loaded, too (early.py)
    from aiohttp import web

# Plain modules of JavaScript from here, which fetch from here; nothing is loaded or run besides.
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
    # Which version of which library answers is nobody's business.
    "Server": "Odradek",
}


async def protect(request: web.Request, response: web.StreamResponse) -> None:
    """Put the headers on an answer; a handler's own Cache-Control counts."""
    response.headers.update(HEADERS)
    is_page = request.path == "/" or request.path.startswith("/page/")
    # A newer broker at the same address has other files: ask whether they have changed. What is
    # told of the broker goes to no disk.
    response.headers.setdefault("Cache-Control", "no-cache" if is_page else "no-store")
