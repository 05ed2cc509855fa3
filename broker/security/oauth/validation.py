"""Validates a token: its signature, its times, its issuer, audience and subject.

The checks are those of Kafka's BrokerJwtValidator and of jose4j below it. The caller passes the
keys and the time.

    <header> . <claims> . <signature>        each in URL-safe base64 (RFC 7515)

This module splits the text itself, each part once, in a time that is linear in its length. PyJWT
would look at each character of all parts, again for each key, which takes 50 ms for the largest
token. PyJWT's algorithms check the signature.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jwt.algorithms import get_default_algorithms
from jwt.exceptions import PyJWTError

from odradek.broker.security.oauth.jwks import VerificationKey
from odradek.config.oauth import OAuthConfig
from odradek.dataclass import dataclass

_ALGORITHMS = get_default_algorithms()
# Three parts in URL-safe base64; without a signature the last would be empty.
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
# The last time, in seconds since the epoch, whose milliseconds fit into 64 bits.
_SECONDS_MAX = (2**63 - 1) // 1000
_KEY_ID_MAX = 1000


class InvalidToken(Exception):
    """A token that is not valid; the message is for the log, and contains claims at most."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a token: how it is signed."""

    algorithm: str
    key_id: str | None


@dataclass(frozen=True, slots=True)
class Claims:
    """The checked claims of a token: its subject and its end (milliseconds since the epoch)."""

    subject: str
    expires_ms: int


def read_header(token: str) -> Header:
    """Read the header of a token, which is not checked yet. Raises InvalidToken."""
    if not _COMPACT.fullmatch(token):
        raise InvalidToken("it does not have the three parts of a signed token")
    try:
        header = json.loads(_decoded(token.partition(".")[0]))
    except (ValueError, RecursionError) as error:
        raise InvalidToken(f"its header cannot be read ({type(error).__name__})") from None
    if not isinstance(header, dict):
        raise InvalidToken("its header is not an object")
    # RFC 7515 section 4.1.11: a token with a critical header that is not understood is refused.
    if "crit" in header or header.get("b64", True) is not True:
        raise InvalidToken("its header needs features that are not supported (crit, b64)")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str):
        raise InvalidToken("its header has no alg")
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > _KEY_ID_MAX):
        raise InvalidToken("the kid of its header is not valid")
    return Header(algorithm, key_id)


def verify(
    token: str,
    header: Header,
    keys: Sequence[VerificationKey],
    config: OAuthConfig,
    now_ms: int,
) -> Claims:
    """Check a token's signature with keys that allow its algorithm, then its claims.

    Raises InvalidToken.
    """
    if not keys:
        raise InvalidToken(
            f"no key fits its header: alg={header.algorithm!r:.60} kid={header.key_id!r:.100}"
        )
    claims = _read_claims(_signed_payload(token, header, keys))
    _check_times(claims, config.sasl_oauthbearer_clock_skew_seconds, now_ms)
    _check_audience(claims, config.sasl_oauthbearer_expected_audience)
    expected = config.sasl_oauthbearer_expected_issuer
    if expected is not None and claims.get("iss") != expected:
        raise InvalidToken(f"its issuer is {claims.get('iss')!r:.200}, not {expected!r}")
    _check_scopes(claims, config.sasl_oauthbearer_scope_claim_name)
    subject = _text(claims, config.sasl_oauthbearer_sub_claim_name)
    expires_s = _seconds(claims, "exp")
    assert expires_s is not None
    return Claims(subject, int(expires_s * 1000))


def _signed_payload(token: str, header: Header, keys: Sequence[VerificationKey]) -> bytes:
    signed, _, encoded = token.rpartition(".")
    message, algorithm = signed.encode("ascii"), _ALGORITHMS[header.algorithm]
    failure = "InvalidSignatureError"
    try:
        signature = _decoded(encoded)
        for one in keys:
            try:
                if algorithm.verify(message, one.key, signature):
                    return _decoded(signed.partition(".")[2])
            except (PyJWTError, TypeError) as error:
                failure = type(error).__name__
    except ValueError as error:
        failure = type(error).__name__
    raise InvalidToken(f"its signature is wrong ({failure}): kid={header.key_id!r:.100}")


def _decoded(text: str) -> bytes:
    """Decode canonical URL-safe base64 without padding. Raises ValueError."""
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if base64.urlsafe_b64encode(data).rstrip(b"=").decode() != text:
        raise ValueError("not canonical base64")
    return data


def _read_claims(payload: bytes) -> Mapping[str, Any]:
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError):
        raise InvalidToken("its claims are not JSON") from None
    if not isinstance(claims, dict):
        raise InvalidToken("its claims are not an object")
    return claims


def _check_times(claims: Mapping[str, Any], skew_s: int, now_ms: int) -> None:
    now_s = now_ms // 1000
    expires_s, issued_s = _seconds(claims, "exp"), _seconds(claims, "iat")
    begins_s = _seconds(claims, "nbf", -_SECONDS_MAX)
    if expires_s is None or issued_s is None:
        raise InvalidToken(f"it has no {'exp' if expires_s is None else 'iat'}")
    if now_s - skew_s >= expires_s:
        raise InvalidToken(f"it expired {now_s - int(expires_s)} s ago")
    if max(issued_s, begins_s or 0) > expires_s:
        raise InvalidToken("it ends before it begins")
    if begins_s is not None and now_s + skew_s < begins_s:
        raise InvalidToken(f"it begins in {int(begins_s) - now_s} s")
    if now_s + skew_s < issued_s:
        raise InvalidToken(f"it was issued {int(issued_s) - now_s} s from now")


def _check_audience(claims: Mapping[str, Any], expected: Sequence[str]) -> None:
    claim = claims.get("aud")
    audience = [claim] if isinstance(claim, str) else claim
    if audience is None:
        audience = []
    if not isinstance(audience, list) or not all(isinstance(one, str) for one in audience):
        raise InvalidToken("its aud is neither a text nor a list of texts")
    if expected:
        if not set(expected) & set(audience):
            raise InvalidToken(f"its audience is {claim!r:.200}, not {' or '.join(expected)}")
    elif "aud" in claims:
        raise InvalidToken(
            f"it is for {claim!r:.200}, and sasl.oauthbearer.expected.audience is not set"
        )


def _check_scopes(claims: Mapping[str, Any], name: str) -> None:
    claim = claims.get(name)
    scopes = [claim] if isinstance(claim, str) else claim if isinstance(claim, list) else []
    if not all(isinstance(one, str) and one.strip() for one in scopes):
        raise InvalidToken(f"its {name} has an entry that is not a scope")
    if len({one.strip() for one in scopes}) < len(scopes):
        raise InvalidToken(f"its {name} has a scope twice")


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidToken(f"its claim {name} is missing or empty")
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate, which no response can contain
        raise InvalidToken(f"its claim {name} is not valid text") from None
    return value.strip()


def _seconds(claims: Mapping[str, Any], name: str, least: int = 0) -> int | float | None:
    """Return a time of a token, None when it has none. Raises InvalidToken."""
    value = claims.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value <= _SECONDS_MAX:  # false for NaN, too
        raise InvalidToken(f"its {name} is not a time")
    assert isinstance(value, int | float)
    return value
