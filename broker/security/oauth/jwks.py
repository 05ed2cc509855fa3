"""The public keys of a provider, read from a JSON Web Key Set (RFC 7517).

Each key is for certain algorithms only, which follow from its type and its `alg`: a signature is
checked by an algorithm that its key allows, never by one that only the token names. So no public
key ever serves as the secret of an HMAC, and there is no "none".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import Algorithm, ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import PyJWTError

from odradek.dataclass import dataclass

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
# Elliptic curves, each with its one algorithm (RFC 7518 section 3.4, RFC 8037).
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_EDWARDS = ("Ed25519", "Ed448")
ALGORITHMS = frozenset((*_RSA, *_CURVES.values(), "EdDSA"))
_RSA_BITS_MIN = 2048  # RFC 7518 section 3.3
# The longest key that OpenSSL accepts; it takes 1.5 ms a signature.
_RSA_BITS_MAX = 16_384
# Public exponents are 65537 nearly everywhere; one as long as its key takes 6 ms a signature.
_RSA_EXPONENT_BITS_MAX = 32
# The members that a key is read from. Others are ignored: from a private exponent alone, PyJWT
# would compute the factors. That takes 8 s for a key of 16,384 bits, and blocks the process.
_PUBLIC_MEMBERS = ("kty", "crv", "n", "e", "x", "y")
_KEYS_MAX = 1000
# The keys that are tried for one token; most tokens name their key. Kafka tries one.
_TRIED_MAX = 10


class BadKeySet(Exception):
    """The fetched data is not a JWKS, or has no usable key."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key, its id in tokens, and the algorithms that it allows."""

    key_id: str | None
    algorithms: tuple[str, ...]
    key: Any


@dataclass(frozen=True, slots=True)
class KeySet:
    """The usable keys, and why others are not usable."""

    keys: Sequence[VerificationKey]
    passed_over: Sequence[str] = ()

    def candidates(self, algorithm: str, key_id: str | None) -> Sequence[VerificationKey]:
        """Return the keys that may have signed a token with this header.

        For a token that names no key, these are the first ten keys that allow its algorithm.
        """
        fitting = (
            one
            for one in self.keys
            if algorithm in one.algorithms and key_id in (None, one.key_id)
        )
        return list(islice(fitting, _TRIED_MAX))


def read_key_set(data: bytes) -> KeySet:
    """Read a JWKS. Raises BadKeySet, whose message has no key material."""
    try:
        key_set = json.loads(data)
    except (ValueError, RecursionError):
        raise BadKeySet("it is not JSON") from None
    entries = key_set.get("keys") if isinstance(key_set, dict) else None
    if not isinstance(entries, list):
        raise BadKeySet("it is not a JSON Web Key Set: there is no list named keys")
    keys: list[VerificationKey] = []
    passed_over: list[str] = []
    for number, entry in enumerate(entries[:_KEYS_MAX]):
        try:
            keys += _read_key(entry)
        except _Unusable as error:
            key_id = entry.get("kid") if isinstance(entry, dict) else None
            passed_over.append(f"key {number} (kid {key_id!r:.100}): {error}")
    if not keys:
        why = f": {'; '.join(passed_over[:3])}" if passed_over else ""
        raise BadKeySet(f"it has no key that can check signatures{why}")
    return KeySet(keys, passed_over)


class _Unusable(Exception):
    pass


def _read_key(entry: Any) -> Iterator[VerificationKey]:
    if not isinstance(entry, dict):
        raise _Unusable("it is not an object")
    operations = entry.get("key_ops")
    if entry.get("use", "sig") != "sig":
        return  # a key for another use
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        return
    found, algorithms = _kind_of(entry)
    if "alg" in entry:
        algorithms = tuple(one for one in algorithms if one == entry["alg"])
    if not algorithms:
        raise _Unusable(f"its alg {entry['alg']!r:.100} does not fit its type")
    key_id = entry.get("kid")
    yield VerificationKey(
        key_id if isinstance(key_id, str) else None, algorithms, _public(found, entry)
    )


def _kind_of(entry: Mapping[str, Any]) -> tuple[type[Algorithm], tuple[str, ...]]:
    kind, curve = entry.get("kty"), entry.get("crv")
    if kind == "RSA":
        return RSAAlgorithm, _RSA
    if kind == "EC" and isinstance(curve, str) and curve in _CURVES:
        return ECAlgorithm, (_CURVES[curve],)
    if kind == "OKP" and curve in _EDWARDS:
        return OKPAlgorithm, ("EdDSA",)
    if kind == "oct":
        raise _Unusable("it is a shared secret, not a public key")
    raise _Unusable(f"keys of type {kind!r:.100} and curve {curve!r:.100} are not supported")


def _public(algorithm: Any, entry: Mapping[str, Any]) -> Any:
    members = {name: entry[name] for name in _PUBLIC_MEMBERS if name in entry}
    try:
        key = algorithm.from_jwk(members)
    except (PyJWTError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise _Unusable(f"it cannot be read ({type(error).__name__})") from None
    if algorithm is RSAAlgorithm:
        _check_rsa(key)
    return key


def _check_rsa(key: RSAPublicKey) -> None:
    if key.key_size < _RSA_BITS_MIN:
        raise _Unusable(f"its RSA key has {key.key_size} bits, less than {_RSA_BITS_MIN}")
    if key.key_size > _RSA_BITS_MAX:
        raise _Unusable(f"its RSA key has {key.key_size} bits, more than {_RSA_BITS_MAX}")
    bits = key.public_numbers().e.bit_length()
    if bits > _RSA_EXPONENT_BITS_MAX:
        most = _RSA_EXPONENT_BITS_MAX
        raise _Unusable(f"the exponent of its RSA key has {bits} bits, more than {most}")
