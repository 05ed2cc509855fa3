"""Users and mechanisms change while the broker runs, and what is secret of them is told nobody."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.composition import Broker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tests.broker.live import Client, client, live, on_uvloop
from tests.broker.sasl_client import USERS, choose, jaas, plain_message, say, settings
from tests.support.requests import altering

BROKER = 4
JAAS = "listener.name.sasl.plain.sasl.jaas.config"


async def change(one: Client, name: str, value: str) -> Any:
    """Set an option of this broker; return the result."""
    (result,) = (await one.ask(altering("1", {name: value}, BROKER), version=1)).responses
    return result


async def can_log_in(broker: Broker, name: str, password: str) -> bool:
    async with client(broker, listener=1) as one:
        await choose(one, "PLAIN")
        return not (await say(one, plain_message(name, password))).error_code


@on_uvloop
async def test_users_of_plain_change_while_the_broker_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with live(tmp_path, settings()) as broker, client(broker) as one:
            assert await can_log_in(broker, "alice", USERS["alice"])
            told = await change(one, JAAS, jaas({"carol": "carols-secret"}))
            assert told.error_code == 0
            assert not await can_log_in(broker, "alice", USERS["alice"])
            assert await can_log_in(broker, "carol", "carols-secret")
        async with live(tmp_path, settings()) as broker:
            assert await can_log_in(broker, "carol", "carols-secret")
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        (JAAS, "no-jaas s3cret", "no control flag"),
        (JAAS, jaas({"a": "s3cret"}).rstrip(";"), "does not end with a semicolon"),
        ("listener.name.sasl.sasl.enabled.mechanisms", "GSSAPI", "GSSAPI is enabled"),
    ],
)
@on_uvloop
async def test_settings_that_would_let_nobody_in_are_refused(
    tmp_path: Path, name: str, value: str, problem: str
) -> None:
    async with live(tmp_path, settings()) as broker, client(broker) as one:
        told = await change(one, name, value)
        assert told.error_code == ErrorCode.INVALID_REQUEST
        assert problem in told.error_message
        assert "s3cret" not in told.error_message
        assert await can_log_in(broker, "alice", USERS["alice"])


@on_uvloop
async def test_a_mechanism_is_let_in_while_the_broker_runs(tmp_path: Path) -> None:
    async with live(tmp_path, settings()) as broker, client(broker) as one:
        told = await change(
            one, "listener.name.sasl.sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256"
        )
        assert told.error_code == 0
        async with client(broker, listener=1) as other:
            assert (await choose(other, "SCRAM-SHA-256")).error_code == 0


@on_uvloop
async def test_secrets_are_not_described(tmp_path: Path) -> None:
    more = {"odradek.scram.users": "SCRAM-SHA-256=[name=dora,password=doras-secret]"}
    async with live(tmp_path, settings() | more) as broker, client(broker) as one:
        await change(one, JAAS, jaas({"carol": "carols-secret"}))
        resource = DescribeConfigsResource(
            resource_type=BROKER, resource_name="1", configuration_keys=None
        )
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=True
        )
        answer = await one.ask(request, version=4)
        told = {config.name: config for config in answer.results[0].configs}
        assert told["odradek.scram.users"].is_sensitive
        assert told[JAAS].is_sensitive
        values = [
            text
            for config in told.values()
            for text in (config.value, *(synonym.value for synonym in config.synonyms))
        ]
        assert not [text for text in values if text and "-secret" in text]
