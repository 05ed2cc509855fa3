"""Asks a broker for the actions of its page."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import aiohttp
from confluent_kafka import Producer

from odradek.broker.composition import Broker
from tests.broker.web import bearer, url

Answered = tuple[int, Any]


async def send(
    broker: Broker, path: str, body: bytes | object, token: str | None = None, **headers: str
) -> Answered:
    """Send the body of an action; return the status and the answer.

    The admin token is shown, unless another one is given; "" stands for none.
    """
    assert broker.http.token is not None
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    shown = dict(headers)
    if token != "":
        shown |= bearer(token or broker.http.token.text)
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url(broker)}/api/{path}", data=BytesIO(data), headers=shown) as response,
    ):
        return response.status, await response.json()


async def plan(broker: Broker, path: str, **members: object) -> dict[str, Any]:
    """Return what an action will do."""
    status, answered = await send(broker, path, {**members, "dry_run": True})
    assert status == 200 and answered.pop("dry_run") is True, answered
    planned: dict[str, Any] = answered
    return planned


async def act(broker: Broker, path: str, **members: object) -> list[str]:
    """Have an action carried out; return what was done."""
    status, answered = await send(broker, path, members)
    assert status == 200 and answered["dry_run"] is False, answered
    done: list[str] = answered["done"]
    return done


async def refused(broker: Broker, path: str, **members: object) -> tuple[int, str]:
    """Return the status and the error of an action, which are those of its dry run, too."""
    status, answered = await send(broker, path, members)
    assert status >= 400, answered
    assert (status, answered) == await send(broker, path, {**members, "dry_run": True})
    return status, answered["error"]


def begin_transaction(port: int, topic: str, transactional_id: str) -> Producer:
    """Write a record in a transaction, and leave it open; for a thread."""
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "transactional.id": transactional_id,
            "log_level": 0,
        }
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, "v", "k")
    assert producer.flush(20) == 0
    return producer
