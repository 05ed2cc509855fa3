"""The login of a connection, from librdkafka's properties: PLAIN, SCRAM, or a token."""

from __future__ import annotations

from functools import partial

from odradek.broker.peers.connections import LogIn
from odradek.broker.peers.logins import Say, log_in, log_in_by
from odradek.cli.refusals import Unavailable
from odradek.cli.wire.security import Properties, protocol_of
from odradek.cli.wire.tokens import Bearer, bearer_of
from odradek.config.inter_broker import MECHANISMS, OwnLogin
from odradek.config.sasl import OAUTHBEARER

_MECHANISM = "sasl.mechanism"
_END = "\x01"


def mechanism_of(properties: Properties) -> str | None:
    """Return the mechanism, None without SASL. Raises Unavailable for another mechanism."""
    if not protocol_of(properties).startswith("SASL_"):
        return None
    # Both are names of the same property, and librdkafka's default is the Java clients'.
    named = properties.get("sasl.mechanisms") or properties.get(_MECHANISM) or "GSSAPI"
    mechanism = named.upper()
    known = (*MECHANISMS, OAUTHBEARER)
    if mechanism not in known:
        raise Unavailable(
            f"this command cannot log in by {mechanism}: set {_MECHANISM} to one of "
            f"{', '.join(known)} (--client-config, -X)"
        )
    return mechanism


def login_of(properties: Properties) -> LogIn | None:
    """Return the login, None without SASL; fetch a token if one is needed. Raises CommandError."""
    mechanism = mechanism_of(properties)
    if mechanism is None:
        return None
    if mechanism == OAUTHBEARER:
        bearer = bearer_of(properties)
        return partial(
            log_in_by, mechanism=OAUTHBEARER, exchange=partial(_show_token, bearer=bearer)
        )
    user, password = properties.get("sasl.username", ""), properties.get("sasl.password", "")
    return partial(log_in, login=OwnLogin(mechanism, user, password))


async def _show_token(say: Say, bearer: Bearer) -> None:
    """Exchange the messages of OAUTHBEARER (RFC 7628 and KIP-342)."""
    extensions = "".join(f"{name}={value}{_END}" for name, value in bearer.extensions)
    refusal = await say(f"n,,{_END}auth=Bearer {bearer.token}{_END}{extensions}{_END}".encode())
    if refusal:  # the login fails after the client's answer to it
        await say(_END.encode())
