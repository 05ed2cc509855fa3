"""Users of SCRAM are made, changed, told and removed, and are the same after a restart."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any, cast

import pytest

from odradek.broker.composition import Broker
from odradek.broker.errors import MetadataError
from odradek.broker.security.scram_users import ScramUsers
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from odradek.protocol.messages.metadata import MetadataRequest
from tests.broker.live import Client, client, live, on_uvloop
from tests.broker.sasl_client import choose, say, settings
from tests.broker.scram_client import HASHES, ScramClient, salted

SHA_256, SHA_512 = 1, 2
NAMES = {SHA_256: "SCRAM-SHA-256", SHA_512: "SCRAM-SHA-512"}
SALT = b"some salt of a user"


def upsert(
    name: str, password: str, mechanism: int = SHA_256, iterations: int = 4096
) -> ScramCredentialUpsertion:
    told = NAMES.get(mechanism, NAMES[SHA_256])
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=SALT,
        salted_password=salted(told, password, SALT, iterations),
    )


async def alter(
    one: Client,
    *upsertions: ScramCredentialUpsertion,
    delete: tuple[tuple[str, int], ...] = (),
) -> dict[str, int]:
    deletions = [ScramCredentialDeletion(name=name, mechanism=kind) for name, kind in delete]
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=list(upsertions))
    answer = await one.ask(request, version=0)
    return {result.user: result.error_code for result in answer.results}


async def describe(one: Client, *names: str) -> dict[str, Any]:
    users = [UserName(name=name) for name in names] or None
    answer = await one.ask(DescribeUserScramCredentialsRequest(users=users), version=0)
    assert answer.error_code == 0
    return {
        result.user: result.error_code
        or {info.mechanism: info.iterations for info in result.credential_infos}
        for result in answer.results
    }


async def can_log_in(broker: Broker, name: str, password: str, mechanism: int = SHA_256) -> bool:
    """Log in by SCRAM, check the server's proof, and ask for something."""
    scram = ScramClient(NAMES[mechanism], name, password)
    async with client(broker, listener=1) as one:
        assert (await choose(one, scram.mechanism)).error_code == 0
        first = await say(one, scram.first())
        assert first.error_code == 0
        last = await say(one, scram.final(first.auth_bytes))
        if last.error_code:
            assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert last.error_message == (
                "Authentication failed during authentication due to invalid credentials with "
                f"SASL mechanism {scram.mechanism}"
            )
            return False
        assert scram.is_servers(last.auth_bytes)
        return bool((await one.ask(MetadataRequest(topics=None), version=12)).brokers)


@on_uvloop
async def test_a_user_logs_in_from_the_moment_it_is_made_until_it_is_removed(
    tmp_path: Path,
) -> None:
    both = settings(",".join(HASHES))
    async with live(tmp_path, both) as broker, client(broker) as one:
        assert not await can_log_in(broker, "alice", "secret")
        assert await alter(one, upsert("alice", "secret")) == {"alice": 0}
        assert await can_log_in(broker, "alice", "secret")
        assert not await can_log_in(broker, "alice", "wrong")
        assert not await can_log_in(broker, "alice", "secret", SHA_512)
        assert await alter(one, upsert("alice", "other", iterations=5000)) == {"alice": 0}
        assert await can_log_in(broker, "alice", "other")
        assert not await can_log_in(broker, "alice", "secret")
        assert await alter(one, upsert("alice", "third", SHA_512)) == {"alice": 0}
        assert await describe(one) == {"alice": {SHA_256: 5000, SHA_512: 4096}}
        assert await alter(one, delete=(("alice", SHA_256),)) == {"alice": 0}
        assert not await can_log_in(broker, "alice", "other")
        assert await can_log_in(broker, "alice", "third", SHA_512)


