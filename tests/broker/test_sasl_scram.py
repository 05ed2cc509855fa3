"""SCRAM: by the RFC's example, against a client written apart, and what must not work."""

from __future__ import annotations

import base64
import itertools
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.security.credentials import ScramCredential, TokenCredential
from odradek.broker.security.principals import Principal
from odradek.broker.security.sasl.exchange import AuthenticationFailed, Step
from odradek.broker.security.sasl.scram import Scram, ScramExchange
from odradek.broker.security.sasl.scram_messages import (
    credential_of,
    read_client_final,
    read_client_first,
    salted_password,
)
from odradek.broker.security.scram_users import ScramUsers
from tests.broker.scram_client import HASHES, ScramClient
from tests.broker.traced import peak_bytes

MECHANISMS = tuple(HASHES)
BOTH = pytest.mark.parametrize("mechanism", MECHANISMS)


def credential(mechanism: str, password: str, iterations: int = 4096) -> ScramCredential:
    salt = b"a salt of some length"
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


@dataclass
class Tokens:
    """Delegation tokens, by id."""

    found: Mapping[str, TokenCredential] = field(default_factory=dict)

    def find(self, token_id: str) -> TokenCredential | None:
        return self.found.get(token_id)


@dataclass
class FakeSecurity:
    """What SCRAM asks of a broker's security."""

    scram_users: ScramUsers
    token_credentials: Tokens = field(default_factory=Tokens)


def security(
    users: Mapping[tuple[str, str], ScramCredential], tokens: Tokens | None = None
) -> FakeSecurity:
    made = ScramUsers({}, cast("Any", None))
    made._credentials.update(users)
    return FakeSecurity(made, tokens or Tokens())


def exchange(mechanism: str, fake: FakeSecurity) -> ScramExchange:
    return Scram(mechanism, cast("Any", fake)).begin()


def log_in(client: ScramClient, fake: FakeSecurity) -> Step:
    begun = exchange(client.mechanism, fake)
    last = begun.step(client.final(begun.step(client.first()).reply))
    assert client.is_servers(last.reply)
    return last


def test_the_example_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    name = "SCRAM-SHA-256"
    known = credential_of(name, salted_password(name, "pencil", salt, 4096), salt, 4096)
    server_nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    monkeypatch.setattr(secrets, "token_urlsafe", lambda _: server_nonce)
    begun = exchange(name, security({(name, "user"): known}))
    nonce = f"rOprNGfwEbeRWgbNEkqO{server_nonce}"
    first = begun.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first.reply == f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    last = begun.step(
        f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    assert last.reply == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert last.done is not None
    assert last.done.principal == Principal("User", "user")


@BOTH
@settings(max_examples=20, deadline=None)
@given(
    name=st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1, max_size=20),
    password=st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable()),
)
def test_any_name_and_password_log_in(mechanism: str, name: str, password: str) -> None:
    fake = security({(mechanism, name): credential(mechanism, password)})
    done = log_in(ScramClient(mechanism, name, password), fake).done
    assert done is not None
    assert (done.principal, done.principal.by_token) == (Principal("User", name), False)
    with pytest.raises(AuthenticationFailed):
        log_in(ScramClient(mechanism, name, password + "x"), fake)


@BOTH
def test_a_user_of_another_mechanism_is_unknown(mechanism: str) -> None:
    (other,) = set(MECHANISMS) - {mechanism}
    fake = security({(other, "alice"): credential(other, "secret")})
    with pytest.raises(AuthenticationFailed, match=r"^$"):
        log_in(ScramClient(mechanism, "alice", "secret"), fake)


@BOTH
def test_an_unknown_user_looks_like_one_with_another_password(mechanism: str) -> None:
    fake = security({(mechanism, "alice"): credential(mechanism, "secret", 4096)})
    told = []
    for name in ("alice", "eve"):
        client = ScramClient(mechanism, name, "wrong")
        begun, again = exchange(mechanism, fake), exchange(mechanism, fake)
        reply = begun.step(client.first()).reply
        salts = [one.split(b",")[1:] for one in (reply, again.step(client.first()).reply)]
        assert salts[0] == salts[1]  # the same each time
        with pytest.raises(AuthenticationFailed) as failed:
            begun.step(client.final(reply))
        told.append(str(failed.value))
    assert told == ["", ""]


@BOTH
def test_a_message_of_another_exchange_is_refused(mechanism: str) -> None:
    fake = security({(mechanism, "alice"): credential(mechanism, "secret")})
    client = ScramClient(mechanism, "alice", "secret")
    begun = exchange(mechanism, fake)
    final = client.final(begun.step(client.first()).reply)
    assert begun.step(final).done is not None
    replayed = exchange(mechanism, fake)
    replayed.step(client.first())
    with pytest.raises(AuthenticationFailed) as failed:
        replayed.step(final)
    assert "nonce" in failed.value.reason
    for message in (client.first(), final):
        with pytest.raises(AuthenticationFailed):
            begun.step(message)  # the exchange is over


@BOTH
def test_a_nonce_has_to_be_whole(mechanism: str) -> None:
    fake = security({(mechanism, "alice"): credential(mechanism, "secret")})
    for change in (lambda text: text[:-1], lambda text: "x" + text, lambda text: text[24:]):
        client = ScramClient(mechanism, "alice", "secret")
        begun = exchange(mechanism, fake)
        reply = begun.step(client.first()).reply
        nonce = reply.decode().split(",")[0].removeprefix("r=")
        with pytest.raises(AuthenticationFailed):
            begun.step(client.final(reply, nonce=change(nonce)))


