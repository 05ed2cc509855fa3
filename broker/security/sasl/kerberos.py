"""GSSAPI: a login by a Kerberos ticket (RFC 4752, RFC 4121, Kafka's SaslServerCallbackHandler).

    client: tokens of the GSS context    server: its tokens, until the context is there
    client: empty                        server: wrapped, 01 000000: no security layer
    client: wrapped, 01 000000 [name]    the end

The library and its replay cache wait for files, so that each message is taken by a thread. It is
the only one: a flood of tickets delays other logins by Kerberos, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from odradek.broker.security.principals import USER, Principal
from odradek.broker.security.sasl.exchange import Authenticated, AuthenticationFailed, Step
from odradek.broker.security.sasl.settings import settings_of
from odradek.config.java_rules import NoRuleApplies
from odradek.config.kerberos import LIBRARY, KerberosConfig, keytab_of
from odradek.config.kerberos_rules import KerberosRules
from odradek.config.sasl import SaslConfig, jaas_of

if TYPE_CHECKING:
    from odradek.broker.security.composition import Security

# The security layers of RFC 4752, as bits; Kafka has none but TLS's.
_NO_LAYER = 1
_OFFER = bytes([_NO_LAYER, 0, 0, 0])


class Kerberos:
    """GSSAPI at one listener; uses the settings in force."""

    def __init__(
        self,
        name: str,
        sasl: Callable[[bool], SaslConfig],
        config: Callable[[], KerberosConfig],
    ) -> None:
        """`sasl` returns the settings of the mechanism, or of its listener alone (false)."""
        self.name = name
        self._sasl, self._config = sasl, config

    def begin(self) -> KerberosExchange:
        """Begin with the keytab and the rules of this moment."""
        sasl = self._sasl(True)
        keytab, principal = keytab_of(jaas_of(sasl, self._sasl(False), self.name))
        rules = KerberosRules(self._config().sasl_kerberos_principal_to_local_rules)
        return KerberosExchange(keytab, principal, rules)


class KerberosExchange:
    """One attempt."""

    def __init__(self, keytab: str, principal: str, rules: KerberosRules) -> None:
        self._keytab, self._principal, self._rules = keytab, principal, rules
        self._context: Any = None
        self._has_offered = False

    async def step(self, message: bytes) -> Step:
        """Take a token, or the choice of a layer. Raises AuthenticationFailed."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_thread(), self._take, message)

    def _take(self, message: bytes) -> Step:
        try:
            if self._has_offered:
                return self._finish(message)
            return self._accept(message)
        except _library().exceptions.GSSError as error:
            raise AuthenticationFailed(reason=_one_line(error)) from None

    def _accept(self, message: bytes) -> Step:
        gssapi = _library()
        if self._context is None:
            own = gssapi.Name(self._principal, gssapi.NameType.kerberos_principal)
            credentials = gssapi.Credentials(
                usage="accept", name=own, store={"keytab": f"FILE:{self._keytab}"}
            )
            self._context = _context_class()(creds=credentials, usage="accept")
        if not self._context.complete:
            token = self._context.step(message)
            if token or not self._context.complete:
                return Step(token or b"")
        elif message:
            raise AuthenticationFailed(reason="a token after the end of the GSS context")
        self._has_offered = True
        return Step(self._context.wrap(_OFFER, encrypt=False).message)

    def _finish(self, message: bytes) -> Step:
        chosen = self._context.unwrap(message).message
        if len(chosen) < len(_OFFER) or chosen[0] != _NO_LAYER:
            raise AuthenticationFailed(reason="the client wants a security layer of SASL")
        # As in Kafka, the ticket counts: clients send other names in place of an authorization id.
        try:
            name = self._rules.apply(str(self._context.initiator_name), default_realm())
        except NoRuleApplies as error:
            raise AuthenticationFailed(reason=str(error)) from None
        return Step(b"", Authenticated(Principal(USER, name)))


def default_realm() -> str:
    """Return the default realm of krb5.conf, "" if it names none."""
    gssapi = _library()
    try:
        name = gssapi.Name("nobody", gssapi.NameType.kerberos_principal)
        return str(name.canonicalize(gssapi.MechType.kerberos)).rpartition("@")[2]
    except gssapi.exceptions.GSSError:
        return ""


def make(security: Security, listener: str, name: str) -> Kerberos:
    """Return GSSAPI for a listener (broker/security/sasl/registry.py)."""

    def config() -> KerberosConfig:
        return security.configs.of_listener(KerberosConfig, listener, name.lower())

    return Kerberos(name, settings_of(security, listener, name), config)


@cache
def _library() -> Any:
    """Return the library, which only these logins need."""
    return import_module(LIBRARY)


@cache
def _context_class() -> Any:
    """Return the library's class, but for errors, which it would raise at the next call only."""
    made: Any = type("Context", (_library().SecurityContext,), {})
    made.__DEFER_STEP_ERRORS__ = False  # their metaclass sets it for each new class
    return made


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="kerberos")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
