"""What was allowed before is looked up for all topics of a request at once, and never too long."""

from __future__ import annotations

import asyncio
import logging

import pytest

from odradek.broker.context import RequestContext
from odradek.broker.counters.authorization import AuthorizationCounts
from odradek.broker.hosts.listener import Listener
from odradek.broker.security import audit
from odradek.broker.security.acls import Acl, PatternType, Permission
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.security.authorizer import AclAuthorizer
from tests.broker.live import on_uvloop

NAMES = ["a", "b", "a", "c"]


def acl(name: str) -> Acl:
    return Acl(
        ResourceKind.TOPIC,
        name,
        PatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.READ,
        Permission.ALLOW,
    )


def context(authorizer: AclAuthorizer) -> RequestContext:
    listener = Listener("PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 9092)
    return RequestContext(authorizer, listener, "/127.0.0.1", 12, 1, "a-client", 1)


def test_a_right_that_is_taken_is_gone_at_the_next_request() -> None:
    counts = AuthorizationCounts()
    authorizer = AclAuthorizer([acl("a"), acl("b")], set(), counts, allows_by_default=False)
    asking = context(authorizer)
    for _ in range(3):
        assert asking.permitted(AclOperation.READ, ResourceKind.TOPIC, NAMES) == {"a", "b"}
        assert asking.permitted(AclOperation.READ, ResourceKind.TOPIC, NAMES[:3]) == {"a", "b"}
        assert not asking.permitted(AclOperation.WRITE, ResourceKind.TOPIC, NAMES)
    assert (counts.allowed, counts.denied) == (3 * 4, 3 * 4)
    authorizer.change(removed=[acl("a")])
    assert asking.permitted(AclOperation.READ, ResourceKind.TOPIC, NAMES[:3]) == {"b"}


def test_the_audit_log_has_each_answer_that_is_read(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = AclAuthorizer(
        [acl("a")], set(), AuthorizationCounts(), allows_by_default=False
    )
    asking = context(authorizer)
    with caplog.at_level(logging.DEBUG, audit.LOGGER):
        for _ in range(2):
            asking.permitted(AclOperation.READ, ResourceKind.TOPIC, ["a", "a"])
    lines = [one.getMessage() for one in caplog.records]
    assert len(lines) == 2
    assert all("is Allowed operation = READ" in one for one in lines)
    assert all("Topic:LITERAL:a" in one and "resourceRefCount = 2" in one for one in lines)


@pytest.mark.parametrize("asks_one_by_one", [False, True])
@on_uvloop
async def test_one_request_writes_so_many_lines_and_then_a_number(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, asks_one_by_one: bool
) -> None:
    monkeypatch.setattr(audit, "_LINES_MAX", 3)
    monkeypatch.setattr(audit, "_LEFT_OUT_AFTER_S", 0.0)
    own = {f"own-{number}" for number in range(9)}
    authorizer = AclAuthorizer(
        map(acl, own), set(), AuthorizationCounts(), allows_by_default=False
    )
    asking = context(authorizer)
    names = [*own, *(f"other-{number}" for number in range(20))]
    with caplog.at_level(logging.DEBUG, audit.LOGGER):
        for _ in range(2):
            if asks_one_by_one:
                for name in names:
                    asking.may(AclOperation.READ, ResourceKind.TOPIC, name)
            else:
                assert asking.permitted(AclOperation.READ, ResourceKind.TOPIC, names) == own
            await _until_logged()
        assert not context(authorizer).permitted(AclOperation.READ, ResourceKind.TOPIC, ["last"])
    for level, counts in ((logging.DEBUG, (6, 9)), (logging.INFO, (17, 20))):
        lines = [one.getMessage() for one in caplog.records if one.levelno == level]
        who = "Principal = User:ANONYMOUS from host = 127.0.0.1 for request = Fetch: "
        assert [line for line in lines if "left out" in line] == [
            f"{who}{count} more decisions are left out" for count in counts
        ]
        assert sum("operation = READ" in line for line in lines) == 3 + (level == logging.INFO)


async def _until_logged() -> None:
    """Let the loop run what is due: it is run in the order in which it became so."""
    due = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.0, due.set_result, None)
    await due
