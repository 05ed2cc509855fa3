"""Delegation tokens: secrets that stand for a principal for a while (KIP-48, KIP-373).

A token's password is the HMAC-SHA-512 of its id under the broker's key, in base64: it is never
stored, and computed where it is needed. The store has the token's owner, requester, renewers and
times. A login by SCRAM with `tokenauth=true` is checked against the SCRAM credentials of that
password; computing them takes milliseconds, so a thread does it.

Checks, their order and their codes are those of Kafka's DelegationTokenControlManager. Unlike
Kafka, the broker refuses logins by a token that has expired even before it is removed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace

from odradek.broker.errors import MetadataError, Refusal
from odradek.broker.metadata.changes import Changes
from odradek.broker.metadata.store import MetadataStore, RowChanges, Rows, SecurityKind
from odradek.broker.security.credentials import ScramCredential, TokenCredential
from odradek.broker.security.principals import Principal
from odradek.broker.security.salts import new_salt
from odradek.config.tokens import TokenConfig
from odradek.config.values import INT64_MAX
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.pacing import paced
from odradek.protocol.wire import encode_uuid

logger = logging.getLogger(__name__)

# As in ScramMechanism: the hash by the mechanism, and the fewest iterations that it allows.
# A token's password has 512 random bits, so more iterations would add no safety.
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_ITERATIONS = 4096
# The bound of a token's size in the metadata, which each change writes as a whole. Kafka's only
# bound is that of a record. Every user may create tokens: a few with a megabyte of renewers each
# would make every change, and every request for tokens, expensive.
TOKEN_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret (TokenInformation)."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    # The principals that may see the token. A set, because a token may have thousands of
    # renewers, and each request for tokens asks all tokens.
    _concerned: frozenset[Principal] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the principals that the token concerns."""
        concerned = frozenset((self.owner, self.requester, *self.renewers))
        object.__setattr__(self, "_concerned", concerned)

    def has_expired(self, now_ms: int) -> bool:
        """Return whether its expiry time or its longest lifetime has passed."""
        return self.max_ms < now_ms or self.expires_ms < now_ms

    def concerns(self, principal: Principal) -> bool:
        """Return whether a principal is its owner, requester or a renewer, and so may see it."""
        return principal in self._concerned

    def concerns_any(self, principals: Set[Principal]) -> bool:
        """Return whether it concerns at least one of some principals."""
        return not self._concerned.isdisjoint(principals)

    def may_be_renewed_by(self, principal: Principal) -> bool:
        """Return whether a principal may renew it and expire it."""
        return principal in (self.owner, *self.renewers)


