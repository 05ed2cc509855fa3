"""Logins beside Apache Kafka: the same messages, the same answers, closed at the same places."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.processes import kafka_libs
from odradek.broker.adoption.adopt import Source
from odradek.cli.adopt import adopt
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import encode_request
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    UserName,
)
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.sasl_brokers import Listeners, kafka, odradek
from tests.broker.sasl_client import USERS, plain_message
from tests.broker.scram_client import ScramClient
from tests.broker.test_scram_users import SHA_256, SHA_512, upsert
from tests.support.frames import read_exactly, read_frame, response_to
from tests.support.waiting import last_answer

Step = tuple[Any, int]
Pair = tuple[Listeners, Listeners]

VERSIONS = ApiVersionsRequest(client_software_name="a", client_software_version="1")
BAD_NAME = ApiVersionsRequest(client_software_name="-", client_software_version="1")
METADATA = MetadataRequest(topics=[])
CHOOSE = SaslHandshakeRequest(mechanism="PLAIN")
CHOOSE_SCRAM = SaslHandshakeRequest(mechanism="SCRAM-SHA-256")


def say(message: bytes) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=message)


RIGHT = plain_message("alice", USERS["alice"])
WRONG = plain_message("alice", "wrong")

# Each runs on a connection of its own; bytes are a frame as it is.
DIALOGUES: dict[str, list[Step | bytes]] = {
    "plain, v0": [(CHOOSE, 1), (say(RIGHT), 0), (METADATA, 12)],
    "plain, v1": [(CHOOSE, 1), (say(RIGHT), 1)],
    "plain, v2, after ApiVersions": [(VERSIONS, 4), (CHOOSE, 1), (say(RIGHT), 2), (METADATA, 12)],
    "bare": [(CHOOSE, 0), RIGHT, (METADATA, 12)],
    "bare, wrong": [(CHOOSE, 0), WRONG],
    "wrong password": [(CHOOSE, 1), (say(WRONG), 2)],
    "wrong password, v0": [(CHOOSE, 1), (say(WRONG), 0)],
    "unknown user": [(CHOOSE, 1), (say(plain_message("eve", "x")), 2)],
    "no name": [(CHOOSE, 1), (say(plain_message("", "x")), 2)],
    "no password": [(CHOOSE, 1), (say(plain_message("alice", "")), 2)],
    "another's authorization id": [(CHOOSE, 1), (say(b"bob\0" + RIGHT[1:]), 2)],
    "own authorization id": [(CHOOSE, 1), (say(b"alice" + RIGHT), 2)],
    "one part": [(CHOOSE, 1), (say(b"alice"), 2)],
    "empty": [(CHOOSE, 1), (say(b""), 2)],
    "five parts": [(CHOOSE, 1), (say(b"a\0b\0c\0d\0e"), 2)],
    "no UTF-8": [(CHOOSE, 1), (say(b"\0\xff\0\xff"), 2)],
    "unknown mechanism": [(SaslHandshakeRequest(mechanism="X"), 1)],
    "mechanism not enabled": [(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 0)],
    "metadata first": [(METADATA, 12)],
    "metadata after ApiVersions": [(VERSIONS, 4), (METADATA, 12)],
    "SaslAuthenticate first": [(say(RIGHT), 2)],
    "ApiVersions twice": [(VERSIONS, 4), (VERSIONS, 4)],
    "a bad ApiVersions, then a good one": [(BAD_NAME, 4), (VERSIONS, 4), (CHOOSE, 1)],
    "handshake twice": [(CHOOSE, 1), (CHOOSE, 1)],
    "handshake after the login": [(CHOOSE, 1), (say(RIGHT), 2), (CHOOSE, 1), (METADATA, 12)],
    "SaslAuthenticate after the login": [(CHOOSE, 1), (say(RIGHT), 2), (say(RIGHT), 2)],
    "ApiVersions after the login": [(CHOOSE, 1), (say(RIGHT), 2), (VERSIONS, 4)],
    "no request": [b"\x60\x00\x00"],
    "an empty frame": [b""],
    "an unknown API": [struct.pack(">hhih", 999, 0, 1, -1)],
    "a handshake cut short": [struct.pack(">hhihh", 17, 1, 1, -1, 100)],
    "no first message of SCRAM": [(CHOOSE_SCRAM, 1), (say(b"n,,n=alice"), 2)],
    "an authorization id by SCRAM": [(CHOOSE_SCRAM, 1), (say(b"n,a=b,n=carol,r=abc"), 2)],
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    if kafka_libs() is None:
        pytest.skip("Kafka's jars are not there: `make kafka` fetches them")
    path: Path = tmp_path_factory.mktemp("sasl")
    with odradek(path / "ours") as ours, kafka(path / "theirs") as theirs:
        carol = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsert("carol", "c")])
        for one in (ours, theirs):
            with Wire(one.plaintext) as wire:
                (result,) = wire.ask(carol, 0).results
                assert result.error_code == 0
        yield ours, theirs


class Wire:
    """One connection, on which one thing is sent after the other."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._socket.settimeout(60)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: Any, version: int) -> Any:
        """Send a request; return its response, None when the connection is closed instead."""
        frame = self._send(encode_request(request, version, 1, "a-client"))
        return None if frame is None else response_to(request, version, frame)

    def send_frame(self, body: bytes) -> bytes | None:
        """Send a frame as it is, and return the one that answers it."""
        return self._send(struct.pack(">i", len(body)) + body)

    def is_closed(self) -> bool:
        """Wait for the end of the stream."""
        return read_exactly(self._socket, 1) is None

    def _send(self, data: bytes) -> bytes | None:
        self._socket.sendall(data)
        return read_frame(self._socket)


