"""Real clients log in by each mechanism over TLS, rightly and wrongly, at Odradek as at Kafka.

Who is refused is refused as by Kafka, and leaves one line in the log, without a secret.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping

import pytest

from bench.processes import KafkaProcess, OdradekProcess
from tests.interop.programs import BUILDS
from tests.logins.brokers import PASSWORD, TOPIC, Keys, Secured, running
from tests.logins.clients import (
    OK,
    SASL,
    TIMEOUT_S,
    TLS,
    Client,
    FranzGo,
    Java,
    KafkaPython,
    Librdkafka,
    Outcome,
)
from tests.logins.logins import MTLS, OAUTHBEARER, Login
from tests.support.waiting import last_answer

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(600)]

WRONG = "the wrong password"
TOKEN = "a delegation token"
_PEER = re.compile(r" peer=\S+")
# What librdkafka and Java say of a place and a moment.
_VARIES = re.compile(r"localhost:\d+|after \d+ms|Correlation id.*")

Case = Callable[[Keys, Secured], Login]


def _scram(number: int, user: str = "alice", password: str = PASSWORD) -> Case:
    return lambda keys, _: Login(f"SCRAM-SHA-{number}", keys.ca, user, password)


def _plain(user: str = "alice", password: str = PASSWORD) -> Case:
    return lambda keys, _: Login("PLAIN", keys.ca, user, password)


def _certificate(kind: str | None) -> Case:
    return lambda keys, _: Login(
        MTLS, keys.ca, certificate=None if kind is None else keys.certificate(kind)
    )


def _token(made: Callable[[Keys], str]) -> Case:
    return lambda keys, _: Login(OAUTHBEARER, keys.ca, token=made(keys))


def _delegation_token(kind: str, password: str | None = None) -> Case:
    def login(keys: Keys, broker: Secured) -> Login:
        token_id, hmac = broker.tokens[kind]
        return Login("SCRAM-SHA-256", keys.ca, token_id, password or hmac, is_token=True)

    return login


RIGHT: Mapping[str, Case] = {
    "certificate": _certificate("right"),
    "PLAIN": _plain(),
    "SCRAM-SHA-256": _scram(256),
    "SCRAM-SHA-512": _scram(512),
    "OAUTHBEARER": _token(lambda keys: keys.issuer.sign()),
    TOKEN: _delegation_token("right"),
}
REFUSED_BY_SASL: Mapping[str, Case] = {
    "PLAIN, wrong password": _plain(password=WRONG),
    "PLAIN, nobody": _plain("nobody"),
    "SCRAM-SHA-256, wrong password": _scram(256, password=WRONG),
    "SCRAM-SHA-512, wrong password": _scram(512, password=WRONG),
    "SCRAM-SHA-512, nobody": _scram(512, "nobody"),
    "OAUTHBEARER, expired": _token(lambda keys: keys.issuer.sign(expires_in_s=-120)),
    "OAUTHBEARER, wrong audience": _token(lambda keys: keys.issuer.sign(audience="others")),
    "OAUTHBEARER, wrong issuer": _token(lambda keys: keys.issuer.sign(issuer="https://x.example")),
    "OAUTHBEARER, wrong key": _token(lambda keys: keys.other_issuer.sign()),
    f"{TOKEN}, ended": _delegation_token("ended"),
    f"{TOKEN}, wrong": _delegation_token("right", WRONG),
}
REFUSED_BY_TLS: Mapping[str, Case] = {
    "no certificate": _certificate(None),
    "expired certificate": _certificate("expired"),
    "certificate of another CA": _certificate("other"),
    "wrong CA": lambda keys, _: Login("PLAIN", keys.other_ca, "alice", PASSWORD),
}
CASES = {**RIGHT, **REFUSED_BY_SASL, **REFUSED_BY_TLS}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """Certificates, and an issuer of tokens."""
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def ours(keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """An Odradek."""
    with running(OdradekProcess, tmp_path_factory.mktemp("odradek"), keys) as secured:
        yield secured


@pytest.fixture(scope="module")
def kafkas(keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A Kafka."""
    with running(KafkaProcess, tmp_path_factory.mktemp("kafka"), keys) as secured:
        yield secured


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    """Kafka's own client."""
    client = Java()
    yield client
    client.close()


@pytest.mark.parametrize("case", CASES)
def test_java(case: str, java: Java, keys: Keys, ours: Secured, kafkas: Secured) -> None:
    assert _compared(case, java, keys, ours, kafkas) == _meant(case)


@pytest.mark.parametrize("case", [one for one in CASES if TOKEN not in one])
def test_librdkafka(case: str, keys: Keys, ours: Secured, kafkas: Secured) -> None:
    assert _compared(case, Librdkafka(), keys, ours, kafkas) == _meant(case)


@pytest.mark.parametrize(
    "case", [*(one for one in RIGHT if one != TOKEN), "PLAIN, wrong password", "wrong CA"]
)
def test_kafka_python(case: str, keys: Keys, ours: Secured, kafkas: Secured) -> None:
    client = KafkaPython(is_refused=case not in RIGHT)
    assert (_compared(case, client, keys, ours, kafkas) == OK) == (case in RIGHT)


@pytest.mark.interop
@pytest.mark.parametrize("case", CASES)
def test_franz_go(case: str, keys: Keys, ours: Secured, kafkas: Secured) -> None:
    if not (BUILDS / "secure").exists() or shutil.which("go") is None:
        pytest.skip("`make interop` builds it, where there is Go")
    assert (_compared(case, FranzGo(), keys, ours, kafkas) == OK) == (case in RIGHT)


def test_the_log_has_no_secret(keys: Keys, ours: Secured) -> None:
    """After all of the above, in whatever order they ran."""
    text = ours.process.log_text()
    secrets = [PASSWORD, WRONG, "the-administrator's-secret", "the-key-of-all-tokens", "BEGIN"]
    secrets += [hmac for _, hmac in ours.tokens.values()]
    secrets += ["eyJ"]  # what every JWT begins with
    assert [one for one in secrets if one in text] == []
    assert "Traceback" not in text


def _compared(case: str, client: Client, keys: Keys, ours: Secured, kafkas: Secured) -> str:
    """Let a client try at both brokers; return the kind of outcome, the same at both."""
    logged = len(_refusals(ours))
    outcome = _attempt(case, client, keys, ours)
    # The client may hear of it before the log does.
    refusals = last_answer(
        lambda: _refusals(ours)[logged:], lambda found: outcome.kind == OK or found, TIMEOUT_S
    )
    peers = {_PEER.search(line).group() for line in refusals}  # type: ignore[union-attr]
    assert len(peers) == len(refusals), "a connection was refused in two lines"
    assert (outcome.kind == OK) == (not refusals), refusals
    expected = _attempt(case, client, keys, kafkas)
    if outcome.kind == SASL:  # of TLS each library of TLS says something else
        assert outcome == expected
    assert outcome.kind == expected.kind, (outcome, expected)
    return outcome.kind


def _attempt(case: str, client: Client, keys: Keys, broker: Secured) -> Outcome:
    login = CASES[case](keys, broker)
    outcome = client.attempt(broker.bootstrap(login), TOPIC, login)
    return Outcome(outcome.kind, _VARIES.sub("", outcome.said))


def _refusals(broker: Secured) -> list[str]:
    lines = broker.process.log_text().splitlines()
    return [line for line in lines if "WARNING" in line and " refused " in line]


def _meant(case: str) -> str:
    return OK if case in RIGHT else SASL if case in REFUSED_BY_SASL else TLS

