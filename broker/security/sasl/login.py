"""One login over a connection, from its first frame to its last (Kafka's SaslServerAuthenticator).

    INITIAL ---- ApiVersions ----> HANDSHAKE ---- SaslHandshake ----> MESSAGES ----> a session
       |                                                                 ^
       +------------------------- SaslHandshake --------------------------+

After SaslHandshake v0, the mechanism's messages are frames of their own; after v1, they come in
SaslAuthenticate. A repeated login (KIP-368) begins with SaslHandshake, and must have the same
principal and the same mechanism. All other requests are refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from odradek.broker.api_table import API_VERSIONS as SERVED
from odradek.broker.orders.java import hash_order
from odradek.broker.security.principals import Principal
from odradek.broker.security.sasl.exchange import AuthenticationFailed, Exchange, Step
from odradek.broker.security.sasl.listener import SaslListener
from odradek.dataclass import dataclass
from odradek.protocol.compiler import decode_prefix
from odradek.protocol.encoding import Chunk
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.footprint import ALLOWANCE_BYTES
from odradek.protocol.frames import (
    API_VERSIONS_KEY,
    SIZE,
    RequestHeader,
    encode_response,
    read_request_header,
    skip_header_tags,
)
from odradek.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from odradek.protocol.schema import info_of

HANDSHAKE_KEY, AUTHENTICATE_KEY = 17, 36

# After an error, clients ask again in a version of the answer; Kafka has no bound.
_VERSIONS_REFUSED_MAX = 10
# The number of characters of a client's text in the log.
_SHOWN_MAX = 40


class _State(Enum):
    INITIAL = auto()  # SaslHandshake or ApiVersions
    HANDSHAKE = auto()  # SaslHandshake
    MESSAGES = auto()  # the mechanism's messages
    OTHER_MECHANISM = auto()  # chosen for a repeated login: the next message is refused


@dataclass(frozen=True, slots=True)
class Session:
    """A login: principal, mechanism, and lifetime in milliseconds (None is without end)."""

    principal: Principal
    mechanism: str
    lifetime_ms: int | None
    # Whether the client gets the lifetime (SaslAuthenticate v1), so that it logs in again.
    gets_lifetime: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to send, and the session, once the client has logged in."""

    chunks: list[Chunk]
    session: Session | None = None


class LoginRefused(Exception):
    """The login has failed: the connection is closed, after an answer if there is one."""

    def __init__(self, reason: str, chunks: list[Chunk] | None = None) -> None:
        super().__init__(reason)
        self.chunks = chunks


# Answers ApiVersions: the chunks, and whether the answer has no error.
AnswerVersions = Callable[[memoryview, RequestHeader], tuple[list[Chunk], bool]]