def results(port: int, request: Any) -> Any:
    """Return the results of an answer; their order is that of a hash in Kafka."""
    with Wire(port) as wire:
        answer = wire.ask(request, 0)
    for result in answer.results:
        if isinstance(result, DescribeUserScramCredentialsResult):
            result.credential_infos.sort(key=lambda info: info.mechanism)
    whole = getattr(answer, "error_code", 0), getattr(answer, "error_message", 0)
    return whole, sorted(map(repr, answer.results))


def transcript(port: int, dialogue: list[Step | bytes]) -> list[Any]:
    """Carry out a dialogue until it ends or the broker ends it."""
    told: list[Any] = []
    with Wire(port) as wire:
        for step in dialogue:
            if isinstance(step, bytes):
                answer: Any = wire.send_frame(step)
            else:
                answer = wire.ask(*step)
            told.append(_comparable(answer))
            if answer is None:
                return told
        error = getattr(answer, "error_code", 0)
        if error in (33, 58):  # a mechanism that is not enabled, a login that failed
            told.append("closed" if wire.is_closed() else "open")
    return told


def _comparable(answer: Any) -> Any:
    if answer is None or isinstance(answer, bytes):
        return answer
    name = type(answer).__name__
    if name == "SaslHandshakeResponse":
        return name, answer.error_code, answer.mechanisms
    if name == "SaslAuthenticateResponse":
        told = answer.error_code, answer.error_message, bytes(answer.auth_bytes)
        return (name, *told, answer.session_lifetime_ms)
    return name, getattr(answer, "error_code", 0)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("name", DIALOGUES)
def test_a_login_goes_as_with_kafka(pair: Pair, name: str) -> None:
    ours, theirs = (transcript(one.sasl, DIALOGUES[name]) for one in pair)
    assert ours == theirs


@pytest.mark.kafka
@pytest.mark.slow
def test_without_sasl_logins_are_illegal_as_with_kafka(pair: Pair) -> None:
    for dialogue in ([(CHOOSE, 0)], [(CHOOSE, 1)], [(say(RIGHT), 0)], [(say(RIGHT), 2)]):
        ours, theirs = (transcript(one.plaintext, list(dialogue)) for one in pair)
        assert ours == theirs


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("password", ["c", "wrong"])
def test_scram_goes_as_with_kafka(pair: Pair, password: str) -> None:
    told = []
    for one in pair:
        scram = ScramClient("SCRAM-SHA-256", "carol", password)
        with Wire(one.sasl) as wire:
            assert wire.ask(CHOOSE_SCRAM, 1).error_code == 0
            first = wire.ask(say(scram.first()), 2)
            last = wire.ask(say(scram.final(bytes(first.auth_bytes))), 2)
            proven = not last.error_code and scram.is_servers(bytes(last.auth_bytes))
            told.append((first.error_code, last.error_code, last.error_message, proven))
    assert told[0] == told[1]
    assert told[0][3] == (password == "c")


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize(
    "other",
    [
        ("alice", CHOOSE),
        ("bob", CHOOSE),
        ("alice", CHOOSE_SCRAM),
    ],
    ids=["same", "other user", "other mechanism"],
)
def test_a_second_login_goes_as_with_kafka(
    pair: Pair, other: tuple[str, SaslHandshakeRequest]
) -> None:
    name, choice = other
    dialogue: list[Step | bytes] = [
        (CHOOSE, 1),
        (say(RIGHT), 2),
        (METADATA, 12),
        (choice, 1),
        (say(plain_message(name, USERS[name])), 2),
        (METADATA, 12),
        (CHOOSE, 1),  # too soon
    ]
    ours, theirs = (transcript(one.short, dialogue) for one in pair)
    assert ours == theirs


