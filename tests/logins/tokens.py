"""An issuer of JSON Web Tokens, and the keys by which they are checked (RFC 7517, 7519)."""

from __future__ import annotations

import json
import time

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

AUDIENCE, ISSUER = "odradek", "https://issuer.example"
_KEY_ID = "the-key"
_HOUR_S = 3600


class TokenIssuer:
    """Signs tokens with a key of its own."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)

    def jwks(self) -> str:
        """Return its public key as a JSON Web Key Set."""
        key = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        told = {**key, "kid": _KEY_ID, "alg": "RS256", "use": "sig"}
        return json.dumps({"keys": [told]})

    def sign(
        self, *, audience: str = AUDIENCE, issuer: str = ISSUER, expires_in_s: int = _HOUR_S
    ) -> str:
        """Return a token for alice."""
        now_s = int(time.time())
        claims = {
            "sub": "alice",
            "aud": audience,
            "iss": issuer,
            "iat": now_s - _HOUR_S,
            "exp": now_s + expires_in_s,
            "scope": "kafka",
        }
        return jwt.encode(claims, self._key, "RS256", {"kid": _KEY_ID})