@BOTH
@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=alice",
        b"y,,n=alice,r=abc",  # the client thinks that channel binding is not offered
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,m=x,n=alice,r=abc",  # a mandatory extension
        b"n,,n=al=ice,r=abc",
        b"n,,n=,r=abc",
        "n,,n=\u00e4,r=abc".encode(),
        b"n,,n=alice,r=",
        b"n,,n=alice,r=a\x00c",
        b"\xff" * 100,
    ],
)
def test_an_invalid_first_message_is_refused(mechanism: str, message: bytes) -> None:
    begun = exchange(mechanism, security({}))
    with pytest.raises(AuthenticationFailed):
        begun.step(message)
    with pytest.raises(AuthenticationFailed):
        begun.step(b"n,,n=alice,r=abc")


@BOTH
def test_an_authorization_id_is_the_name(mechanism: str) -> None:
    fake = security({(mechanism, "a=b"): credential(mechanism, "secret")})
    client = ScramClient(mechanism, "a=b", "secret", header="n,a=a=3Db,")
    assert log_in(client, fake).done is not None
    for name in ("a=b", "eve"):
        with pytest.raises(AuthenticationFailed, match="different from username"):
            log_in(ScramClient(mechanism, name, "secret", header="n,a=other,"), fake)


@BOTH
def test_a_token_is_not_a_user_and_a_user_is_no_token(mechanism: str) -> None:
    owner = Principal("User", "owner")
    token = TokenCredential(owner, {mechanism: credential(mechanism, "of-token")}, 12345)
    users = {(mechanism, "same-name"): credential(mechanism, "of-user")}
    fake = security(users, Tokens({"same-name": token}))

    def client(password: str, extensions: str = "") -> ScramClient:
        return ScramClient(mechanism, "same-name", password, extensions=extensions)

    done = log_in(client("of-token", ",tokenauth=true"), fake).done
    assert done is not None
    assert (done.principal, done.principal.by_token, done.expires_ms) == (owner, True, 12345)
    done = log_in(client("of-user"), fake).done
    assert done is not None
    assert (done.principal.name, done.principal.by_token) == ("same-name", False)
    assert done.expires_ms is None
    for wrong in (client("of-user", ",tokenauth=true"), client("of-token")):
        with pytest.raises(AuthenticationFailed, match=r"^$"):
            log_in(wrong, fake)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(message: bytes) -> None:
    read_client_first(message)
    read_client_final(message)


def names(count: int) -> bytes:
    """Write extensions, all of another name."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    made = ("".join(one) for one in itertools.product(letters, repeat=3))
    return "".join(f",{name}=b" for name in itertools.islice(made, count)).encode()


@pytest.mark.parametrize(
    "message",
    [
        b"n,,n=" + b"a" * 500_000 + b",r=b",
        b"n,,n=" + b"a" * 500_000 + b"=",
        b"n,,n=" + b"=2C" * 160_000 + b",r=b",
        b"n,a=" + b"a" * 250_000 + b",n=" + b"a" * 250_000 + b",r=b",
        b"n,,n=a,r=b" + names(80_000),
        b"n,,n=a,r=b" + names(80_000) + b",",
        b"c=biws,r=a" + b",p=aaaa" * 70_000,
        b"c=biws,r=a" + b",p=aaaa" * 70_000 + b"!",
        b"c=" + b"abcd" * 120_000 + b",r=b,p=abcd",
        b"c=biws,r=b,p=" + b"abcd" * 120_000 + b"!",
    ],
    ids=lambda message: message[:12].decode() + "…" + message[-4:].decode(),
)
def test_a_message_takes_memory_by_its_length_alone(message: bytes) -> None:
    # Nobody has logged in yet: a client may send this as often as it connects.
    assert peak_bytes(lambda: (read_client_first(message), read_client_final(message))) < (
        6 * len(message)
    )


def test_extensions_are_found_by_name_and_the_last_one_counts() -> None:
    first = read_client_first(b"n,,n=a,r=b,b=1,tokenauth=false,c=tokenauth=1,tokenauth=True,x=y")
    assert first is not None
    told = [first.extension(name) for name in ("b", "tokenauth", "c", "x", "tokenaut", "a")]
    assert told == ["1", "True", "tokenauth=1", "y", "", ""]
    final = read_client_final(b"c=biws,r=b,p=abcd,x=y,p=abcd")
    assert final is not None and final.unproven == "c=biws,r=b,p=abcd,x=y"


def test_a_long_message_takes_no_longer_than_its_length() -> None:
    for message in (b"n,,n=a,r=b" + b",a=b" * 100_000, b"c=" + b"A" * 500_000, b"n,," * 100_000):
        read_client_first(message)
        read_client_final(message)


@given(
    binding=st.lists(st.sampled_from(["biws", "ab==", "abc=", "a", "="]), max_size=4),
    extensions=st.lists(st.sampled_from([",a=b", ",p=ab==", ",", "=", "a", ",x"]), max_size=8),
    proof=st.lists(st.sampled_from(["abcd", "ab==", "abc=", "a", ",x=y"]), max_size=4),
)
def test_a_last_message_is_read_as_by_a_pattern_that_backtracks(
    binding: list[str], extensions: list[str], proof: list[str]
) -> None:
    """Python before 3.11.5 loses its place in possessive groups that something follows."""
    base64_text = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
    extension = r",[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+"
    plain = rf"(c={base64_text},r=[\x21-\x2b\x2d-\x7e]+(?:{extension}(?=,))*),p=({base64_text})"
    text = f"c={''.join(binding)},r=x{''.join(extensions)},p={''.join(proof)}"
    expected, found = re.fullmatch(plain, text), read_client_final(text.encode())
    assert (expected is None) == (found is None)
    if expected is not None and found is not None:
        assert found.unproven == expected[1]
