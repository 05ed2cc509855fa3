"""Stands in for whatever has the port at which a broker is asked over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from tests.support.http_servers import serving


@contextmanager
def answering(
    answer: bytes, status: int = 200, asked: list[str | None] | None = None
) -> Iterator[str]:
    """Run a server that answers everything so; yield its address.

    The header Authorization of each request is added to `asked`.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if asked is not None:
                asked.append(self.headers.get("Authorization"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}"
