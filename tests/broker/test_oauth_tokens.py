"""Which tokens are believed, and which keys may say so."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.security.oauth.jwks import BadKeySet, read_key_set
from odradek.broker.security.oauth.validation import Claims, InvalidToken, read_header, verify
from odradek.config.oauth import OAuthConfig
from tests.broker import provider
from tests.broker.provider import (
    AUDIENCE,
    EC_KEY,
    ED_KEY,
    ISSUER,
    KEYS,
    OTHER_KEY,
    RSA_KEY,
    key_set,
    public_jwk,
    token,
    wrong_tokens,
)

KEY_SET = read_key_set(KEYS)
STRICT = OAuthConfig(
    sasl_oauthbearer_expected_audience=(AUDIENCE, "b"), sasl_oauthbearer_expected_issuer=ISSUER
)
WRONG = wrong_tokens()


def check(
    text: str, config: OAuthConfig = STRICT, ahead_s: int = 0, keys: Any = KEY_SET
) -> Claims:
    header = read_header(text)
    found = keys.candidates(header.algorithm, header.key_id)
    return verify(text, header, found, config, int((time.time() + ahead_s) * 1000))


@pytest.mark.parametrize(
    ("key", "algorithm", "key_id"),
    [
        *((RSA_KEY, name, "rsa") for name in ("RS256", "RS384", "RS512", "PS256", "PS512")),
        (EC_KEY, "ES256", "ec"),
        (ED_KEY, "EdDSA", "ed"),
        (RSA_KEY, "RS256", None),
        (EC_KEY, "ES256", None),
    ],
)
def test_a_right_token_is_believed(key: Any, algorithm: str, key_id: str | None) -> None:
    exp = int(time.time()) + 100
    found = check(token(key, algorithm, key_id, exp=exp, sub=" alice "))
    assert found == Claims("alice", exp * 1000)


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_token_is_not_believed(what: str) -> None:
    with pytest.raises(InvalidToken) as refused:
        check(WRONG[what])
    signature = WRONG[what].rsplit(".", 1)[-1]
    assert len(signature) < 20 or signature not in str(refused.value)


def test_clocks_may_differ_by_so_much() -> None:
    now_s = int(time.time())
    made = token(exp=now_s + 100, iat=now_s - 10, nbf=now_s)
    for ahead_s in (-29, 0, 99, 128):
        check(made, ahead_s=ahead_s)
    for ahead_s in (-45, 131, 10**9, -(10**9)):
        with pytest.raises(InvalidToken):
            check(made, ahead_s=ahead_s)


def test_claims_that_are_not_expected_may_be_absent() -> None:
    check(token(aud=None, iss="anybody"), OAuthConfig())
    check(token(aud=["x", "b"]))
    with pytest.raises(InvalidToken, match=r"expected\.audience is not set"):
        check(token(), OAuthConfig())


def test_claims_have_the_names_of_the_settings() -> None:
    named = OAuthConfig(
        sasl_oauthbearer_sub_claim_name="preferred_username",
        sasl_oauthbearer_scope_claim_name="scp",
    )
    found = check(token(aud=None, preferred_username="bob", scope=[1]), named)
    assert found.subject == "bob"
    with pytest.raises(InvalidToken):
        check(token(aud=None, preferred_username="bob", scp=["a", "a "]), named)


@pytest.mark.parametrize("name", ["exp", "iat", "nbf"])
@pytest.mark.parametrize(
    "value", ["1", True, -1, 1e300, float("nan"), float("inf"), [], 10**30, None]
)
def test_times_are_numbers(name: str, value: Any) -> None:
    payload = json.dumps(provider.claims() | {name: value}).encode()
    made = provider.jwt.api_jws.encode(payload, RSA_KEY, "RS256", headers={"kid": "rsa"})
    if name == "nbf" and value in (None, -1):
        check(made)
        return
    with pytest.raises(InvalidToken):
        check(made)


@pytest.mark.parametrize("payload", [b"", b"null", b"[]", b"\xff", b"{", b'"a"', b"[" * 100_000])
def test_claims_are_an_object(payload: bytes) -> None:
    made = provider.jwt.api_jws.encode(payload, RSA_KEY, "RS256", headers={"kid": "rsa"})
    with pytest.raises(InvalidToken):
        check(made)


@pytest.mark.parametrize("header", [{"crit": ["x"], "x": 1}, {"crit": []}, {"b64": False}])
def test_a_header_that_is_not_understood_is_refused(header: dict[str, Any]) -> None:
    made = provider.jwt.api_jws.encode(
        json.dumps(provider.claims()).encode(), RSA_KEY, "RS256", headers={"kid": "rsa"}
    )
    parts = made.split(".")
    told = {"alg": "RS256", "kid": "rsa"} | header
    signing = provider._encoded(json.dumps(told).encode()) + "." + parts[1]
    signature = provider.jwt.algorithms.RSAAlgorithm(
        provider.jwt.algorithms.RSAAlgorithm.SHA256
    ).sign(signing.encode(), RSA_KEY)
    with pytest.raises(InvalidToken):
        check(f"{signing}.{provider._encoded(signature)}")


def test_a_key_is_for_the_algorithms_that_it_says() -> None:
    keys = read_key_set(key_set(public_jwk(RSA_KEY, "rsa", alg="RS512")))
    check(token(algorithm="RS512"), keys=keys)
    with pytest.raises(InvalidToken, match="no key fits"):
        check(token(algorithm="RS256"), keys=keys)


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "rsa"},
        {"kty": "RSA", "kid": "rsa"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": ["P-256"]},
        {"kty": ["RSA"]},
        {"kty": "RSA", "n": 1, "e": []},
        {"kty": "OKP", "crv": "X25519", "x": "AA"},
        public_jwk(provider.rsa_key(1024), "rsa"),
        public_jwk(RSA_KEY, "rsa", alg="HS256"),
        public_jwk(RSA_KEY, "rsa", use="enc"),
        public_jwk(RSA_KEY, "rsa") | {"key_ops": ["sign"]},
        public_jwk(RSA_KEY, "rsa") | {"key_ops": 1},
        public_jwk(ec.generate_private_key(ec.SECP256K1()), "k"),
        "a text",
        None,
    ],
)
def test_entries_that_are_no_keys_to_check_with_are_passed_over(entry: Any) -> None:
    with pytest.raises(BadKeySet):
        read_key_set(key_set(entry))
    good = public_jwk(RSA_KEY, "rsa")
    keys = read_key_set(key_set(entry, good))
    assert [one.key_id for one in keys.keys] == ["rsa"]
    check(token(), keys=keys)


def test_a_private_key_that_was_published_checks_as_its_public_half() -> None:
    told = dict(provider.RSAAlgorithm.to_jwk(RSA_KEY, as_dict=True)) | {"kid": "rsa"}
    del told["key_ops"]
    keys = read_key_set(key_set(told))
    check(token(), keys=keys)
    with pytest.raises(InvalidToken):
        check(token(OTHER_KEY), keys=keys)


def number(bits: int) -> str:
    """Write an odd number of so many bits as a JWK does."""
    value = 1 << (bits - 1) | 0x5A5A5A5B
    return provider._encoded(value.to_bytes((bits + 7) // 8, "big"))


LONG_KEY = {"kty": "RSA", "kid": "rsa", "n": number(16_384), "e": "AQAB"}


@pytest.mark.parametrize(
    "entry",
    [
        # Of a private exponent the factors of the modulus would be computed.
        LONG_KEY | {"d": number(16_384)},
        LONG_KEY | {"n": number(700_000), "d": number(700_000)},
        LONG_KEY | {name: number(5_000) for name in ("d", "p", "q", "dp", "dq", "qi")},
        LONG_KEY | {"n": number(5_000_000)},
        LONG_KEY | {"n": number(3_072), "e": number(3_000)},
    ],
    ids=["private", "long and private", "factors", "long", "exponent"],
)
def test_a_hostile_key_costs_little_time(entry: dict[str, str]) -> None:
    good = public_jwk(EC_KEY, "ec")
    begun_s = time.process_time()
    keys = read_key_set(key_set(entry, good))
    with pytest.raises(InvalidToken):
        check(token(OTHER_KEY), keys=keys)
    check(token(EC_KEY, "ES256", "ec"), keys=keys)
    assert time.process_time() - begun_s < 0.5  # it was seconds, or hours


def test_of_many_keys_a_few_are_tried() -> None:
    keys = read_key_set(key_set(*[LONG_KEY] * 999, public_jwk(RSA_KEY, "rsa")))
    assert len(keys.keys) == 1_000
    for key_id in ("rsa", None):
        assert len(keys.candidates("RS256", key_id)) <= 10
    begun_s = time.process_time()
    with pytest.raises(InvalidToken, match="signature"):
        check(token(key_id=None), keys=keys)
    assert time.process_time() - begun_s < 0.5  # all of them take 1.5 s


@pytest.mark.parametrize("where", ["header", "claims", "signature"])
def test_a_long_token_takes_no_longer_than_its_length(where: str) -> None:
    header = {"alg": "RS256", "kid": "rsa"} | ({"x": "y" * 380_000} if where == "header" else {})
    payload = b"x" * (380_000 if where == "claims" else 10)
    made = provider.forged(header, payload, b"secret")
    made += "A" * (500_000 if where == "signature" else 0)
    keys = read_key_set(key_set(*[public_jwk(RSA_KEY, "rsa")] * 10))
    begun_s = time.process_time()
    for _ in range(10):
        with pytest.raises(InvalidToken):
            check(made, keys=keys)
    # 10 of them tried with 10 keys; PyJWT alone would take 20 ms for each key.
    assert time.process_time() - begun_s < 1.0


def test_a_subject_that_no_response_can_have_is_refused() -> None:
    with pytest.raises(InvalidToken, match="not valid text"):
        check(token(sub="a\ud800"))


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_key_set_or_none(data: bytes) -> None:
    with pytest.raises(BadKeySet):
        read_key_set(data)


@given(st.text(alphabet="abcXYZ019-_.=/", max_size=100) | st.text(max_size=30))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidToken):
        check(text)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)


_HEADERS = ("alg", "kid", "crit", "b64", "typ", "jwk", "jku", "x5c", "zip")
_CLAIMS = ("exp", "iat", "nbf", "aud", "iss", "sub", "scope")


@given(st.dictionaries(st.sampled_from(_HEADERS), _JSON), st.binary(max_size=20))
def test_any_header_is_refused(header: dict[str, Any], payload: bytes) -> None:
    for secret in (b"", provider.public_pem()):
        with pytest.raises(InvalidToken):
            check(provider.forged(header, payload, secret))


@given(st.dictionaries(st.sampled_from(_CLAIMS), _JSON))
def test_any_claims_are_believed_or_refused(more: dict[str, Any]) -> None:
    payload = json.dumps(provider.claims() | more).encode()
    made = provider.jwt.api_jws.encode(payload, RSA_KEY, "RS256", headers={"kid": "rsa"})
    try:
        found = check(made)
    except InvalidToken:
        return
    assert found.subject and found.expires_ms > 0
