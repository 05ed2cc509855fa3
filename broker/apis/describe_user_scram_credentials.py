"""DescribeUserScramCredentials (50): the users that can log in by SCRAM, and their mechanisms.

Version 0 only.
"""

from __future__ import annotations

from collections import Counter

from odradek.broker.context import RequestContext
from odradek.broker.orders.java import hash_order
from odradek.broker.security.authorization import AclOperation
from odradek.broker.security.scram_changes import NUMBERS
from odradek.broker.security.scram_users import ScramUsers
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from odradek.protocol.pacing import paced

_TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "
_UNKNOWN = "Attempt to describe a user credential that does not exist: "


def handle(
    services: Services, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Return the mechanisms and iterations of the requested users, or of all (ScramImage)."""
    if not context.may_to_cluster(AclOperation.DESCRIBE):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        # As in Kafka each user gets this result without a sentence; the first code would do.
        refused = DescribeUserScramCredentialsResult(
            user="", error_code=denied, error_message=None, credential_infos=[]
        )
        return DescribeUserScramCredentialsResponse(
            error_code=denied, error_message=None, results=[refused] * len(request.users or ())
        )
    users = services.security.scram_users
    asked = Counter(one.name for one in paced(request.users or ()))
    asked = asked or Counter({user: 1 for _, user in users})
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE,
        error_message="",  # as in Kafka, though null is allowed
        results=[
            _described(users, user, asked[user])
            for user in paced(hash_order(asked, pace=paced))
        ],
    )


def _described(users: ScramUsers, user: str, count: int) -> DescribeUserScramCredentialsResult:
    code, message = ErrorCode.NONE, ""
    infos = _infos(users, user) if count == 1 else []
    if count > 1:
        code, message = ErrorCode.DUPLICATE_RESOURCE, f"{_TWICE}{user}"
    elif not infos:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, f"{_UNKNOWN}{user}"
    return DescribeUserScramCredentialsResult(
        user=user, error_code=code, error_message=message, credential_infos=infos
    )


def _infos(users: ScramUsers, user: str) -> list[CredentialInfo]:
    return [
        CredentialInfo(mechanism=number, iterations=found.iterations)
        for mechanism, number in NUMBERS.items()
        if (found := users.find(mechanism, user)) is not None
    ]