class Login:
    """The state of one login; its gate owns it."""

    def __init__(
        self,
        listener: SaslListener,
        answer_versions: AnswerVersions,
        before: Session | None = None,
    ) -> None:
        """Begin; `before` is the session of a client that logs in again."""
        self._listener, self._answer_versions, self._before = listener, answer_versions, before
        self._state = _State.INITIAL if before is None else _State.HANDSHAKE
        self._exchange: Exchange | None = None
        self.mechanism = ""
        # Why the mechanism refuses the client, before the exchange is over.
        self.refused = ""
        self._is_framed = False
        self._versions_refused = 0

    @property
    def word(self) -> str:
        """The kind of this login, in Kafka's words."""
        return "authentication" if self._before is None else "re-authentication"

    async def take(self, frame: memoryview) -> Reply:
        """Take a frame. Raises LoginRefused."""
        if self._state is _State.OTHER_MECHANISM:
            assert self._before is not None
            raise LoginRefused(
                f"SASL mechanism {self.mechanism!r} requested by client is not supported for "
                f"re-authentication of mechanism {self._before.mechanism!r}"
            )
        try:
            if self._state is _State.MESSAGES:
                return await (self._framed(frame) if self._is_framed else self._bare(frame))
            return self._opening(frame)
        except ProtocolError as error:
            raise LoginRefused(f"no SASL request: {error}") from error

    def _opening(self, frame: memoryview) -> Reply:
        header = read_request_header(frame)
        if header.api_key == API_VERSIONS_KEY:
            if self._state is not _State.INITIAL:
                raise LoginRefused("ApiVersions where SaslHandshake was expected")
            chunks, is_answered = self._answer_versions(frame, header)
            if is_answered:
                self._state = _State.HANDSHAKE
                return Reply(chunks)
            self._versions_refused += 1
            if self._versions_refused > _VERSIONS_REFUSED_MAX:
                raise LoginRefused(
                    f"ApiVersions failed more than {_VERSIONS_REFUSED_MAX} times", chunks
                )
            return Reply(chunks)
        if header.api_key != HANDSHAKE_KEY:
            raise LoginRefused(_unexpected(header, "SaslHandshake"))
        return self._handshake(header, _decode(SaslHandshakeRequest, frame, header))

    def _handshake(self, header: RequestHeader, request: SaslHandshakeRequest) -> Reply:
        enabled = self._listener.enabled
        is_enabled = request.mechanism in enabled
        code = ErrorCode.NONE if is_enabled else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        response = SaslHandshakeResponse(error_code=code, mechanisms=hash_order(enabled))
        chunks = encode_response(response, header.api_version, header.correlation_id)
        if not is_enabled:
            shown = request.mechanism[:_SHOWN_MAX]
            raise LoginRefused(f"SASL mechanism {shown!r} is not enabled", chunks)
        self.mechanism = request.mechanism
        if self._before is not None and self._before.mechanism != self.mechanism:
            self._state = _State.OTHER_MECHANISM
            return Reply(chunks)
        self._exchange = self._listener.begin(self.mechanism)
        self._is_framed = header.api_version >= 1
        self._state = _State.MESSAGES
        return Reply(chunks)

    async def _framed(self, frame: memoryview) -> Reply:
        header = read_request_header(frame)
        if header.api_key == HANDSHAKE_KEY:
            request = _decode(SaslHandshakeRequest, frame, header)
            answer = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
            chunks = encode_response(answer, header.api_version, header.correlation_id)
            shown = request.mechanism[:_SHOWN_MAX]
            raise LoginRefused(f"a second SaslHandshake, with {shown!r}", chunks)
        if header.api_key != AUTHENTICATE_KEY:
            raise LoginRefused(_unexpected(header, "SaslAuthenticate"))
        request = _decode(SaslAuthenticateRequest, frame, header)

        def encoded(response: SaslAuthenticateResponse) -> list[Chunk]:
            return encode_response(response, header.api_version, header.correlation_id)

        try:
            step, session = await self._step(
                request.auth_bytes, gets_lifetime=header.api_version >= 1
            )
        except AuthenticationFailed as failed:
            refusal = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=str(failed) or self._invalid_credentials(),
                auth_bytes=b"",
            )
            raise LoginRefused(failed.reason, encoded(refusal)) from failed
        return Reply(
            encoded(
                SaslAuthenticateResponse(
                    error_code=ErrorCode.NONE,
                    error_message="",  # as Kafka, though null is allowed
                    auth_bytes=step.reply,
                    session_lifetime_ms=(session and session.lifetime_ms) or 0,
                )
            ),
            session,
        )

    async def _bare(self, frame: memoryview) -> Reply:
        try:
            step, session = await self._step(bytes(frame), gets_lifetime=False)
        except AuthenticationFailed as failed:
            raise LoginRefused(failed.reason) from failed
        return Reply([SIZE.pack(len(step.reply)) + step.reply], session)

    async def _step(self, message: bytes, *, gets_lifetime: bool) -> tuple[Step, Session | None]:
        """Pass a message to the mechanism. Raises AuthenticationFailed."""
        assert self._exchange is not None
        taken = self._exchange.step(message)
        step = await taken if inspect.isawaitable(taken) else taken
        self.refused = step.refused
        if step.done is None:
            return step, None
        self._check_unchanged(step.done.principal)
        lifetime_ms = self._listener.lifetime_ms(self.mechanism, step.done.expires_ms)
        return step, Session(step.done.principal, self.mechanism, lifetime_ms, gets_lifetime)

    def _check_unchanged(self, principal: Principal) -> None:
        before = self._before
        if before is not None and principal != before.principal:
            old = f"{before.principal.kind}.{before.principal.name}"
            raise AuthenticationFailed(
                f"Cannot change principals during re-authentication from {old}: "
                f"{principal.kind}.{principal.name}"
            )

    def _invalid_credentials(self) -> str:
        """Return Kafka's message for failures whose reason could reveal which users exist."""
        return (
            f"Authentication failed during {self.word} due to invalid credentials with SASL "
            f"mechanism {self.mechanism}"
        )


def _decode(cls: Any, frame: memoryview, header: RequestHeader) -> Any:
    """Decode a SASL request. Raises ProtocolError."""
    first, last = SERVED[header.api_key]
    version = header.api_version
    if not first <= version <= last:
        raise ProtocolError(f"key {header.api_key} in version {version}, which is not served")
    if version in info_of(cls).flexible:
        skip_header_tags(frame, header)
    # The size of the frame does not matter: these requests have no arrays, and no tags that any
    # client sends.
    request, _ = decode_prefix(cls, version, frame, header.body, ALLOWANCE_BYTES)
    return request


def _unexpected(header: RequestHeader, expected: str) -> str:
    return f"request with key {header.api_key} where {expected} was expected"
