"""Whether the signature of an upload covers its bytes."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from odradek.storage.objects.opening import StoreOptions, open_store, signs_payload

UNSIGNED = "UNSIGNED-PAYLOAD"


class Recorder(ThreadingHTTPServer):
    """A server that takes any object, and notes how its bytes were signed."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.signed: list[str] = []


class Taking(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        assert isinstance(self.server, Recorder)
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.signed.append(self.headers["x-amz-content-sha256"])
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with Recorder() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("sign_payload", [None, True, False])
def test_an_upload_without_tls_is_signed_unless_the_option_says_no(
    recorder: Recorder, sign_payload: bool | None
) -> None:
    endpoint = f"http://127.0.0.1:{recorder.server_address[1]}"
    options = StoreOptions(
        endpoint=endpoint, region="r", access_key_id="id", secret_access_key="key",
        sign_payload=sign_payload,
    )  # fmt: skip
    store = open_store("s3://topics", options, {})
    store.create("key", b"bytes")
    store.close()
    expected = UNSIGNED if sign_payload is False else hashlib.sha256(b"bytes").hexdigest()
    assert recorder.signed == [expected]


def test_tls_takes_the_place_of_the_signature_unless_the_option_says_no() -> None:
    for endpoint in (None, "https://store:9000"):
        assert not signs_payload(StoreOptions(endpoint=endpoint))
        assert signs_payload(StoreOptions(endpoint=endpoint, sign_payload=True))
