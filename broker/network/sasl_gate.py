"""Guards a connection of a SASL listener: before its client logs in, and when its login ends.

Before the login nothing else is served (login.py), messages are small, and time is limited. A
login that fails is answered after a delay (connection.failed.authentication.delay.ms), then the
connection is closed. Where a login has an end (KIP-368), the gate stays: it lets the client log
in again, and closes the connection at the first other request after that end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from odradek.broker.counters.metrics import Metrics
from odradek.broker.errors import CloseConnection
from odradek.broker.security.sasl.listener import SaslListener
from odradek.broker.security.sasl.login import (
    HANDSHAKE_KEY,
    AnswerVersions,
    Login,
    LoginRefused,
    Session,
)
from odradek.protocol.encoding import Chunk
from odradek.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from odradek.broker.network.connection import Connection

logger = logging.getLogger(__name__)

_HANDSHAKE = HANDSHAKE_KEY.to_bytes(2, "big")
_SIZE_OPTION = "sasl.server.max.receive.size"
# Kafka's MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS.
_AGAIN_INTERVAL_S = 1.0


class SaslGate:
    """Guards one connection; the event loop owns it."""

    def __init__(
        self,
        listener: SaslListener,
        connection: Connection,
        answer_versions: AnswerVersions,
        metrics: Metrics,
    ) -> None:
        """Let nothing through, and begin to count the time."""
        self._listener, self._connection = listener, connection
        self._answer_versions, self._metrics = answer_versions, metrics
        self._loop = asyncio.get_running_loop()
        self._session: Session | None = None
        self._ends_at_s = 0.0
        self._begun_again_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_refused = False
        connection.client.on_lost["sasl"] = self._lose
        self._login: Login | None = self._begin(None)

    def take(self, frame: memoryview) -> Awaitable[list[Chunk] | None] | None:
        """Take a frame that is for the gate; return None for a frame to serve.

        Raises CloseConnection when the login has ended.
        """
        if self._login is None:
            if frame[: len(_HANDSHAKE)] == _HANDSHAKE and self._may_begin_again():
                self._begun_again_s = self._loop.time()
                self._login = self._begin(self._session)
            elif self._loop.time() >= self._ends_at_s:
                self._count("expired_connections_killed")
                raise CloseConnection("its login has expired, and it did not log in again")
            else:
                return None
        return self._answer(self._login, frame)

    def refuse(self, error: ProtocolError) -> bool:
        """Log bytes that are not a frame; return False when the client has logged in already."""
        if self._login is None:
            return False
        self._note_refusal(str(error), self._login)
        self._connection.abort()
        return True

    async def _answer(self, login: Login, frame: memoryview) -> list[Chunk] | None:
        try:
            reply = await login.take(frame)
        except LoginRefused as refused:
            self._note_refusal(str(refused), login)
            self._connection.finish()
            delay_ms = self._listener.config.connection_failed_authentication_delay_ms
            await asyncio.sleep(delay_ms / 1000)
            return refused.chunks
        if reply.session is not None:
            self._open(reply.session)
        return reply.chunks

    def _lose(self) -> None:
        """Log the refusal of a client that has gone before it was answered."""
        self._stop_timer()
        if self._login is not None and self._login.refused and not self._is_refused:
            self._note_refusal(self._login.refused, self._login)
        self._login = None  # with the client's messages, which may be half a megabyte

    def _begin(self, before: Session | None) -> Login:
        config = self._listener.config
        self._connection.limit_frames(config.sasl_server_max_receive_size, _SIZE_OPTION)
        self._stop_timer()
        timeout_ms = config.odradek_authentication_timeout_ms
        self._timer = self._loop.call_later(timeout_ms / 1000, self._time_out, timeout_ms)
        return Login(self._listener, self._answer_versions, before)

    def _open(self, session: Session) -> None:
        """Let the client in, or continue with its new session."""
        self._stop_timer()
        again = "" if self._session is None else "re"
        self._count(f"successful_{again}authentication")
        if not again and not session.gets_lifetime:
            self._count("successful_authentication_no_reauth")
        connection = self._connection
        logger.debug(
            "logged in peer=%s listener=%s mechanism=%s principal=%s",
            connection.peer,
            self._listener.name,
            session.mechanism,
            session.principal,
        )
        connection.client.principal = session.principal
        connection.limit_frames()
        self._session, self._login = session, None
        if session.lifetime_ms is None:
            connection.gate = None
            del connection.client.on_lost["sasl"]
        else:
            self._ends_at_s = self._loop.time() + session.lifetime_ms / 1000

    def _may_begin_again(self) -> bool:
        begun_s = self._begun_again_s
        return not begun_s or self._loop.time() - begun_s >= _AGAIN_INTERVAL_S

    def _time_out(self, timeout_ms: int) -> None:
        login = self._login
        if login is not None and not self._connection.is_lost:
            reason = f"no login within odradek.authentication.timeout.ms={timeout_ms}"
            self._note_refusal(reason, login)
            self._connection.abort()

    def _note_refusal(self, reason: str, login: Login) -> None:
        self._is_refused = True
        self._stop_timer()
        again = "" if self._session is None else "re"
        self._count(f"failed_{again}authentication")
        logger.warning(
            "refused %s peer=%s listener=%s mechanism=%s reason=%s",
            login.word,
            self._connection.peer,
            self._listener.name,
            login.mechanism or "none",
            reason,
        )

    def _count(self, what: str) -> None:
        self._metrics.authentications[self._listener.name, what] += 1

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

