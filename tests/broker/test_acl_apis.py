"""DescribeAcls, CreateAcls and DeleteAcls, and what an authorizer makes of them."""

from __future__ import annotations

import logging
import stat
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.apis import create_acls, delete_acls, describe_acls
from odradek.broker.context import ConnectedClient
from odradek.broker.errors import CloseConnection, MetadataError
from odradek.broker.metadata.sqlite import SqliteMetadata
from odradek.broker.metadata.store import SecurityKind
from odradek.broker.security import audit
from odradek.broker.security.acls import Acl, AclFilter, PatternType, Permission, from_row, to_row
from odradek.broker.security.authorization import (
    CLUSTER_NAME,
    AclOperation,
    Requester,
    ResourceKind,
)
from odradek.broker.security.principals import Principal
from odradek.config.acl import STANDARD_AUTHORIZER
from odradek.config.errors import ConfigError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.describe_acls import DescribeAclsRequest
from tests.broker.admin import Admin, admin, versions

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:root"}
ROOT = ConnectedClient(principal=Principal("User", "root"))
ANN = ConnectedClient(principal=Principal("User", "ann"))


def creation(**changes: Any) -> AclCreation:
    fields = {
        "resource_type": ResourceKind.TOPIC,
        "resource_name": "prices",
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:ann",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": Permission.ALLOW,
    }
    return AclCreation(**{**fields, **changes})


def everything(**changes: Any) -> dict[str, Any]:
    fields = {
        "resource_type_filter": ResourceKind.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": Permission.ANY,
    }
    return {**fields, **changes}


async def create(
    broker: Admin, *creations: AclCreation, version: int = 3, client: ConnectedClient = ROOT
) -> list[Any]:
    request = CreateAclsRequest(creations=list(creations))
    response = await broker.call(create_acls.handle, request, version, client)
    return [(one.error_code, one.error_message) for one in response.results]


async def delete(
    broker: Admin, *filters: dict[str, Any], version: int = 3, client: ConnectedClient = ROOT
) -> list[Any]:
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**one) for one in filters])
    response = await broker.call(delete_acls.handle, request, version, client)
    return list(response.filter_results)


async def listed(broker: Admin, version: int = 3, client: ConnectedClient = ROOT) -> Any:
    request = DescribeAclsRequest(**everything())
    return await broker.call(describe_acls.handle, request, version, client)


async def names(broker: Admin) -> list[str]:
    return [one.resource_name for one in (await listed(broker)).resources]


def may(broker: Admin, who: ConnectedClient, operation: AclOperation, name: str) -> bool:
    requester = Requester(who.principal, "127.0.0.1", 1, 17, "a-client", "PLAINTEXT")
    assert broker.security.authorizer is not None
    return broker.security.authorizer.may(requester, operation, ResourceKind.TOPIC, name)


@versions(30)
async def test_entries_outlive_a_restart_and_count_at_once(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path, SETTINGS) as broker:
        assert not may(broker, ANN, AclOperation.READ, "prices")
        assert await create(broker, creation(), creation(), version=version) == [(0, "")] * 2
        assert may(broker, ANN, AclOperation.READ, "prices")
        assert may(broker, ANN, AclOperation.DESCRIBE, "prices")
        assert not may(broker, ANN, AclOperation.WRITE, "prices")
    async with admin(tmp_path, SETTINGS) as broker:
        assert may(broker, ANN, AclOperation.READ, "prices")
        response = await listed(broker, version)
        (resource,) = response.resources
        assert (resource.resource_type, resource.resource_name) == (ResourceKind.TOPIC, "prices")
        (entry,) = resource.acls
        assert (entry.principal, entry.host, entry.operation) == ("User:ann", "*", 3)
        (gone,) = await delete(broker, everything(resource_name_filter="prices"), version=version)
        assert (gone.error_code, gone.error_message) == (0, None)
        assert [one.principal for one in gone.matching_acls] == ["User:ann"]
        assert not may(broker, ANN, AclOperation.READ, "prices")
    async with admin(tmp_path, SETTINGS) as broker:
        assert not await names(broker)


