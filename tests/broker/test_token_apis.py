"""The APIs of delegation tokens: who may ask at all, and whose tokens one may see."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.apis import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from odradek.broker.context import ConnectedClient
from odradek.broker.security.authorization import AclOperation, Requester, ResourceKind
from odradek.broker.security.principals import ANONYMOUS, Principal
from odradek.broker.security.tokens import TOKEN_BYTES_MAX
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from odradek.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from odradek.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from odradek.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.broker.admin import NOW_MS, Admin, admin, versions
from tests.broker.live import on_uvloop

SETTINGS = {"delegation.token.secret.key": "the-key-of-all-tokens"}
ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
HANDLERS = {
    CreateDelegationTokenRequest: create_delegation_token.handle,
    RenewDelegationTokenRequest: renew_delegation_token.handle,
    ExpireDelegationTokenRequest: expire_delegation_token.handle,
    DescribeDelegationTokenRequest: describe_delegation_token.handle,
}
REQUESTS = (
    CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, renewers=[], max_lifetime_ms=-1
    ),
    RenewDelegationTokenRequest(hmac=b"none", renew_period_ms=-1),
    ExpireDelegationTokenRequest(hmac=b"none", expiry_time_period_ms=-1),
    DescribeDelegationTokenRequest(owners=None),
)


@dataclass
class Rules:
    """An authorizer that allows what is in a set."""

    allowed: set[tuple[AclOperation, ResourceKind, str]]

    def may(
        self,
        requester: Requester,
        operation: AclOperation,
        kind: ResourceKind,
        name: str,
        *,
        logs_allowed: bool = True,
        logs_denied: bool = True,
    ) -> bool:
        return (operation, kind, name) in self.allowed

    def may_any(self, requester: Requester, operation: AclOperation, kind: ResourceKind) -> bool:
        return False


def create(
    owner: Principal | None = None, *renewers: Principal, lifetime_ms: int = -1
) -> CreateDelegationTokenRequest:
    return CreateDelegationTokenRequest(
        owner_principal_type=owner and owner.kind,
        owner_principal_name=owner and owner.name,
        renewers=[
            CreatableRenewers(principal_type=one.kind, principal_name=one.name) for one in renewers
        ],
        max_lifetime_ms=lifetime_ms,
    )


def describe(*owners: Principal) -> DescribeDelegationTokenRequest:
    wanted = [
        DescribeDelegationTokenOwner(principal_type=one.kind, principal_name=one.name)
        for one in owners
    ]
    return DescribeDelegationTokenRequest(owners=wanted or None)


async def ask(
    broker: Admin,
    request: Any,
    principal: Principal = ALICE,
    *,
    version: int | None = None,
    protocol: str = "SASL_PLAINTEXT",
) -> Any:
    last = 2 if isinstance(request, REQUESTS[1].__class__ | REQUESTS[2].__class__) else 3
    return await broker.call(
        HANDLERS[type(request)],
        request,
        last if version is None else version,
        ConnectedClient(principal=principal),
        protocol,
    )


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize(
    ("principal", "protocol", "code"),
    [
        (ANONYMOUS, "PLAINTEXT", ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (ANONYMOUS, "SSL", ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (
            Principal("User", "alice", by_token=True),
            "SASL_SSL",
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        ),
        (Principal("User", "CN=alice"), "SSL", ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
        (ALICE, "SASL_PLAINTEXT", ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
    ],
)
@on_uvloop
async def test_a_client_that_has_not_proved_its_identity_may_not_ask(
    tmp_path: Path, request_: Any, principal: Principal, protocol: str, code: ErrorCode
) -> None:
    async with admin(tmp_path, {"delegation.token.secret.key": ""}) as broker:
        answer = await ask(broker, request_, principal, protocol=protocol)
        assert answer.error_code == code


@versions(38)
@on_uvloop
async def test_a_token_is_made_for_who_asks(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path, SETTINGS) as broker:
        made = await ask(broker, create(None, BOB), version=version)
        assert (made.error_code, made.principal_name) == (0, "alice")
        assert (made.issue_timestamp_ms, made.expiry_timestamp_ms) == (
            NOW_MS,
            NOW_MS + 86_400_000,
        )
        assert made.max_timestamp_ms == NOW_MS + 7 * 86_400_000
        assert len(made.token_id) == 22 and len(made.hmac) == 64
        assert broker.security.token_credentials.find(made.token_id) is not None
        (described,) = (await ask(broker, describe(), version=version)).tokens
        assert (described.token_id, described.hmac) == (made.token_id, made.hmac)
        assert [one.principal_name for one in described.renewers] == ["bob"]


@on_uvloop
async def test_a_token_for_somebody_else_must_be_allowed(tmp_path: Path) -> None:
    async with admin(tmp_path, SETTINGS) as broker:
        broker.security.authorizer = Rules(set())
        refused = await ask(broker, create(BOB))
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (await ask(broker, create(ALICE))).error_code == 0
        rule = (AclOperation.CREATE_TOKENS, ResourceKind.USER, "User:bob")
        broker.security.authorizer = Rules({rule})
        made = await ask(broker, create(BOB))
        assert made.error_code == 0
        assert (made.principal_name, made.token_requester_principal_name) == ("bob", "alice")


@on_uvloop
async def test_only_users_renew(tmp_path: Path) -> None:
    async with admin(tmp_path, SETTINGS) as broker:
        refused = await ask(broker, create(None, BOB, Principal("Group", "staff")))
        assert refused.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
        assert not (await ask(broker, describe())).tokens


@on_uvloop
async def test_one_sees_ones_own_tokens_and_those_that_one_may_describe(tmp_path: Path) -> None:
    async with admin(tmp_path, SETTINGS) as broker:
        alices = (await ask(broker, create(None, CAROL))).token_id
        bobs = (await ask(broker, create(), BOB)).token_id

        async def seen(principal: Principal, *owners: Principal) -> set[str]:
            answer = await ask(broker, describe(*owners), principal)
            assert answer.error_code == 0
            return {one.token_id for one in answer.tokens}

        broker.security.authorizer = Rules(set())
        assert await seen(ALICE) == await seen(CAROL) == {alices}
        assert await seen(BOB) == {bobs}
        assert await seen(BOB, ALICE, CAROL) == set()
        assert await seen(Principal("User", "eve")) == set()
        by_token = (AclOperation.DESCRIBE, ResourceKind.DELEGATION_TOKEN, bobs)
        by_owner = (AclOperation.DESCRIBE_TOKENS, ResourceKind.USER, "User:bob")
        for rule in (by_token, by_owner):
            broker.security.authorizer = Rules({rule})
            assert await seen(ALICE) == {alices, bobs}
            assert await seen(ALICE, BOB) == {bobs}
        nobody = DescribeDelegationTokenRequest(owners=[])
        assert (await ask(broker, nobody)).tokens == []


@versions(39)
@on_uvloop
async def test_a_token_is_renewed_and_ended(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path, SETTINGS) as broker:
        made = await ask(broker, create())
        renew = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=5_000)
        renewed = await ask(broker, renew, version=version)
        assert (renewed.error_code, renewed.expiry_timestamp_ms) == (0, NOW_MS + 5_000)
        refused = await ask(broker, renew, BOB, version=version)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        end = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
        ended = await ask(broker, end, version=version)
        assert (ended.error_code, ended.expiry_timestamp_ms) == (0, NOW_MS)
        gone = await ask(broker, end, version=version)
        assert gone.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


@on_uvloop
async def test_tokens_are_there_after_a_restart(tmp_path: Path) -> None:
    async with admin(tmp_path, SETTINGS) as broker:
        made = await ask(broker, create())
    async with admin(tmp_path, SETTINGS) as broker:
        (described,) = (await ask(broker, describe())).tokens
        assert (described.token_id, described.hmac) == (made.token_id, made.hmac)
        assert broker.security.token_credentials.find(made.token_id) is not None


@on_uvloop
async def test_a_token_with_too_many_renewers_is_refused(tmp_path: Path) -> None:
    too_many = TOKEN_BYTES_MAX // len(BOB.kind + BOB.name) + 1
    async with admin(tmp_path, SETTINGS) as broker:
        answer = await ask(broker, create(None, *[BOB] * too_many))
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert (await ask(broker, describe())).tokens == []