@pytest.mark.kafka
@pytest.mark.slow
def test_users_of_scram_change_as_with_kafka(pair: Pair) -> None:
    def delete(*named: tuple[str, int]) -> list[ScramCredentialDeletion]:
        return [ScramCredentialDeletion(name=name, mechanism=kind) for name, kind in named]

    requests: list[Any] = [
        AlterUserScramCredentialsRequest(
            deletions=delete(("nobody", SHA_256), ("", SHA_256), ("odd", 0), ("odder", 7)),
            upsertions=[
                upsert("few", "x", iterations=4095),
                upsert("many", "x", iterations=16385),
                upsert("unknown", "x", mechanism=3),
                upsert("", "x"),
                upsert("twice", "x"),
                upsert("twice", "x", SHA_512),
                upsert("least", "x"),
                upsert("most", "x", SHA_512, 16384),
                upsert("thrice", "x"),
                upsert("thrice", "x", iterations=1),
                upsert("thrice", "x"),
            ],
        ),
        AlterUserScramCredentialsRequest(
            deletions=delete(("least", SHA_256), ("most", SHA_256)),
            upsertions=[upsert("least", "y"), upsert("new", "x")],
        ),
        AlterUserScramCredentialsRequest(
            deletions=delete(("least", SHA_256), ("least", SHA_256), ("new", SHA_256)),
            upsertions=[upsert("most", "x", SHA_256)],
        ),
        AlterUserScramCredentialsRequest(deletions=[], upsertions=[]),
        DescribeUserScramCredentialsRequest(users=None),
        DescribeUserScramCredentialsRequest(users=[]),
        DescribeUserScramCredentialsRequest(
            users=[UserName(name=name) for name in ("least", "nobody", "most", "most", "")]
        ),
    ]
    for request in requests:
        ours = results(pair[0].plaintext, request)
        # Kafka's broker hears of what its controller has done a little later.
        is_patient = isinstance(request, DescribeUserScramCredentialsRequest)
        theirs = last_answer(
            partial(results, pair[1].plaintext, request),
            lambda theirs, ours=ours, is_patient=is_patient: theirs == ours or not is_patient,  # type: ignore[misc]
        )
        assert ours == theirs, request


@pytest.mark.kafka
@pytest.mark.slow
def test_an_empty_salted_password_is_refused_by_both(pair: Pair) -> None:
    one_user = upsert("empty", "x")
    one_user.salted_password = b""
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[one_user])
    codes = []
    for one in pair:
        with Wire(one.plaintext) as wire:
            (result,) = wire.ask(request, 0).results
            codes.append(result.error_code)
    assert codes == [ErrorCode.UNACCEPTABLE_CREDENTIAL, ErrorCode.UNKNOWN_SERVER_ERROR]


@pytest.mark.kafka
@pytest.mark.slow
def test_kafkas_users_log_in_after_an_adoption(tmp_path: Path) -> None:
    if kafka_libs() is None:
        pytest.skip("Kafka's jars are not there: `make kafka` fetches them")
    carol = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsert("carol", "c")])
    with kafka(tmp_path / "theirs") as theirs, Wire(theirs.plaintext) as wire:
        assert wire.ask(carol, 0).results[0].error_code == 0
    data = theirs.process.data
    assert adopt(Source((data,)), force=False, dry_run=False) == 0
    with odradek(tmp_path / "ours", {"log.dirs": str(data)}) as ours, Wire(ours.sasl) as wire:
        scram = ScramClient("SCRAM-SHA-256", "carol", "c")
        assert wire.ask(CHOOSE_SCRAM, 1).error_code == 0
        first = wire.ask(say(scram.first()), 2)
        last = wire.ask(say(scram.final(bytes(first.auth_bytes))), 2)
        assert scram.is_servers(bytes(last.auth_bytes))