async def test_an_entry_that_cannot_be_keeps_no_other_from_it(tmp_path: Path) -> None:
    async with admin(tmp_path, SETTINGS) as broker:
        outcomes = await create(
            broker,
            creation(resource_type=ResourceKind.CLUSTER),
            creation(resource_name=""),
            creation(resource_type=9),
            creation(resource_pattern_type=9),
            creation(operation=77),
            creation(permission_type=9),
            creation(principal="ann"),
            creation(resource_type=ResourceKind.CLUSTER, resource_name=CLUSTER_NAME),
        )
        assert [message for _, message in outcomes] == [
            "The only valid name for the CLUSTER resource is kafka-cluster",
            "Invalid empty resource name",
            "Invalid resourceType UNKNOWN",
            "Invalid patternType UNKNOWN",
            "Invalid operation UNKNOWN",
            "Invalid permissionType UNKNOWN",
            "Could not parse principal from `ann` (no colon is present separating the principal "
            "type from the principal name)",
            "",
        ]
        assert {code for code, _ in outcomes[:-1]} == {ErrorCode.INVALID_REQUEST}
        assert await names(broker) == [CLUSTER_NAME]


async def test_filters_that_overlap_each_tell_what_they_mean(tmp_path: Path) -> None:
    async with admin(tmp_path, SETTINGS) as broker:
        wanted = [creation(resource_name=name) for name in ("a", "ab", "b")]
        await create(broker, *wanted)
        results = await delete(
            broker,
            everything(resource_name_filter="a"),
            everything(pattern_type_filter=9),
            everything(permission_type=9),
            everything(resource_name_filter="ab", pattern_type_filter=PatternType.MATCH),
            everything(resource_name_filter="a"),
        )
        found = [[one.resource_name for one in result.matching_acls] for result in results]
        assert found == [["a"], [], [], ["ab"], ["a"]]
        assert [one.error_message for one in results] == [
            None, "Unknown patternFilter.", "Unknown entryFilter.", None, None,
        ]  # fmt: skip
        assert await names(broker) == ["b"]


async def test_filters_that_mean_the_same_are_answered_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with admin(tmp_path, SETTINGS) as broker:
        await create(broker, *(creation(resource_name=f"{n}-{'x' * 90}") for n in range(100)))
        looked: list[Acl] = []
        matches = AclFilter.matches

        def look(which: AclFilter, acl: Acl) -> bool:
            looked.append(acl)
            return matches(which, acl)

        monkeypatch.setattr(AclFilter, "matches", look)
        with pytest.raises(CloseConnection, match="again and again"):
            await delete(broker, *(2_000 * [everything()]))
        assert len(await names(broker)) == 100
        looked.clear()
        results = await delete(broker, *(10 * [everything()]))
        assert [len(one.matching_acls) for one in results] == 10 * [100]
        assert len(looked) <= 100  # each entry once at most
        assert not await names(broker)


async def test_one_request_changes_no_more_than_kafkas_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.broker.security.acl_changes._CHANGED_MAX", 2)
    async with admin(tmp_path, SETTINGS) as broker:
        three = [creation(resource_name=name) for name in ("a", "b", "c")]
        too_many = (
            ErrorCode.POLICY_VIOLATION,
            "Unable to perform excessively large batch operation.",
        )
        assert await create(broker, *three) == [too_many] * 3
        assert not await names(broker)
        for one in three:
            await create(broker, one)
        first, rest = await delete(broker, everything(resource_name_filter="a"), everything())
        assert first.error_code == 0
        assert rest.error_code == ErrorCode.INVALID_REQUEST
        assert rest.error_message == "Cannot remove more than 2 acls in a single delete operation."
        assert await names(broker) == ["b", "c"]


class _FullDisk:
    """A store that cannot write ACLs any more."""

    def __init__(self, store: SqliteMetadata) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def change_security(self, kind: SecurityKind, changes: Any) -> None:
        raise MetadataError("odradek.db: no space left on device")


