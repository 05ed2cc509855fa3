"""OAUTHBEARER beside Apache Kafka: the same tokens, checked with the keys of the same address."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.processes import KafkaProcess, free_port, kafka_tool
from tests.broker.provider import (
    AUDIENCE,
    EC_KEY,
    ISSUER,
    RSA_KEY,
    Server,
    claims,
    jwt,
    serving,
    token,
    wrong_tokens,
)
from tests.broker.sasl_peer import Refused, SaslPeer
from tests.support.forking import ForkedOdradek

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
# Java's clients and brokers fetch from, and read, only what is allowed so.
_ALLOWED_URLS = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"
_ALLOWED_FILES = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.files"


def settings(url: str) -> dict[str, str]:
    """Return the settings of both brokers' listener SASL."""
    return {
        "listener.name.sasl.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl.oauthbearer.sasl.jaas.config": (
            f"{_PACKAGE}.OAuthBearerLoginModule required;"
        ),
        "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": (
            f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler"
        ),
        "listener.name.sasl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": url,
        "listener.name.sasl.oauthbearer.sasl.oauthbearer.expected.audience": f"x,{AUDIENCE}",
        "listener.name.sasl.oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
        "connection.failed.authentication.delay.ms": "0",
    }


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def ports(
    server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, int]]:
    """Start both brokers; return their ports with SASL, ours first."""
    ours = ForkedOdradek(tmp_path_factory.mktemp("odradek"))
    ours.settings = settings(server.url) | {
        "listeners": f"SASL://127.0.0.1:{ours.port}",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
    }
    theirs, sasl_port = KafkaProcess(tmp_path_factory.mktemp("kafka")), free_port()
    plain = f"PLAINTEXT://127.0.0.1:{theirs.port},SASL://127.0.0.1:{sasl_port}"
    theirs.settings = settings(server.url) | {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listeners": f"{plain},CONTROLLER://127.0.0.1:{theirs.controller_port}",
        "advertised.listeners": plain,
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT"
        ),
    }
    options = os.environ.get("KAFKA_OPTS", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA_OPTS", f"{options} {_ALLOWED_URLS}={server.url}")
        theirs.start()
    ours.start()
    try:
        yield ours.port, sasl_port
    finally:
        ours.stop()
        theirs.stop()


def outcome(port: int, message: bytes) -> list[Any]:
    """Send a first message, and what ends a refusal; return all that is said to it."""
    said: list[Any] = []
    with SaslPeer(port) as peer:
        peer.handshake("OAUTHBEARER")
        try:
            answer, lifetime_ms = peer.step(message)
            said += [answer, round(lifetime_ms / 60_000)]
            if answer:
                peer.step(b"\x01")
                said.append("let in after all")
        except Refused as refused:
            return ["refused", *said, *refused.args]
        except ConnectionError:
            said.append("closed")
    return said


def first_message(text: str, head: str = "n,,", extensions: str = "") -> bytes:
    return f"{head}\x01auth=Bearer {text}\x01{extensions}\x01".encode()


def signed(payload: dict[str, Any]) -> str:
    made: str = jwt.api_jws.encode(
        json.dumps(payload).encode(), RSA_KEY, "RS256", headers={"kid": "rsa"}
    )
    return made


def right_tokens() -> dict[str, str]:
    now_s = int(time.time())
    return {
        "RS256": token(),
        "RS512": token(algorithm="RS512"),
        "PS256": token(algorithm="PS256"),
        "ES256": token(EC_KEY, "ES256", "ec"),
        "without kid": token(key_id=None),
        "audiences": token(aud=["y", AUDIENCE]),
        "expired within the skew": token(exp=now_s - 5),
        "begins within the skew": token(nbf=now_s + 20),
        "scopes": token(scope=["a", "b"]),
        "no scope": token(scope=None),
        "a scope that is none": token(scope=5),
        "spaces around the subject": token(sub=" alice "),
        "fractions of a second": token(exp=now_s + 3600.5),
    }


# At these Kafka stumbles over its own code (IllegalArgumentException, ClassCastException), and
# closes the connection without an answer.
KAFKA_STUMBLES = {"another scheme", "scope=[1]", f"scope={[AUDIENCE, 1]!r}"}


def differing(ports: tuple[int, int], messages: dict[str, bytes]) -> list[str]:
    found = []
    for what, message in messages.items():
        ours, theirs = (outcome(port, message) for port in ports)
        if what in KAFKA_STUMBLES:
            assert (ours[0], theirs) == ("refused", ["closed"]), what
        elif ours != theirs:
            found.append(f"{what}: ours {ours}, Kafka {theirs}")
    return found


def test_the_same_tokens_are_believed(ports: tuple[int, int]) -> None:
    messages = {what: first_message(text) for what, text in right_tokens().items()}
    assert not differing(ports, messages)
    assert outcome(ports[0], messages["RS256"]) == [b"", 60]


def test_the_same_tokens_are_refused_in_the_same_words(ports: tuple[int, int]) -> None:
    messages = {what: first_message(text) for what, text in wrong_tokens().items()}
    assert not differing(ports, messages)
    for message in messages.values():
        assert outcome(ports[0], message)[0] == "refused"


def test_odd_claims_are_judged_alike(ports: tuple[int, int]) -> None:
    odd: dict[str, Any] = {
        f"{name}={value!r}": signed(claims() | {name: value})
        for name in ("exp", "iat", "nbf", "aud", "iss", "sub", "scope")
        for value in (None, "", "1", 1, -1, 1.5, True, [], {}, ["a"], [1], [AUDIENCE, 1], " ")
    }
    messages = {what: first_message(text) for what, text in odd.items()}
    assert not differing(ports, messages)


def test_first_messages_are_read_alike(ports: tuple[int, int]) -> None:
    right, bob = token(), token(sub="a,b=c")
    messages = {
        "authzid": first_message(right, "n,a=alice,"),
        "another's authzid": first_message(right, "n,a=bob,"),
        "quoted authzid": first_message(bob, "n,a=a=2Cb=3Dc,"),
        "y": first_message(right, "y,,"),
        "binding": first_message(right, "p=tls-unique,,"),
        "no header": first_message(right, ""),
        "extension": first_message(right, extensions="traceId=123\x01"),
        "extension twice": first_message(right, extensions="a=1\x01a=2\x01"),
        "auth twice": first_message(right, extensions=f"auth=Bearer {right}\x01"),
        "bad key": first_message(right, extensions="e1=2\x01"),
        "no value": first_message(right, extensions="e=\x01"),
        "odd value": first_message(right, extensions="e=ä\x01"),
        "lower case": b"n,,\x01auth=bearer " + right.encode() + b"\x01\x01",
        "another scheme": b"n,,\x01auth=Basic " + right.encode() + b"\x01\x01",
        "no auth": b"n,,\x01host=a\x01\x01",
        "nothing": b"",
        "the end alone": b"\x01",
        "unfinished": first_message(right)[:-1],
        "too much": first_message(right) + b"\x01",
    }
    assert not differing(ports, messages)


def test_ours_alone_refuses_tokens_from_the_future(ports: tuple[int, int]) -> None:
    """Else a provider whose clock is ahead goes unnoticed, and its tokens live longer."""
    made = first_message(token(iat=int(time.time()) + 600))
    ours, theirs = (outcome(port, made) for port in ports)
    assert (ours[0], theirs[0]) == ("refused", b"")


def client_file(path: Path, text: str) -> list[str]:
    """Write what a Java client needs to log in by a token in a file; return its flags."""
    held = path.with_suffix(".jwt")
    held.write_text(text)
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={_PACKAGE}.OAuthBearerLoginModule required;\n"
        f"sasl.login.callback.handler.class={_PACKAGE}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={held.as_uri()}\n"
    )
    flags = ["-XX:TieredStopAtLevel=1", f"{_ALLOWED_URLS}={held.as_uri()}"]
    return [*flags, f"{_ALLOWED_FILES}={held}"]


def test_javas_client_gets_the_same_answers(ports: tuple[int, int], tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    said = {}
    for what, text in (("right", token()), ("wrong", wrong_tokens()["wrong audience"])):
        flags = client_file(path, text)
        for who, port in zip(("ours", "Kafka"), ports, strict=True):
            ran = kafka_tool(
                [
                    "org.apache.kafka.tools.TopicCommand",
                    *("--bootstrap-server", f"127.0.0.1:{port}", "--list"),
                    *("--command-config", str(path)),
                ],
                flags=flags,
                check=False,
            )
            lines = (ran.stdout + ran.stderr).splitlines()
            errors = [line.split("] ")[-1] for line in lines if "AuthenticationException" in line]
            assert errors or not ran.returncode, "\n".join(lines)
            said[what, who] = ran.returncode, errors[:1]
    assert said["right", "ours"] == said["right", "Kafka"] == (0, [])
    assert said["wrong", "ours"] == said["wrong", "Kafka"]
    assert said["wrong", "ours"][0] == 1 and said["wrong", "ours"][1]