class DelegationTokens:
    """All tokens; the event loop owns them. Exists only where a secret key is set."""

    def __init__(
        self,
        rows: Rows,
        config: TokenConfig,
        store: MetadataStore,
        changes: Changes,
        now_ms: Callable[[], int],
        new_id: Callable[[], bytes],
    ) -> None:
        """Load the tokens of the store."""
        self._config, self._store, self._changes = config, store, changes
        self._now_ms, self._new_id = now_ms, new_id
        self._key = (config.delegation_token_secret_key or "").encode()
        self._tokens: dict[str, Token] = {}
        self._ids: dict[bytes, str] = {}  # of tokens, by their hmac
        self._credentials: dict[str, Mapping[str, ScramCredential]] = {}
        for token_id, text in rows.items():
            self._put(_read(token_id, text))

    def __iter__(self) -> Iterator[Token]:
        """Iterate over all tokens, including expired ones that are not removed yet."""
        return iter(tuple(self._tokens.values()))

    def hmac_of(self, token_id: str) -> bytes:
        """Return the secret of a token."""
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def find(self, token_id: str) -> TokenCredential | None:
        """Return the credential of a token by its id; None when it is unknown or has expired."""
        token = self._tokens.get(token_id)
        if token is None or token.has_expired(self._now_ms()):
            return None
        if token_id not in self._credentials:  # a client logs in before `prepare` is done
            self._credentials[token_id] = _credentials_of(self.hmac_of(token_id))
        owner = replace(token.owner, by_token=True)
        return TokenCredential(owner, self._credentials[token_id], token.expires_ms)

    async def prepare(self) -> None:
        """Compute the credentials of the tokens loaded at the start, one after another."""
        for token_id in tuple(self._tokens):
            await self._prepare(token_id)

    async def create(
        self,
        owner: Principal,
        requester: Principal,
        renewers: Sequence[Principal],
        max_lifetime_ms: int,
    ) -> Token:
        """Create a token; a lifetime of 0 or less is the longest one allowed.

        Raises Refusal for more than TOKEN_BYTES_MAX, and MetadataError.
        """
        # Checked first: the names of the renewers alone are most of the row.
        if sum(len(one.kind) + len(one.name) for one in paced(renewers)) > TOKEN_BYTES_MAX:
            raise Refusal(ErrorCode.INVALID_REQUEST)
        now_ms, config = self._now_ms(), self._config
        lifetime_ms = config.delegation_token_max_lifetime_ms
        if max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, max_lifetime_ms)
        max_ms = _sum(now_ms, lifetime_ms)
        expires_ms = min(max_ms, _sum(now_ms, config.delegation_token_expiry_time_ms))
        token_id = encode_uuid(self._new_id())
        token = Token(token_id, owner, requester, tuple(renewers), now_ms, expires_ms, max_ms)
        if len(_written(token)) > TOKEN_BYTES_MAX:
            raise Refusal(ErrorCode.INVALID_REQUEST)
        await self._changes.run(lambda: self._store_token(token))
        logger.info(
            "created delegation token id=%s owner=%s requester=%s", token_id, owner, requester
        )
        return token

    async def renew(self, secret: bytes, principal: Principal, period_ms: int) -> int:
        """Renew a token; return its new expiry time. Raises Refusal or MetadataError."""
        return await self._changes.run(lambda: self._renew(secret, principal, period_ms))

    async def _renew(self, secret: bytes, principal: Principal, period_ms: int) -> int:
        now_ms, token = self._now_ms(), self._by_hmac(secret)
        if token.has_expired(now_ms):
            raise Refusal(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        if not token.may_be_renewed_by(principal):
            raise Refusal(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        lifetime_ms = self._config.delegation_token_expiry_time_ms
        if period_ms > 0:
            lifetime_ms = min(lifetime_ms, period_ms)
        return await self._end_at(token, _sum(now_ms, lifetime_ms), "renewed", principal)

    async def expire(self, secret: bytes, principal: Principal, period_ms: int) -> int:
        """Let a token expire after a period, or at once; return when it does.

        Raises Refusal or MetadataError.
        """
        return await self._changes.run(lambda: self._expire(secret, principal, period_ms))

    async def _expire(self, secret: bytes, principal: Principal, period_ms: int) -> int:
        now_ms, token = self._now_ms(), self._by_hmac(secret)
        if not token.may_be_renewed_by(principal):
            raise Refusal(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        if period_ms < 0:
            await self._remove([token])
            logger.info("removed delegation token id=%s by=%s", token.token_id, principal)
            return now_ms
        if token.has_expired(now_ms):
            raise Refusal(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        return await self._end_at(token, _sum(now_ms, period_ms), "shortened", principal)

    async def remove_expired(self) -> None:
        """Remove expired tokens; a refusal by the store is logged, and the next call retries."""
        try:
            await self._changes.run(self._remove_expired)
        except MetadataError:
            logger.exception("failed to remove expired delegation tokens")

    async def _remove_expired(self) -> None:
        now_ms = self._now_ms()
        expired = [one for one in self._tokens.values() if one.has_expired(now_ms)]
        if expired:
            await self._remove(expired)
        for token in expired:
            logger.info(
                "removed expired delegation token id=%s owner=%s", token.token_id, token.owner
            )

    def _by_hmac(self, secret: bytes) -> Token:
        token_id = self._ids.get(bytes(secret))
        if token_id is None:
            raise Refusal(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return self._tokens[token_id]

    async def _end_at(self, token: Token, end_ms: int, what: str, principal: Principal) -> int:
        ends = replace(token, expires_ms=min(token.max_ms, end_ms))
        await self._store_token(ends)
        logger.info(
            "%s delegation token id=%s by=%s expires_ms=%d",
            what, token.token_id, principal, ends.expires_ms,
        )  # fmt: skip
        return ends.expires_ms

    async def _store_token(self, token: Token) -> None:
        changes = {token.token_id: _written(token)}
        await self._store.change_security(SecurityKind.DELEGATION_TOKEN, changes)
        self._put(token)
        await self._prepare(token.token_id)

    async def _remove(self, tokens: Sequence[Token]) -> None:
        changes = dict.fromkeys((one.token_id for one in tokens), None)
        await self._store.change_security(SecurityKind.DELEGATION_TOKEN, changes)
        self.follow(changes)

    def follow(self, rows: RowChanges) -> None:
        """Take over tokens as they were stored, or removed."""
        for token_id, text in rows.items():
            if text is not None:
                self._put(_read(token_id, text))
            elif token_id in self._tokens:
                del self._tokens[token_id], self._ids[self.hmac_of(token_id)]
                self._credentials.pop(token_id, None)

    def _put(self, token: Token) -> None:
        self._tokens[token.token_id] = token
        self._ids[self.hmac_of(token.token_id)] = token.token_id

    async def _prepare(self, token_id: str) -> None:
        if token_id in self._credentials:
            return
        secret, loop = self.hmac_of(token_id), asyncio.get_running_loop()
        made = await loop.run_in_executor(None, _credentials_of, secret)
        if token_id in self._tokens:  # it may have been removed meanwhile
            self._credentials.setdefault(token_id, made)


def _credentials_of(secret: bytes) -> Mapping[str, ScramCredential]:
    """Compute a token's credentials (DelegationTokenManager.prepareScramCredentials, RFC 5802)."""
    password = base64.b64encode(secret)
    made = {}
    for mechanism, name in _HASHES.items():
        salt = new_salt()
        salted = hashlib.pbkdf2_hmac(name, password, salt, _ITERATIONS)
        client_key = hmac.digest(salted, b"Client Key", name)
        stored_key = hashlib.new(name, client_key).digest()
        server_key = hmac.digest(salted, b"Server Key", name)
        made[mechanism] = ScramCredential(salt, stored_key, server_key, _ITERATIONS)
    return made


def _sum(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, INT64_MAX)


def _written(token: Token) -> str:
    row = {
        "owner": _pair(token.owner),
        "requester": _pair(token.requester),
        "renewers": [_pair(one) for one in token.renewers],
        "issued_ms": token.issued_ms,
        "expires_ms": token.expires_ms,
        "max_ms": token.max_ms,
    }
    return json.dumps(row)


def _read(token_id: str, text: str) -> Token:
    row = json.loads(text)
    return Token(
        token_id,
        Principal(*row["owner"]),
        Principal(*row["requester"]),
        tuple(Principal(*one) for one in row["renewers"]),
        row["issued_ms"],
        row["expires_ms"],
        row["max_ms"],
    )


def _pair(principal: Principal) -> tuple[str, str]:
    return principal.kind, principal.name