async def test_changes_that_the_disk_refuses_do_not_count(tmp_path: Path) -> None:
    async with admin(tmp_path, SETTINGS) as broker:
        await create(broker, creation())
    async with admin(tmp_path, SETTINGS, wrap=_FullDisk) as broker:
        refused = ErrorCode.KAFKA_STORAGE_ERROR
        wanted = creation(operation=AclOperation.WRITE)
        assert [code for code, _ in await create(broker, wanted)] == [refused]
        (result,) = await delete(broker, everything())
        assert (result.error_code, result.matching_acls) == (refused, [])
        assert may(broker, ANN, AclOperation.READ, "prices")
        assert not may(broker, ANN, AclOperation.WRITE, "prices")
        assert await names(broker) == ["prices"]


async def test_clients_without_the_right_can_neither_change_nor_list_entries(
    tmp_path: Path,
) -> None:
    async with admin(tmp_path, SETTINGS) as broker:
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await create(broker, creation())
        assert [code for code, _ in await create(broker, creation(), client=ANN)] == [refused]
        (result,) = await delete(broker, everything(), client=ANN)
        assert (result.error_code, result.matching_acls) == (refused, [])
        response = await listed(broker, client=ANN)
        assert (response.error_code, response.resources) == (refused, [])
        assert await names(broker) == ["prices"]
        on_cluster = {"resource_type": ResourceKind.CLUSTER, "resource_name": CLUSTER_NAME}
        await create(broker, creation(**on_cluster, operation=AclOperation.ALTER))
        # To alter implies to describe.
        assert (await listed(broker, client=ANN)).error_code == 0
        assert [code for code, _ in await create(broker, creation(), client=ANN)] == [0]


@pytest.mark.parametrize(
    ("settings", "is_warned"),
    [({}, True), ({"super.users": "User:x"}, False),
     ({"allow.everyone.if.no.acl.found": "true"}, False)],
)  # fmt: skip
async def test_a_broker_that_lets_nobody_do_anything_says_so(
    tmp_path: Path, settings: dict[str, str], is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with admin(tmp_path, {"authorizer.class.name": STANDARD_AUTHORIZER, **settings}):
        lines = [one.getMessage() for one in caplog.records]
    assert any("nobody may do anything" in one for one in lines) == is_warned


async def test_without_an_authorizer_there_are_none(tmp_path: Path) -> None:
    async with admin(tmp_path, SETTINGS) as broker:
        await create(broker, creation())
    disabled = ErrorCode.SECURITY_DISABLED
    async with admin(tmp_path) as broker:
        refusal = (disabled, "No Authorizer is configured.")
        assert await create(broker, creation(), client=ANN) == [refusal]
        (result,) = await delete(broker, everything(), client=ANN)
        assert (result.error_code, result.error_message) == refusal
        response = await listed(broker, client=ANN)
        assert response.error_code == disabled
        assert response.error_message == "No Authorizer is configured on the broker"
    async with admin(tmp_path, SETTINGS) as broker:
        assert await names(broker) == ["prices"]  # they have waited


async def test_an_entry_of_a_later_release_stops_the_start(tmp_path: Path) -> None:
    async with admin(tmp_path, SETTINGS) as broker:
        later = {'["PLANET", "a", "LITERAL", "User:a", "*", "READ", "DENY"]': ""}
        await broker.store.change_security(SecurityKind.ACL, later)
    with pytest.raises(MetadataError, match=r"PLANET.*A later release may have written it"):
        async with admin(tmp_path, SETTINGS):
            pass


async def test_the_value_unknown_in_an_entry_or_filter_closes_the_connection(
    tmp_path: Path,
) -> None:
    async with admin(tmp_path, SETTINGS) as broker:
        with pytest.raises(CloseConnection):
            await create(broker, creation(), creation(operation=0))
        with pytest.raises(CloseConnection):
            await delete(broker, everything(permission_type=0))
        assert not await names(broker)


async def test_denied_access_is_logged_and_allowed_access_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, audit.LOGGER)
    async with admin(tmp_path, SETTINGS) as broker:
        await create(broker, creation())
        caplog.clear()
        assert may(broker, ANN, AclOperation.READ, "prices")
        assert not may(broker, ANN, AclOperation.WRITE, "prices")
    (line,) = [one.getMessage() for one in caplog.records if one.name == audit.LOGGER]
    assert line == (
        "Principal = User:ann is Denied operation = WRITE from host = 127.0.0.1 on resource = "
        "Topic:LITERAL:prices for request = Fetch with resourceRefCount = 1 based on rule "
        "DefaultDeny"
    )


