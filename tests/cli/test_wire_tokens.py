"""Logins by tokens of a provider: the command line's own client beside librdkafka."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from bench.processes import OdradekProcess
from odradek.cli.refusals import CommandError, Unavailable
from odradek.cli.wire.tokens import bearer_of
from tests.broker.provider import AUDIENCE, ISSUER, KEYS, token
from tests.cli.commands import Commands
from tests.support.forking import ForkedOdradek

pytestmark = pytest.mark.slow

CLIENT, SECRET = "reporting", "not a secret: %s/+"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
# Commands of librdkafka's requests, and of ours.
KINDS = ("topics", "quotas")


@dataclass
class Provider:
    """A provider's endpoint for tokens; tests change its answer."""

    url: str = ""
    answer: bytes = b""
    status: int = 200
    location: str = ""
    forms: list[Mapping[str, list[str]]] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a client."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.client.secret": SECRET,
            ENDPOINT: self.url,
        }


@contextmanager
def providing() -> Iterator[Provider]:
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            provider.forms.append(parse_qs(body.decode(), strict_parsing=True))
            scheme, _, credentials = self.headers.get("Authorization", "").partition(" ")
            assert scheme in ("Basic", "")
            provider.logins.append(base64.b64decode(credentials).decode())
            self.send_response(provider.status)
            if provider.location:
                self.send_header("Location", provider.location)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(provider.answer)))
            self.end_headers()
            self.wfile.write(provider.answer)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        provider.url = f"http://127.0.0.1:{server.server_address[1]}/token"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield provider
        server.shutdown()
        thread.join()


def given(text: str) -> bytes:
    return json.dumps({"access_token": text, "token_type": "Bearer", "expires_in": 3600}).encode()


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A provider that gives right tokens."""
    with providing() as running:
        running.answer = given(token())
        yield running


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekProcess]:
    """A broker that lets tokens of the provider in."""
    folder = tmp_path_factory.mktemp("broker")
    keys = folder / "keys.json"
    keys.write_bytes(KEYS)
    running = ForkedOdradek(folder)
    running.settings = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{running.port}",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "0",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
    running.start()
    yield running
    running.stop()


def options(properties: Mapping[str, str]) -> list[str]:
    return [word for name, value in properties.items() for word in ("-X", f"{name}={value}")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_command_logs_in_by_a_token(
    kind: str, broker: OdradekProcess, provider: Provider
) -> None:
    more = {
        "sasl.oauthbearer.scope": "produce read",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,pool=p-2",
    }
    commands = Commands(broker.bootstrap)
    shown = commands.shown(kind, "list", *options({**provider.properties, **more}))
    assert "There are no" in shown or "There is no" in shown
    form = {"grant_type": ["client_credentials"], "scope": ["produce read"]}
    assert form in provider.forms and f"{CLIENT}:{SECRET}" in provider.logins


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_that_the_broker_refuses_is_reported_in_one_line(
    kind: str, broker: OdradekProcess, provider: Provider
) -> None:
    provider.answer = given(token(aud="another"))
    message = Commands(broker.bootstrap).refusal(kind, "list", *options(provider.properties))
    assert "refuses the login" in message
    assert SECRET not in message and "eyJ" not in message


@pytest.mark.parametrize(
    ("status", "answer", "words"),
    [
        (401, b'{"error": "invalid_client", "error_description": "no such\\nclient"}',
         "the answer is 401: invalid_client no such client"),
        (400, b'{"error": "invalid_scope"}', "the answer is 400: invalid_scope"),
        (500, b"<html>", "the answer is 500"),
        (200, b"<html>", "no token from"),
        (200, b"[]", "has no access_token"),
        (200, b'{"access_token": 5}', "has no access_token"),
        (200, b'{"access_token": "a\\u0001b"}', "has no access_token"),
        (200, b"[" * 100_000, "no token from"),
    ],
)  # fmt: skip
def test_an_endpoint_that_gives_no_token_is_reported(
    provider: Provider, status: int, answer: bytes, words: str
) -> None:
    provider.status, provider.answer = status, answer
    with pytest.raises(CommandError) as found:
        bearer_of(provider.properties)
    assert words in found.value.message and provider.url in found.value.message
    assert SECRET not in found.value.message


def test_the_secret_does_not_follow_a_redirection(provider: Provider) -> None:
    with providing() as other:
        other.answer = given("x")
        provider.status, provider.location = 302, other.url
        with pytest.raises(CommandError):
            bearer_of(provider.properties)
        assert f"{CLIENT}:{SECRET}" not in other.logins


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({ENDPOINT: ""}, CommandError, "token.endpoint.url is not"),
        ({"sasl.oauthbearer.client.id": ""}, CommandError, "client.id is not set"),
        ({"sasl.oauthbearer.client.secret": ""}, CommandError, "client.secret is not set"),
        ({ENDPOINT: "http://127.0.0.1:1/"}, CommandError, "refused"),
        ({ENDPOINT: "file:///etc/hostname"}, CommandError, "no token"),
        ({"sasl.oauthbearer.extensions": "a"}, CommandError, "a is not KEY=VALUE"),
        ({"sasl.oauthbearer.method": "default"}, CommandError, "sasl.oauthbearer.method=oidc"),
        ({"sasl.oauthbearer.grant.type": "jwt-bearer"}, Unavailable, "client_credentials"),
    ],
)
def test_properties_that_give_no_token_are_named(
    provider: Provider, changed: dict[str, str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as found:
        bearer_of({**provider.properties, **changed})
    assert words in str(found.value)


def test_an_unsecured_token_has_the_claims_of_the_configuration() -> None:
    text = "principal=alice scope=read,write lifeSeconds=60"
    bearer = bearer_of(
        {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": text}
    )
    header, claims, signature = bearer.token.split(".")
    assert signature == ""

    def decoded(part: str) -> Any:
        return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))

    assert decoded(header) == {"alg": "none"}
    found = decoded(claims)
    assert (found["sub"], found["scope"]) == ("alice", ["read", "write"])
    assert found["exp"] == found["iat"] + 60
