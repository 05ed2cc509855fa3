"""Delegation tokens: who may do what with one until when, and what it takes to log in."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.errors import MetadataError, Refusal
from odradek.broker.metadata.changes import Changes
from odradek.broker.metadata.store import SecurityKind
from odradek.broker.security.principals import Principal
from odradek.broker.security.tokens import TOKEN_BYTES_MAX, DelegationTokens, Token
from odradek.config.tokens import TokenConfig
from odradek.config.values import INT64_MAX
from odradek.protocol.errors import ErrorCode
from tests.broker.live import on_uvloop

KEY = "the-key-of-all-tokens"
ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


class Store:
    """Remembers rows as the store does, and may be told to refuse."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.refuses = False

    async def change_security(
        self, kind: SecurityKind, changes: Mapping[str, str | None]
    ) -> None:
        assert kind is SecurityKind.DELEGATION_TOKEN
        await asyncio.sleep(0)
        if self.refuses:
            raise MetadataError("no space left")
        for name, text in changes.items():
            self.rows.pop(name, None)
            if text is not None:
                self.rows[name] = text


class World:
    """Tokens with a clock that is set by hand."""

    def __init__(self, *, key: str = KEY, **settings: int) -> None:
        self.now_ms = 1_700_000_000_000
        self.store, self._made = Store(), 0
        self.config = TokenConfig(delegation_token_secret_key=key, **settings)
        self.tokens = self.restarted()

    def restarted(self, key: str | None = None) -> DelegationTokens:
        """Return the tokens as the next start of the broker finds them."""
        config = self.config if key is None else TokenConfig(delegation_token_secret_key=key)
        return DelegationTokens(
            dict(self.store.rows), config, self.store, Changes(), lambda: self.now_ms, self._new_id
        )  # type: ignore[arg-type]

    def _new_id(self) -> bytes:
        self._made += 1
        return self._made.to_bytes(16, "big")

    async def made(self, *renewers: Principal, lifetime_ms: int = -1) -> tuple[Token, bytes]:
        token = await self.tokens.create(ALICE, BOB, renewers, lifetime_ms)
        return token, self.tokens.hmac_of(token.token_id)


def knows(tokens: DelegationTokens, token_id: str, secret: bytes) -> bool:
    """Return whether a password would pass SCRAM, by the definition of its stored key."""
    found = tokens.find(token_id)
    if found is None:
        return False
    password = base64.b64encode(secret)
    answers = set()
    for mechanism, name in (("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")):
        one = found.credentials[mechanism]
        salted = hashlib.pbkdf2_hmac(name, password, one.salt, one.iterations)
        client_key = hmac.digest(salted, b"Client Key", name)
        answers.add(
            hashlib.new(name, client_key).digest() == one.stored_key
            and hmac.digest(salted, b"Server Key", name) == one.server_key
        )
    assert len(answers) == 1
    return answers.pop()


async def code(awaitable: object) -> ErrorCode:
    with pytest.raises(Refusal) as refused:
        await awaitable  # type: ignore[misc]
    return refused.value.code


