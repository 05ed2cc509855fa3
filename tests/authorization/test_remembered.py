"""What was allowed before is looked up for all topics of a request at once, and never too long."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from broker.authorized_operations import Operation
from broker.context import RequestContext
from broker.security import audit
from broker.security.acls import Acl, AclKind, AclOperation, PatternType, Permission
from broker.security.authorization import ResourceKind
from broker.security.authorization_counts import AuthorizationCounts
from broker.security.authorizer import AclAuthorizer
from broker.server import Listener

NAMES = ["a", "b", "a", "c"]


def acl(name: str) -> Acl:
    return Acl(
        AclKind.TOPIC,
        name,
        PatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.READ,
        Permission.ALLOW,
    )


def context(authorizer: AclAuthorizer) -> RequestContext:
    broker: Any = SimpleNamespace(security=SimpleNamespace(authorizer=authorizer))
    listener = Listener("PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 9092)
    return RequestContext(broker, listener, "/127.0.0.1", 12, 1, "a-client", 1)


def test_a_right_that_is_taken_is_gone_at_the_next_request() -> None:
    counts = AuthorizationCounts()
    authorizer = AclAuthorizer([acl("a"), acl("b")], set(), counts, allows_by_default=False)
    asking = context(authorizer)
    for _ in range(3):
        assert asking.permitted(Operation.READ, ResourceKind.TOPIC, NAMES) == {"a", "b"}
        assert asking.permitted(Operation.READ, ResourceKind.TOPIC, NAMES[:3]) == {"a", "b"}
        assert not asking.permitted(Operation.WRITE, ResourceKind.TOPIC, NAMES)
    assert (counts.allowed, counts.denied) == (3 * 4, 3 * 4)
    authorizer.replace([acl("b")])
    assert asking.permitted(Operation.READ, ResourceKind.TOPIC, NAMES[:3]) == {"b"}


def test_the_audit_log_has_each_answer_that_is_read(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = AclAuthorizer(
        [acl("a")], set(), AuthorizationCounts(), allows_by_default=False
    )
    asking = context(authorizer)
    with caplog.at_level(logging.DEBUG, audit.LOGGER):
        for _ in range(2):
            asking.permitted(Operation.READ, ResourceKind.TOPIC, ["a", "a"])
    told = [one.getMessage() for one in caplog.records]
    assert len(told) == 2
    assert all("is Allowed operation = READ" in one for one in told)
    assert all("Topic:LITERAL:a" in one and "resourceRefCount = 2" in one for one in told)