async def test_nobody_writes_lines_of_his_own(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    liar = ConnectedClient(principal=Principal("User", "x\nPrincipal = User:root"))
    async with admin(tmp_path, SETTINGS | {"odradek.audit.log": str(file)}) as broker:
        # Its text has the principal, too.
        rule = creation(principal=str(liar.principal), permission_type=Permission.DENY)
        assert await create(broker, rule) == [(0, "")]
        assert not may(broker, liar, AclOperation.READ, "prices")
        assert not may(broker, liar, AclOperation.READ, "a\u2028\r\nPrincipal = User:root \u00e9")
        broker.security.close()
    by_rule, by_default = file.read_text().splitlines()
    assert "Principal = User:x\\nPrincipal = User:root is Denied" in by_rule
    assert "principal=User:x\\nPrincipal = User:root" in by_rule
    assert "LITERAL:a\\u2028\\r\\nPrincipal = User:root \u00e9 for" in by_default


async def test_the_audit_log_may_have_a_file_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "audit.log"
    async with admin(tmp_path, SETTINGS | {"odradek.audit.log": str(file)}) as broker:
        assert not may(broker, ANN, AclOperation.WRITE, "prices")
        file.rename(tmp_path / "audit.log.1")  # as logrotate does
        assert not may(broker, ANN, AclOperation.READ, "prices")
        broker.security.close()
    for one in (file, tmp_path / "audit.log.1"):
        assert stat.S_IMODE(one.stat().st_mode) == 0o600
    assert "User:ann is Denied operation = WRITE" in (tmp_path / "audit.log.1").read_text()
    assert "User:ann is Denied operation = READ" in file.read_text()
    assert not [one for one in caplog.records if one.name == audit.LOGGER]
    with pytest.raises(ConfigError, match=r"odradek\.audit\.log: cannot write .*/no/where: No"):
        async with admin(tmp_path, SETTINGS | {"odradek.audit.log": f"{tmp_path}/no/where"}):
            pass


async def test_decisions_are_counted(tmp_path: Path) -> None:
    async with admin(tmp_path, SETTINGS) as broker:
        metrics = broker.security.metrics
        assert may(broker, ROOT, AclOperation.READ, "prices")
        for _ in range(2):  # the second is remembered
            assert not may(broker, ANN, AclOperation.READ, "prices")
        counts = metrics.authorizations
        assert (counts.allowed, counts.denied, counts.denied_per_minute) == (1, 2, 0)
        await metrics.turn_minute()
        assert (counts.allowed_per_minute, counts.denied_per_minute) == (1, 2)
        await metrics.turn_minute()
        assert (counts.allowed_per_minute, counts.denied_per_minute) == (0, 0)


@pytest.mark.parametrize("row", ["", "{}", "[]", "7", '["TOPIC", "a"]', "x"])
def test_a_row_that_is_no_entry_is_refused(row: str) -> None:
    with pytest.raises(ValueError, match="not an access control entry"):
        from_row(row)


def test_an_entry_comes_out_of_its_row_as_it_went_in() -> None:
    for name in ("a", "\u00e9", '"', "\\", "\U0001f600"):
        acl = Acl(ResourceKind.GROUP, name, PatternType.PREFIXED, f"User:{name}", "*",
                  AclOperation.ALL, Permission.DENY)  # fmt: skip
        assert from_row(to_row(acl)) == acl
