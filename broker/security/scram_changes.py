"""Plans the changes of an AlterUserScramCredentials request (ScramControlManager).

The numbers of the mechanisms on the wire are those of Kafka's admin client (KIP-554).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from odradek.broker.errors import Refusal, as_value
from odradek.broker.security.credentials import ScramCredential
from odradek.broker.security.sasl.scram_messages import credential_of
from odradek.config.sasl import SCRAM_SHA_256, SCRAM_SHA_512
from odradek.config.scram_users import ITERATIONS_MAX, ITERATIONS_MIN
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.pacing import paced

MECHANISMS: Mapping[int, str] = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
NUMBERS: Mapping[str, int] = {name: number for number, name in MECHANISMS.items()}

_TWICE = "A user credential cannot be altered twice in the same request"
Key = tuple[str, str]
Alteration = ScramCredentialDeletion | ScramCredentialUpsertion


@dataclass(frozen=True, slots=True)
class ScramPlan:
    """The credentials to write, by mechanism and user, and the users that are refused."""

    changes: dict[Key, ScramCredential | None] = field(default_factory=dict)
    refused: dict[str, Refusal] = field(default_factory=dict)


def alterations(request: AlterUserScramCredentialsRequest) -> list[Alteration]:
    """Return all alterations of a request, deletions first."""
    return [*request.deletions, *request.upsertions]


def plan_changes(
    request: AlterUserScramCredentialsRequest, exists: Callable[[str, str], bool]
) -> ScramPlan:
    """Decide each user's part of a request; `exists` says whether a credential exists."""
    plan = ScramPlan()
    planned: dict[str, Key] = {}  # by user
    for one in paced(alterations(request)):
        if one.name in plan.refused:
            continue
        try:
            if one.name in planned:
                del plan.changes[planned[one.name]]
                raise Refusal(ErrorCode.DUPLICATE_RESOURCE, _TWICE)
            key = planned[one.name] = _mechanism(one), one.name
            plan.changes[key] = _wanted(key, one, exists)
        except Refusal as refusal:
            plan.refused[one.name] = as_value(refusal)
    return plan


def _wanted(
    key: Key,
    one: Alteration,
    exists: Callable[[str, str], bool],
) -> ScramCredential | None:
    if isinstance(one, ScramCredentialUpsertion):
        return _made(key[0], one)
    if not exists(*key):
        message = "Attempt to delete a user credential that does not exist"
        raise Refusal(ErrorCode.RESOURCE_NOT_FOUND, message)
    return None


def _mechanism(one: Alteration) -> str:
    if not one.name:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = MECHANISMS.get(one.mechanism)
    if mechanism is None:
        raise Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return mechanism


def _made(mechanism: str, one: ScramCredentialUpsertion) -> ScramCredential:
    if one.iterations < ITERATIONS_MIN:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if one.iterations > ITERATIONS_MAX:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not one.salted_password:
        # Java's HMAC fails with an empty key, and Kafka returns an unknown error.
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Empty salted password")
    return credential_of(mechanism, one.salted_password, one.salt, one.iterations)
