"""Logins at brokers: the client's side (Kafka's SaslClientAuthenticator); PLAIN and SCRAM.

    SaslHandshake      the mechanism
    SaslAuthenticate   the mechanism's messages; the last answer has the lifetime of the login
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable
from functools import partial

from odradek.broker.peers.connections import Connection
from odradek.broker.peers.errors import LoginRefused, MechanismRefused, PeerRefuses
from odradek.broker.security.sasl.scram_messages import (
    client_final,
    client_first_bare,
    client_proof,
    credential_of,
    read_server_first,
    salted_password,
    server_final,
)
from odradek.config.inter_broker import MECHANISM, OwnLogin
from odradek.config.sasl import PLAIN, jaas_option
from odradek.config.scram_users import ITERATIONS_MAX, ITERATIONS_MIN
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_HANDSHAKE_VERSION, _AUTHENTICATE_VERSION = 1, 2
_NONCE_BYTES = 24
# No channel binding, no authorization id; and the same in base64.
_HEADER, _BINDING = "n,,", "biws"

Say = Callable[[bytes], Awaitable[bytes]]
"""Sends a message of the mechanism, and returns the answer."""
Exchange = Callable[[Say], Awaitable[None]]
"""Exchanges the messages of a mechanism."""


async def log_in(connection: Connection, login: OwnLogin) -> int:
    """Log in by a password; return the lifetime in milliseconds, 0 for one without end.

    Raises OSError, or PeerRefuses where the login is refused.
    """
    exchange = _exchange_plain if login.mechanism == PLAIN else _exchange_scram
    return await log_in_by(connection, login.mechanism, partial(exchange, login=login))


async def log_in_by(connection: Connection, mechanism: str, exchange: Exchange) -> int:
    """Log in by a mechanism; return the lifetime, and raise errors, as log_in does."""
    listener = connection.endpoint.name
    request = SaslHandshakeRequest(mechanism=mechanism)
    chosen = await connection.exchange(request, _HANDSHAKE_VERSION, SaslHandshakeResponse)
    if chosen.error_code:
        raise MechanismRefused(
            f"serves {', '.join(chosen.mechanisms)} at its listener {listener}, not {mechanism}: "
            f"change {MECHANISM} here, or sasl.enabled.mechanisms there",
            chosen.mechanisms,
        )
    lifetime_ms = 0

    async def say(message: bytes) -> bytes:
        nonlocal lifetime_ms
        answer = await connection.exchange(
            SaslAuthenticateRequest(auth_bytes=message),
            _AUTHENTICATE_VERSION,
            SaslAuthenticateResponse,
        )
        if answer.error_code:
            raise LoginRefused(
                f"refuses the login of this broker: {answer.error_message}: check username and "
                f"password in {jaas_option(listener, mechanism)}, and that this user exists",
                answer.error_message or ErrorCode.of(answer.error_code).sentence,
            )
        lifetime_ms = answer.session_lifetime_ms
        return bytes(answer.auth_bytes)

    await exchange(say)
    return lifetime_ms


async def _exchange_plain(say: Say, login: OwnLogin) -> None:
    await say(f"\0{login.username}\0{login.password}".encode())


async def _exchange_scram(say: Say, login: OwnLogin) -> None:
    """Exchange the messages of SCRAM (RFC 5802), and check that the peer knows the user, too."""
    mechanism, nonce = login.mechanism, secrets.token_urlsafe(_NONCE_BYTES)
    bare = client_first_bare(login.username, nonce)
    sent = await say(f"{_HEADER}{bare}".encode())
    first = read_server_first(sent)
    if (
        first is None
        or not first.nonce.startswith(nonce)
        or not ITERATIONS_MIN <= first.iterations <= ITERATIONS_MAX
    ):
        raise PeerRefuses(f"does not speak {mechanism}: {sent[:80]!r}")
    # It takes milliseconds.
    salted = await asyncio.get_running_loop().run_in_executor(
        None, salted_password, mechanism, login.password, first.salt, first.iterations
    )
    unproven = f"c={_BINDING},r={first.nonce}"
    signed = f"{bare},{sent.decode()},{unproven}".encode()
    answer = await say(client_final(unproven, client_proof(mechanism, salted, signed)))
    credential = credential_of(mechanism, salted, first.salt, first.iterations)
    if not hmac.compare_digest(answer, server_final(mechanism, credential, signed)):
        raise PeerRefuses(
            f"does not prove that it knows the user of the login by {mechanism}: it is not a "
            "broker of this cluster"
        )