@on_uvloop
async def test_the_messages_of_one_client_let_no_other_in(tmp_path: Path) -> None:
    scram = ScramClient("SCRAM-SHA-256", "alice", "secret")
    async with live(tmp_path, settings("SCRAM-SHA-256")) as broker, client(broker) as one:
        await alter(one, upsert("alice", "secret"))
        async with client(broker, listener=1) as heard:
            await choose(heard, scram.mechanism)
            final = scram.final((await say(heard, scram.first())).auth_bytes)
            assert (await say(heard, final)).error_code == 0
        async with client(broker, listener=1) as replaying:
            await choose(replaying, scram.mechanism)
            assert (await say(replaying, scram.first())).error_code == 0
            answer = await say(replaying, final)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await replaying.is_closed()


@on_uvloop
async def test_users_are_there_after_a_restart_and_who_is_not_looks_the_same(
    tmp_path: Path,
) -> None:
    both = settings("SCRAM-SHA-256")

    async def salt_of(broker: Broker, name: str) -> bytes:
        async with client(broker, listener=1) as one:
            await choose(one, "SCRAM-SHA-256")
            first = await say(one, ScramClient("SCRAM-SHA-256", name, "x").first())
            return bytes(first.auth_bytes).split(b",", 1)[1]

    async with live(tmp_path, both) as broker, client(broker) as one:
        await alter(one, upsert("alice", "secret"))
        salt = await salt_of(broker, "nobody")
    async with live(tmp_path, both) as broker, client(broker) as one:
        assert await can_log_in(broker, "alice", "secret")
        assert await salt_of(broker, "nobody") == salt
        assert await describe(one) == {"alice": {SHA_256: 4096}}


@on_uvloop
async def test_impossible_changes_are_refused_for_each_user(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        await alter(one, upsert("alice", "secret"))
        answer = await alter(
            one,
            upsert("few", "x", iterations=4095),
            upsert("many", "x", iterations=16385),
            upsert("strange", "x", mechanism=3),
            upsert("", "x"),
            upsert("twice", "x"),
            upsert("twice", "x", SHA_512),
            upsert("fine", "x", iterations=16384),
            upsert("alice", "x"),
            delete=(("alice", SHA_256), ("nobody", SHA_256)),
        )
        assert answer == {
            "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "strange": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "twice": ErrorCode.DUPLICATE_RESOURCE,
            "fine": 0,
            "alice": ErrorCode.DUPLICATE_RESOURCE,
            "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        }
        assert await describe(one) == {"alice": {SHA_256: 4096}, "fine": {SHA_256: 16384}}
        assert await describe(one, "nobody", "alice", "alice") == {
            "nobody": ErrorCode.RESOURCE_NOT_FOUND,
            "alice": ErrorCode.DUPLICATE_RESOURCE,
        }


def test_a_row_that_cannot_be_read_is_reported_at_the_start() -> None:
    with pytest.raises(MetadataError, match="SCRAM-SHA-256:alice cannot be read"):
        ScramUsers({"SCRAM-SHA-256:alice": '{"salt": "s3cret"}'}, cast("Any", None))


@on_uvloop
async def test_the_first_users_come_from_the_settings_and_stay_as_they_were_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = 'SCRAM-SHA-256=[name=alice,password="first"]; SCRAM-SHA-512=[name=bob,password=b0b]'
    both = settings(",".join(HASHES)) | {"odradek.scram.users": wanted}
    with caplog.at_level(logging.DEBUG):
        async with live(tmp_path, both) as broker, client(broker) as one:
            assert await can_log_in(broker, "alice", "first")
            assert await can_log_in(broker, "bob", "b0b", SHA_512)
            await alter(one, upsert("alice", "changed"))
        async with live(tmp_path, both) as broker:
            assert await can_log_in(broker, "alice", "changed")
            assert not await can_log_in(broker, "alice", "first")
            bob = broker.security.scram_users.find("SCRAM-SHA-512", "bob")
            # As Kafka's tools salt, and as who does not exist is salted.
            assert bob is not None and re.fullmatch(rb"[1-9a-z][0-9a-z]{20,25}", bob.salt)
            assert int(bob.salt, 36) < 2**130
    assert "wrote SCRAM credential user='alice'" in caplog.text
    assert "b0b" not in caplog.text