@on_uvloop
async def test_a_token_with_more_renewers_than_the_metadata_shall_hold_is_refused() -> None:
    world = World()
    many = [Principal("User", f"u{number}") for number in range(TOKEN_BYTES_MAX // 5)]
    assert await code(world.made(*many)) is ErrorCode.INVALID_REQUEST
    assert await code(world.made(Principal("User", "u" * TOKEN_BYTES_MAX)))
    assert not list(world.tokens) and not world.store.rows
    token, _ = await world.made(*many[:1_000])
    assert token.concerns(many[999]) and not token.concerns(many[1_000])
    assert token.concerns_any({many[1_000], many[0]}) and not token.concerns_any({many[1_000]})


@on_uvloop
async def test_a_token_is_logged_in_with_by_the_hmac_of_its_id() -> None:
    world = World()
    token, secret = await world.made()
    assert secret == hmac.digest(KEY.encode(), token.token_id.encode(), "sha512")
    assert knows(world.tokens, token.token_id, secret)
    assert not knows(world.tokens, token.token_id, b"another")
    found = world.tokens.find(token.token_id)
    assert found is not None and found.owner == ALICE and found.owner.by_token
    assert found.expires_ms == token.expires_ms
    assert world.tokens.find("no-such-token") is None


@on_uvloop
async def test_tokens_outlive_a_restart_and_not_a_change_of_the_key() -> None:
    world = World()
    token, secret = await world.made(CAROL)
    again = world.restarted()
    assert list(again) == [token]
    assert knows(again, token.token_id, secret)
    assert not knows(world.restarted(key="another"), token.token_id, secret)


@on_uvloop
async def test_credentials_are_prepared_after_a_start() -> None:
    world = World()
    token, secret = await world.made()
    again = world.restarted()
    await again.prepare()
    assert set(again._credentials) == {token.token_id}
    assert knows(again, token.token_id, secret)


@pytest.mark.parametrize("name", ["", "a:b", "ü", ":", "x" * 1000])
@on_uvloop
async def test_principals_of_any_name_are_remembered(name: str) -> None:
    world = World()
    odd = Principal("User", name)
    made = await world.tokens.create(odd, odd, [odd], -1)
    assert list(world.restarted()) == [made]


@on_uvloop
async def test_an_expired_token_is_refused_before_it_is_removed() -> None:
    world = World()
    token, secret = await world.made()
    world.now_ms = token.expires_ms
    assert world.tokens.find(token.token_id) is not None
    world.now_ms += 1
    assert world.tokens.find(token.token_id) is None
    assert await code(world.tokens.renew(secret, ALICE, -1)) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert await code(world.tokens.expire(secret, ALICE, 5)) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert list(world.tokens) == [token]
    await world.tokens.remove_expired()
    assert not list(world.tokens) and not world.store.rows
    not_found = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert await code(world.tokens.renew(secret, ALICE, -1)) is not_found


@on_uvloop
async def test_the_job_leaves_what_lives(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    short, _ = await world.made(lifetime_ms=MINUTE_MS)
    long, _ = await world.made()
    world.now_ms += MINUTE_MS + 1
    world.store.refuses = True
    await world.tokens.remove_expired()
    assert list(world.tokens) == [short, long]
    assert "failed to remove expired delegation tokens" in caplog.text
    world.store.refuses = False
    await world.tokens.remove_expired()
    assert list(world.tokens) == [long]


@on_uvloop
async def test_owner_and_renewers_may_renew_and_end_but_not_who_asked() -> None:
    world = World()
    _, secret = await world.made(CAROL)
    mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert await code(world.tokens.renew(secret, BOB, -1)) is mismatch
    assert await code(world.tokens.expire(secret, BOB, -1)) is mismatch
    for one in (ALICE, CAROL):
        assert await world.tokens.renew(secret, one, -1) == world.now_ms + DAY_MS
    assert await world.tokens.expire(secret, CAROL, -1) == world.now_ms
    assert not list(world.tokens)


@on_uvloop
async def test_a_token_made_to_end_at_once_is_removed_even_when_it_has_expired() -> None:
    world = World()
    token, secret = await world.made()
    world.now_ms = token.max_ms + 1
    assert await world.tokens.expire(secret, ALICE, -1) == world.now_ms
    assert not world.store.rows


@on_uvloop
async def test_a_change_that_is_not_stored_does_not_happen() -> None:
    world = World()
    token, secret = await world.made()
    world.store.refuses = True
    for change in (
        world.tokens.create(ALICE, ALICE, [], -1),
        world.tokens.renew(secret, ALICE, 5),
        world.tokens.expire(secret, ALICE, -1),
    ):
        with pytest.raises(MetadataError):
            await change
    assert list(world.tokens) == [token]
    assert knows(world.tokens, token.token_id, secret)


@given(
    st.integers(-1, 10 * DAY_MS) | st.just(INT64_MAX),
    st.integers(1, 10 * DAY_MS) | st.just(INT64_MAX),
    st.integers(1, 10 * DAY_MS) | st.just(INT64_MAX),
    st.lists(st.integers(-1, 10 * DAY_MS) | st.just(INT64_MAX), max_size=4),
)
def test_no_token_lives_longer_than_it_may(
    wanted_ms: int, longest_ms: int, renewal_ms: int, periods: list[int]
) -> None:
    async def main() -> None:
        world = World(
            delegation_token_max_lifetime_ms=longest_ms, delegation_token_expiry_time_ms=renewal_ms
        )
        token, secret = await world.made(lifetime_ms=wanted_ms)
        bound_ms = min(longest_ms, wanted_ms) if wanted_ms > 0 else longest_ms
        assert token.max_ms == min(world.now_ms + bound_ms, INT64_MAX)
        assert token.expires_ms == min(token.max_ms, world.now_ms + renewal_ms)
        for period_ms in periods:
            world.now_ms += MINUTE_MS
            if token.max_ms < world.now_ms or min(x.expires_ms for x in world.tokens) < (
                world.now_ms
            ):
                return
            ends_ms = await world.tokens.renew(secret, ALICE, period_ms)
            lifetime_ms = min(renewal_ms, period_ms) if period_ms > 0 else renewal_ms
            assert ends_ms == min(token.max_ms, world.now_ms + lifetime_ms)

    asyncio.run(main())


@on_uvloop
async def test_neither_the_log_nor_the_store_has_a_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    world = World()
    token, secret = await world.made()
    await world.tokens.renew(secret, ALICE, -1)
    await world.tokens.expire(secret, ALICE, -1)
    assert caplog.text.count(token.token_id) == 3
    for text in (caplog.text, *world.store.rows.values(), repr(token), repr(world.config)):
        for form in (secret.hex(), base64.b64encode(secret).decode(), repr(secret), KEY):
            assert form not in text
