"""Whether the signature of an upload covers its bytes."""

from __future__ import annotations

import hashlib
from http.server import BaseHTTPRequestHandler

import pytest

from odradek.storage.objects.opening import StoreOptions, open_store, signs_payload
from tests.support.http_servers import serving

UNSIGNED = "UNSIGNED-PAYLOAD"


@pytest.mark.parametrize("sign_payload", [None, True, False])
def test_an_upload_without_tls_is_signed_unless_the_option_says_no(
    sign_payload: bool | None,
) -> None:
    signed = []

    class Taking(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            signed.append(self.headers["x-amz-content-sha256"])
            self.send_response(200)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with serving(Taking) as port:
        options = StoreOptions(
            endpoint=f"http://127.0.0.1:{port}", region="r", access_key_id="id",
            secret_access_key="key", sign_payload=sign_payload,
        )  # fmt: skip
        store = open_store("s3://topics", options, {})
        store.create("key", b"bytes")
        store.close()
    expected = UNSIGNED if sign_payload is False else hashlib.sha256(b"bytes").hexdigest()
    assert signed == [expected]


def test_tls_takes_the_place_of_the_signature_unless_the_option_says_no() -> None:
    for endpoint in (None, "https://store:9000"):
        assert not signs_payload(StoreOptions(endpoint=endpoint))
        assert signs_payload(StoreOptions(endpoint=endpoint, sign_payload=True))


def test_the_scheme_of_an_endpoint_may_be_in_any_case() -> None:
    assert signs_payload(StoreOptions(endpoint="HTTP://store:9000"))
    assert not signs_payload(StoreOptions(endpoint="HTTPS://store:9000"))
