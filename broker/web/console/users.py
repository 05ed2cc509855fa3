"""The users of SCRAM, whose credentials the brokers keep.

    GET  /api/users
    POST /api/users/create {"user", "password", "mechanisms": [], "iterations"}
    POST /api/users/delete {"user", "mechanisms": []}

No answer has a password or a hash of one.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from functools import partial

from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.security.sasl.scram_messages import salted_password
from odradek.broker.security.scram_changes import MECHANISMS, NUMBERS
from odradek.broker.web.console.actor import Actor
from odradek.broker.web.console.asking import Asker, ConsoleServices, require
from odradek.broker.web.console.body import Body
from odradek.broker.web.console.plan import Action, Plan
from odradek.broker.web.requests import Parameters, Problem
from odradek.config.scram_users import ITERATIONS_MAX, ITERATIONS_MIN
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from odradek.protocol.pacing import paced

_DEFAULT_ITERATIONS = 8_192
_SALT_BYTES = 20


def make(broker: ConsoleServices, asker: Asker) -> Sequence[Action]:
    """Return the actions on users."""
    plans = UserActions(asker)
    return (
        Action("create", ("user", "password", "mechanisms", "iterations"), plans.create),
        Action("delete", ("user", "mechanisms"), plans.delete),
    )


async def show(asker: Asker, actor: Actor, parameters: Parameters) -> Mapping[str, object]:
    """Return all users and their mechanisms, for an answer. Raises Problem."""
    found = await _credentials(asker, actor, None)
    return {
        "users": [
            {
                "user": user,
                "credentials": [
                    {"mechanism": MECHANISMS[mechanism], "iterations": iterations}
                    for mechanism, iterations in sorted(found[user].items())
                ],
            }
            for user in paced(sorted(found))
        ]
    }


class UserActions:
    """Plans actions on users."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def create(self, actor: Actor, body: Body) -> Plan:
        """Create a user, or give one another password."""
        user, password, chosen = body.text("user"), body.text("password"), _mechanisms(body)
        least, most = ITERATIONS_MIN, ITERATIONS_MAX
        iterations = body.number("iterations", least, most) or _DEFAULT_ITERATIONS
        self._asker.require_right(actor, AclOperation.ALTER, ResourceKind.CLUSTER)
        known = await _credentials(self._asker, actor, user)
        loop = asyncio.get_running_loop()

        async def carry_out() -> Sequence[str]:
            for mechanism in chosen:
                salt = secrets.token_bytes(_SALT_BYTES)
                # This takes milliseconds.
                make_salted = partial(salted_password, mechanism, password, salt, iterations)
                upsertion = ScramCredentialUpsertion(
                    name=user,
                    mechanism=NUMBERS[mechanism],
                    iterations=iterations,
                    salt=salt,
                    salted_password=await loop.run_in_executor(None, make_salted),
                )
                request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
                await _alter(self._asker, actor, request)
            return [f"User {user} may log in by {' and '.join(chosen)}."]

        has_them = user in known
        verb = "Give another password to" if has_them else "Create"
        return Plan([f"{verb} user {user}, for logins by {' and '.join(chosen)}."], carry_out)

    async def delete(self, actor: Actor, body: Body) -> Plan:
        """Delete a user, or some mechanisms of one."""
        user = body.text("user")
        self._asker.require_right(actor, AclOperation.ALTER, ResourceKind.CLUSTER)
        known = (await _credentials(self._asker, actor, user)).get(user)
        if not known:
            raise Problem(404, f"there is no user {user} of SCRAM")
        chosen = [one for one in _mechanisms(body) if NUMBERS[one] in known]
        if not chosen:
            raise Problem(404, f"user {user} has no credential of these mechanisms")

        async def carry_out() -> Sequence[str]:
            for one in chosen:
                deletion = ScramCredentialDeletion(name=user, mechanism=NUMBERS[one])
                request = AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])
                await _alter(self._asker, actor, request)
            return [f"User {user} may not log in by {' or '.join(chosen)} any more."]

        warnings = ["ACLs and quotas of that name stay. Connections that are open stay open."]
        return Plan([f"Delete {' and '.join(chosen)} of user {user}."], carry_out, warnings)


async def _credentials(
    asker: Asker, actor: Actor, user: str | None
) -> Mapping[str, Mapping[int, int]]:
    """Return the iterations by user and mechanism."""
    users = None if user is None else [UserName(name=user)]
    request = DescribeUserScramCredentialsRequest(users=users)
    answer = await asker.ask(actor, request, DescribeUserScramCredentialsResponse)
    require(answer.error_code, answer.error_message)
    found = dict[str, Mapping[int, int]]()
    for one in paced(answer.results):
        if one.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        require(one.error_code, one.error_message)
        found[one.user] = {info.mechanism: info.iterations for info in one.credential_infos}
    return found


async def _alter(asker: Asker, actor: Actor, request: AlterUserScramCredentialsRequest) -> None:
    answer = await asker.ask(actor, request, AlterUserScramCredentialsResponse)
    require(answer.results[0].error_code, answer.results[0].error_message)


def _mechanisms(body: Body) -> Sequence[str]:
    """Return the mechanisms that a request names, all without any. Raises Problem."""
    chosen = list(dict.fromkeys(one.upper() for one in body.texts("mechanisms")))
    for one in chosen:
        if one not in NUMBERS:
            raise Problem(400, f"{one} is not a mechanism: use {', '.join(NUMBERS)}")
    return chosen or list(NUMBERS)
