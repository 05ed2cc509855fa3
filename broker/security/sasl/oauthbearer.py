"""OAUTHBEARER: a login by a token of a provider (RFC 7628, Kafka's OAuthBearerSaslServer).

    n,a=<authorization id>,^A auth=Bearer <token> ^A <extension>=<value> ^A ^A

The mechanism reports an error in two steps: an invalid token is answered with JSON, the client
sends ^A, and only then the login fails.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from odradek.broker.security.oauth.keys import Keys
from odradek.broker.security.oauth.validation import InvalidToken, read_header, verify
from odradek.broker.security.principals import USER, Principal
from odradek.broker.security.sasl.exchange import NAME, Authenticated, AuthenticationFailed, Step
from odradek.config.oauth import OAuthConfig
from odradek.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.broker.security.composition import Security

_END = "\x01"
# Possessive, as NAME is, with nothing after it (see scram_messages.py): the last byte is apart.
_PAIR = r"[A-Za-z]++=[\x21-\x7e \t\r\n]++\x01"
_FIRST = re.compile(rf"n,(?:a=(?P<asked_for>{NAME}))?,(?P<pairs>\x01(?:{_PAIR})*+)")
_AUTH_IS = f"{_END}auth="
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_REFUSAL = '{"status":"invalid_token"}'


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The client's first message: its token, and the authorization id ("" for none)."""

    token: str
    asked_for: str


def read_first(message: bytes) -> ClientFirst:
    """Read the client's first message. Raises AuthenticationFailed.

    As OAuthBearerClientInitialResponse; extensions are checked for syntax and then ignored.
    """
    text = message.decode("utf-8", "replace")
    found = _FIRST.fullmatch(text.removesuffix(_END))
    if found is None or not text.endswith(_END):
        raise AuthenticationFailed(reason="not a first message of OAUTHBEARER")
    # The last value counts, as in Kafka's map.
    _, _, rest = found["pairs"].rpartition(_AUTH_IS)
    auth = _AUTH.fullmatch(rest.partition(_END)[0])
    if auth is None or auth["scheme"].lower() != "bearer":
        raise AuthenticationFailed(reason="a first message of OAUTHBEARER without a bearer token")
    return ClientFirst(auth["token"], found["asked_for"] or "")


class OAuthBearer:
    """OAUTHBEARER at one listener, with its provider's keys."""

    def __init__(
        self,
        name: str,
        config: Callable[[], OAuthConfig],
        keys: Keys,
        now_ms: Callable[[], int],
    ) -> None:
        self.name = name
        self._config, self._keys, self._now_ms = config, keys, now_ms

    def begin(self) -> OAuthBearerExchange:
        return OAuthBearerExchange(self)

    async def check(self, token: str) -> Authenticated:
        """Check a token; return its principal and its end. Raises InvalidToken."""
        header = read_header(token)
        keys = await self._keys.candidates(header)
        if not keys and self._keys.problem is not None:
            raise InvalidToken(f"the keys could not be fetched: {self._keys.problem}")
        claims = verify(token, header, keys, self._config(), self._now_ms())
        return Authenticated(Principal(USER, claims.subject), claims.expires_ms)


class OAuthBearerExchange:
    """One attempt: a message with a token, and after a refusal one more message."""

    def __init__(self, mechanism: OAuthBearer) -> None:
        self._mechanism = mechanism
        self._refused = ""  # the reason; "" as long as no token was refused

    async def step(self, message: bytes) -> Step:
        """Check a token, or end a refused attempt. Raises AuthenticationFailed."""
        if self._refused:
            raise AuthenticationFailed(_REFUSAL, self._refused)
        first = read_first(message)
        try:
            done = await self._mechanism.check(first.token)
        except InvalidToken as error:
            self._refused = f"invalid token: {error}"
            return Step(_REFUSAL.encode(), refused=self._refused)
        name = done.principal.name
        if first.asked_for not in ("", name):
            raise AuthenticationFailed(
                f"Authentication failed: Client requested an authorization id ({first.asked_for}) "
                f"that is different from the token's principal name ({name})"
            )
        return Step(b"", done)


def make(security: Security, listener: str, name: str) -> OAuthBearer:
    """Return OAUTHBEARER for a listener (broker/security/sasl/registry.py)."""

    def config() -> OAuthConfig:
        return security.configs.of_listener(OAuthConfig, listener, name.lower())

    return OAuthBearer(name, config, security.oauth_keys(listener), security.now_ms)
