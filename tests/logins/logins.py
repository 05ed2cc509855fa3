"""How a client says who it is, once, and how each client library is told so.

    Login("SCRAM-SHA-512", user="alice", password="...", ca=ca_pem)

`mechanism` is a SASL mechanism, or MTLS for a certificate. OAUTHBEARER takes `token`, a JWT;
a delegation token is SCRAM with `is_token`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MTLS = "mTLS"
OAUTHBEARER = "OAUTHBEARER"
_MODULES = "org.apache.kafka.common.security."
# Far in the future: the broker looks at the token itself.
_NEVER_S = 4_000_000_000.0


@dataclass(frozen=True, slots=True)
class Login:
    """What one client is told; `ca` and `certificate` are PEM files."""

    mechanism: str
    ca: Path
    user: str = ""
    password: str = ""
    token: str = ""
    certificate: Path | None = None
    is_token: bool = False

    @property
    def protocol(self) -> str:
        """Kafka's name of the security protocol."""
        return "SSL" if self.mechanism == MTLS else "SASL_SSL"

    def java(self, folder: Path) -> dict[str, str]:
        """Return the settings of Kafka's own client; a token is written into a folder."""
        told = {
            "security.protocol": self.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
        }
        if self.certificate is not None:
            told["ssl.keystore.type"] = "PEM"
            told["ssl.keystore.location"] = str(self.certificate)
        if self.mechanism == MTLS:
            return told
        told["sasl.mechanism"] = self.mechanism
        if self.mechanism == OAUTHBEARER:
            file = folder / f"{abs(hash(self.token))}.jwt"
            file.write_text(self.token)
            told["sasl.oauthbearer.token.endpoint.url"] = file.as_uri()
            told["sasl.login.callback.handler.class"] = (
                f"{_MODULES}oauthbearer.OAuthBearerLoginCallbackHandler"
            )
            told["sasl.jaas.config"] = f"{_MODULES}oauthbearer.OAuthBearerLoginModule required;"
            return told
        kind = "plain.Plain" if self.mechanism == "PLAIN" else "scram.Scram"
        mark = ' tokenauth="true"' if self.is_token else ""
        told["sasl.jaas.config"] = (
            f'{_MODULES}{kind}LoginModule required username="{self.user}" '
            f'password="{self.password}"{mark};'
        )
        return told

    def librdkafka(self) -> dict[str, Any]:
        """Return the settings of librdkafka, which knows no delegation tokens."""
        assert not self.is_token
        told: dict[str, Any] = {
            "security.protocol": self.protocol,
            "ssl.ca.location": str(self.ca),
        }
        if self.certificate is not None:
            told["ssl.certificate.location"] = str(self.certificate)
            told["ssl.key.location"] = str(self.certificate)
        if self.mechanism == MTLS:
            return told
        told["sasl.mechanism"] = self.mechanism
        if self.mechanism == OAUTHBEARER:
            told["oauth_cb"] = lambda _: (self.token, _NEVER_S)
            return told
        return {**told, "sasl.username": self.user, "sasl.password": self.password}

    def kafka_python(self) -> dict[str, Any]:
        """Return the settings of kafka-python, which knows no delegation tokens."""
        assert not self.is_token
        told: dict[str, Any] = {
            "security_protocol": self.protocol,
            "ssl_cafile": str(self.ca),
        }
        if self.certificate is not None:
            told["ssl_certfile"] = told["ssl_keyfile"] = str(self.certificate)
        if self.mechanism == MTLS:
            return told
        told["sasl_mechanism"] = self.mechanism
        if self.mechanism == OAUTHBEARER:
            told["sasl_oauth_token_provider"] = _token_provider(self.token)
            return told
        return {
            **told,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }

    def json(self) -> str:
        """Return what the Go program reads."""
        told = {
            "mechanism": self.mechanism,
            "ca": str(self.ca),
            "certificate": "" if self.certificate is None else str(self.certificate),
            "user": self.user,
            "password": self.password,
            "token": self.token,
            "isToken": self.is_token,
        }
        return json.dumps(told)


def _token_provider(token: str) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token

    return Provider()
