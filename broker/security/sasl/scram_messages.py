"""The messages of SCRAM, and its arithmetic (RFC 5802; Kafka's ScramMessages, ScramFormatter).

    client first    n,[a=<authorization id>],n=<name>,r=<client nonce>[,<extension>=<value>]*
    server first    r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client final    c=<channel binding>,r=<both nonces>[,<extension>=<value>]*,p=<proof>
    server final    v=<server signature>

Channel binding is not offered, as in Kafka; names are ASCII, as in Kafka.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from odradek.broker.security.credentials import ScramCredential
from odradek.broker.security.sasl.exchange import NAME
from odradek.config.sasl import SCRAM_SHA_256, SCRAM_SHA_512
from odradek.dataclass import dataclass

_HASHES: Mapping[str, str] = MappingProxyType({SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"})

# Possessive, as NAME is: no piece can begin with a character that the next piece begins with.
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]++"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*+(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSION = r",[A-Za-z]++=[\x01-\x2b\x2d-\x7f]++"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<asked_for>{NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>(?:{_EXTENSION})*+))"
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}})"
    rf"(?:{_EXTENSION})*+"
)
# Without the proof, which looks like another extension and is the last one. Up to Python 3.11.4 a
# possessive group may lose its place when an alternative of it has matched in part: where one is
# repeated here, nothing follows it.
_UNPROVEN = re.compile(
    rf"c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE})(?:{_EXTENSION})*+"
)
_PROOF = re.compile(_BASE64)


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The client's first message; the proof covers `header` and `bare`."""

    header: str
    bare: str
    name: str
    asked_for: str
    nonce: str
    extensions: str

    def extension(self, name: str) -> str:
        """Return the value of the last extension of a name; "" if there is none."""
        _, found, rest = self.extensions.rpartition(f",{name}=")
        return rest.partition(",")[0] if found else ""


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """The client's last message; `unproven` is the text before the proof."""

    unproven: str
    binding: bytes
    nonce: str
    proof: bytes


@dataclass(frozen=True, slots=True)
class ServerFirst:
    """The server's first message."""

    nonce: str
    salt: bytes
    iterations: int


def read_client_first(message: bytes) -> ClientFirst | None:
    """Read the client's first message; return None when it is malformed."""
    match = _match(_CLIENT_FIRST, message)
    if match is None:
        return None
    return ClientFirst(
        match["header"],
        match["bare"],
        _name(match["name"]),
        _name(match["asked_for"] or ""),
        match["nonce"],
        match["extensions"],
    )


def read_client_final(message: bytes) -> ClientFinal | None:
    """Read the client's last message; return None when it is malformed."""
    unproven, separator, proof = message.rpartition(b",p=")
    match, proven = _match(_UNPROVEN, unproven), _match(_PROOF, proof)
    if not separator or match is None or proven is None:
        return None
    binding = base64.b64decode(match["binding"])
    return ClientFinal(match[0], binding, match["nonce"], base64.b64decode(proof))


def read_server_first(message: bytes) -> ServerFirst | None:
    """Read the server's first message; return None when it is malformed."""
    match = _match(_SERVER_FIRST, message)
    if match is None:
        return None
    salt = base64.b64decode(match["salt"])
    return ServerFirst(match["nonce"], salt, int(match["iterations"]))


def client_first_bare(name: str, nonce: str) -> str:
    """Write the client's first message without its header."""
    return f"n={name.replace('=', '=3D').replace(',', '=2C')},r={nonce}"


def client_final(unproven: str, proof: bytes) -> bytes:
    """Write the client's last message."""
    return f"{unproven},p={base64.b64encode(proof).decode()}".encode()


def server_first(nonce: str, credential: ScramCredential) -> str:
    """Write the server's first message."""
    salt = base64.b64encode(credential.salt).decode()
    return f"r={nonce},s={salt},i={credential.iterations}"


def server_final(mechanism: str, credential: ScramCredential, signed: bytes) -> bytes:
    """Write the server's last message, which proves that the server knows the user, too."""
    return b"v=" + base64.b64encode(_hmac(mechanism, credential.server_key, signed))


def is_proven(mechanism: str, credential: ScramCredential, signed: bytes, proof: bytes) -> bool:
    """Return whether a proof shows that the client knows the password."""
    signature = _hmac(mechanism, credential.stored_key, signed)
    if len(proof) != len(signature):
        return False
    client_key = bytes(a ^ b for a, b in zip(signature, proof, strict=True))
    return hmac.compare_digest(_hash(mechanism)(client_key).digest(), credential.stored_key)


def client_proof(mechanism: str, salted: bytes, signed: bytes) -> bytes:
    """Return the proof that a client knows a password, from the salted password (RFC 5802)."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    signature = _hmac(mechanism, _hash(mechanism)(client_key).digest(), signed)
    return bytes(a ^ b for a, b in zip(client_key, signature, strict=True))


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Salt a password, which takes milliseconds (Hi of RFC 5802; without SASLprep, as Kafka)."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(
    mechanism: str, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential to store for a salted password."""
    stored_key = _hash(mechanism)(_hmac(mechanism, salted, b"Client Key")).digest()
    server_key = _hmac(mechanism, salted, b"Server Key")
    return ScramCredential(salt, stored_key, server_key, iterations)


def hash_size_bytes(mechanism: str) -> int:
    """Return the size of a mechanism's keys in bytes."""
    return _hash(mechanism)().digest_size


def _hash(mechanism: str) -> Callable[..., hashlib._Hash]:
    found: Callable[..., hashlib._Hash] = getattr(hashlib, _HASHES[mechanism])
    return found


def _hmac(mechanism: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, _HASHES[mechanism])


def _match(pattern: re.Pattern[str], message: bytes) -> re.Match[str] | None:
    try:
        return pattern.fullmatch(message.decode("ascii"))
    except UnicodeDecodeError:
        return None


def _name(text: str) -> str:
    return text.replace("=2C", ",").replace("=3D", "=")
