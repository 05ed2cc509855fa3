"""A provider of tokens: keys, their JWKS, tokens right and wrong, and a server of the keys."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://idp.example/realms/main", "kafka"


def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    """Make an RSA key."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


# Made once: they take a while.
RSA_KEY, OTHER_KEY = rsa_key(), rsa_key()
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()


def public_jwk(key: Any, key_id: str | None, **more: str) -> dict[str, Any]:
    """Write a key's public half as a JWK."""
    algorithm = ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else RSAAlgorithm
    if isinstance(key, ed25519.Ed25519PrivateKey):
        algorithm = OKPAlgorithm
    told = dict(algorithm.to_jwk(key.public_key(), as_dict=True)) | more
    return told if key_id is None else told | {"kid": key_id}


def key_set(*keys: Mapping[str, Any]) -> bytes:
    """Write a JWKS."""
    return json.dumps({"keys": list(keys)}).encode()


KEYS = key_set(
    public_jwk(RSA_KEY, "rsa", use="sig"), public_jwk(EC_KEY, "ec"), public_jwk(ED_KEY, "ed")
)


def claims(**more: Any) -> dict[str, Any]:
    """Return the claims of a right token; None leaves one out."""
    now_s = int(time.time())
    made = {
        "iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "scope": "produce",
        "iat": now_s - 5, "exp": now_s + 3600,
    }  # fmt: skip
    return {name: value for name, value in (made | more).items() if value is not None}


def token(
    key: Any = RSA_KEY,
    algorithm: str = "RS256",
    key_id: str | None = "rsa",
    header: Mapping[str, Any] | None = None,
    **more: Any,
) -> str:
    """Make a token."""
    headers = {} if key_id is None else {"kid": key_id}
    return jwt.encode(claims(**more), key, algorithm, headers=headers | dict(header or {}))


def forged(header: Mapping[str, Any], payload: bytes | None = None, secret: bytes = b"") -> str:
    """Make a token by hand: without a signature, or with the HMAC of a secret."""
    body = json.dumps(claims()).encode() if payload is None else payload
    signed = ".".join((_encoded(json.dumps(header).encode()), _encoded(body)))
    mac = hmac.digest(secret, signed.encode(), hashlib.sha256) if secret else b""
    return f"{signed}.{_encoded(mac)}"


def public_pem(key: Any = RSA_KEY) -> bytes:
    """Return a public key as everybody may have it."""
    public: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return public


def wrong_tokens() -> dict[str, str]:
    """Return tokens that must not be believed, by what is wrong with them."""
    now_s = int(time.time())
    right = token()
    return {
        "expired": token(exp=now_s - 60, iat=now_s - 3600),
        "no exp": token(exp=None),
        "no iat": token(iat=None),
        "exp before iat": token(iat=now_s + 7200),
        "not yet": token(nbf=now_s + 3000),
        "wrong audience": token(aud="another"),
        "no audience": token(aud=None),
        "wrong issuer": token(iss="https://elsewhere.example"),
        "no issuer": token(iss=None),
        "wrong key": token(OTHER_KEY),
        "unknown kid": token(OTHER_KEY, key_id="unknown"),
        "kid of another key": token(key_id="ec"),
        "no subject": token(sub=None),
        "blank subject": token(sub="  "),
        "a scope twice": token(scope=["a", "a"]),
        "alg none": forged({"alg": "none"}),
        "alg none with a kid": forged({"alg": "none", "kid": "rsa"}),
        "alg None": forged({"alg": "None", "kid": "rsa"}) + "AA",
        "HS256 with the public key": forged(
            {"alg": "HS256", "kid": "rsa", "typ": "JWT"}, secret=public_pem()
        ),
        "HS256 without kid": forged({"alg": "HS256"}, secret=public_pem()),
        "ES256 with an RSA key": token(EC_KEY, "ES256", key_id="rsa"),
        "changed claims": ".".join(
            (right.split(".")[0], _encoded(json.dumps(claims(sub="eve")).encode()),
             right.split(".")[2])
        ),
        "no signature": right.rsplit(".", 1)[0] + ".",
        "two parts": right.rsplit(".", 1)[0],
        "four parts": f"{right}.AAAA",
        "no token": "x",
    }  # fmt: skip


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Server:
    """Serves a JWKS; what it says may be changed, and what it was asked is counted."""

    def __init__(self) -> None:
        self.body, self.status, self.asked = KEYS, 200, 0
        self.location = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                self.send_response(outer.status)
                self.send_header("Content-Type", "application/json")
                if outer.location:
                    self.send_header("Location", outer.location)
                self.send_header("Content-Length", str(len(outer.body)))
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/certs"

    @contextmanager
    def running(self) -> Iterator[Server]:
        """Serve until the end of the block."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


@contextmanager
def serving() -> Iterator[Server]:
    """Serve the keys of this provider."""
    with Server().running() as server:
        yield server
