"""A delegation token from its making to its end, over the wire."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.clock import Clock
from odradek.broker.composition import Broker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_delegation_token import CreateDelegationTokenResponse
from odradek.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from odradek.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from odradek.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.broker.live import Client, client, live, on_uvloop
from tests.broker.sasl_client import choose, log_in, say, settings
from tests.broker.scram_client import ScramClient
from tests.broker.test_token_apis import create, describe

SASL = 1
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SETTINGS = {
    **settings(",".join(("PLAIN", *MECHANISMS))),
    "delegation.token.secret.key": "the-key-of-all-tokens",
}


class MovingClock(Clock):
    """The system's clock, set forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.ahead_ms


async def log_in_by_token(
    one: Client, made: CreateDelegationTokenResponse, mechanism: str, password: str = ""
) -> Any:
    """Log in by SCRAM with tokenauth; return the last answer."""
    assert (await choose(one, mechanism)).error_code == 0
    secret = password or base64.b64encode(bytes(made.hmac)).decode()
    scram = ScramClient(mechanism, made.token_id, secret, extensions=",tokenauth=true")
    first = await say(one, scram.first())
    if first.error_code:
        return first
    last = await say(one, scram.final(first.auth_bytes))
    assert last.error_code or scram.is_servers(last.auth_bytes)
    return last


async def make(broker: Broker, name: str = "alice") -> CreateDelegationTokenResponse:
    async with client(broker, listener=SASL) as one:
        await log_in(one, name)
        made: CreateDelegationTokenResponse = await one.ask(create(), version=3)
        assert made.error_code == 0
        return made


@pytest.mark.parametrize("mechanism", MECHANISMS)
@on_uvloop
async def test_a_token_logs_in_as_its_owner_for_as_long_as_it_lives(
    tmp_path: Path, mechanism: str
) -> None:
    clock = MovingClock()
    async with live(tmp_path, SETTINGS, clock=clock) as broker:
        made = await make(broker)
    # The credentials are made again after a start.
    async with live(tmp_path, SETTINGS, clock=clock) as broker:
        async with client(broker, listener=SASL) as one:
            answer = await log_in_by_token(one, made, mechanism)
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 86_400_000)
            (connection,) = broker.server.connections
            principal = connection.client.principal
            assert (str(principal), principal.by_token) == ("User:alice", True)
            told = await one.ask(DescribeDelegationTokenRequest(owners=None), version=3)
            assert told.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        async with client(broker, listener=SASL) as one:
            answer = await log_in_by_token(one, made, mechanism, "another")
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        clock.ahead_ms = 86_400_001
        async with client(broker, listener=SASL) as one:
            answer = await log_in_by_token(one, made, mechanism)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@on_uvloop
async def test_a_token_that_was_ended_logs_nobody_in(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        made = await make(broker)
        async with client(broker, listener=SASL) as one:
            await log_in(one)
            renewal = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=-1)
            assert (await one.ask(renewal, version=2)).error_code == 0
            end = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
            assert (await one.ask(end, version=2)).error_code == 0
            assert (await one.ask(describe(), version=3)).tokens == []
        async with client(broker, listener=SASL) as one:
            answer = await log_in_by_token(one, made, MECHANISMS[0])
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@on_uvloop
async def test_a_token_is_no_user_and_a_user_no_token(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        made = await make(broker)
        async with client(broker, listener=SASL) as one:
            await choose(one, MECHANISMS[0])
            secret = base64.b64encode(bytes(made.hmac)).decode()
            scram = ScramClient(MECHANISMS[0], made.token_id, secret)
            first = await say(one, scram.first())
            last = await say(one, scram.final(first.auth_bytes))
            assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@on_uvloop
async def test_expired_tokens_are_removed_by_the_job(tmp_path: Path) -> None:
    clock = MovingClock()
    soon = {"delegation.token.expiry.check.interval.ms": "1"}
    async with live(tmp_path, SETTINGS | soon, clock=clock) as broker:
        await make(broker)
        clock.ahead_ms = 86_400_001
        tokens = broker.security.tokens
        assert tokens is not None
        await tokens.remove_expired()
        assert not list(tokens)
        names = {task.get_name() for task in broker.periodic._tasks}
        assert "remove_expired" in names


@on_uvloop
async def test_without_a_key_there_are_no_tokens(tmp_path: Path) -> None:
    async with live(tmp_path, settings()) as broker, client(broker, listener=SASL) as one:
        await log_in(one)
        for version in (1, 2, 3):
            refused = await one.ask(create(), version=version)
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
