"""Requests to other brokers of the cluster, by Kafka's own protocol (KIP-890, WriteTxnMarkers).

They go to the listener of inter.broker.listener.name, or security.inter.broker.protocol. One
connection to each broker is kept. A request that fails is not sent again here: its caller knows
whether it may be repeated. Each broker is asked every few seconds whether it answers, so that
settings that keep brokers from asking each other show before a client needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.configs import Configs
from odradek.broker.metadata.members import Brokers, Endpoint
from odradek.broker.peers.connections import Connection, LogIn
from odradek.broker.peers.errors import PeerAway, PeerRefuses
from odradek.config.inter_broker import (
    LISTENER,
    InterBrokerConfig,
    OwnLogin,
    inter_broker_listener,
    own_login,
)
from odradek.config.sasl import SaslConfig
from odradek.config.tls import PROTOCOLS as TLS
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)

if TYPE_CHECKING:
    from odradek.broker.security.tls.contexts import Made
    from odradek.broker.security.tls.listeners import Tls

T = TypeVar("T")

logger = logging.getLogger(__name__)

# A broker that answers nothing is given up after this time.
_TIMEOUT_S = 10.0
# How often each broker is asked whether it answers.
_CHECK_INTERVAL_S = 5.0
# A broker that is away is no problem until this time has passed: it may be starting.
_PATIENCE_S = 10.0
# A broker that refuses this one is not asked again for this time.
_PAUSE_S = 1.0
_CHECK_VERSION = 5


@dataclass(slots=True)
class _Trouble:
    """The state of a broker whose last answer was an error, or did not come."""

    since_s: float
    paused_until_s: float = 0.0
    # The problem in the log and at /health; "" for one that has not lasted yet.
    reported: str = ""


class Peers:
    """The connections to other brokers; the event loop owns it."""

    def __init__(self, brokers: Brokers, configs: Configs, tls: Tls | None) -> None:
        self._brokers, self._configs, self._tls = brokers, configs, tls
        self._loop = asyncio.get_running_loop()
        self._listener = inter_broker_listener(
            configs.of(InterBrokerConfig), configs.broker.advertised_endpoints
        )
        self._connections: dict[int, Connection] = {}
        self._troubles: dict[int, _Trouble] = {}
        self._client_id = f"broker-{brokers.own.node_id}"
        # The TLS of new connections, and the certificates that it was made from.
        self._context: tuple[Made, ssl.SSLContext] | None = None
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to check whether the other brokers answer."""
        self._watching = start_task("check other brokers", self._watch())

    def close(self) -> None:
        """Close all connections."""
        if self._watching is not None:
            self._watching.cancel()
        for connection in self._connections.values():
            connection.close()

    def problems(self) -> list[str]:
        """Return the problems that an operator has to look at."""
        return [
            trouble.reported
            for node_id, trouble in self._troubles.items()
            if trouble.reported and node_id in self._brokers
        ]

    async def ask(
        self,
        node_id: int,
        request: Any,
        version: int,
        response: type[T],
        error_of: Callable[[T], int],
    ) -> T:
        """Send a request to a broker; return its answer. Raises PeerAway.

        `error_of` returns the error code by which an answer refuses the whole request.
        """
        trouble = self._troubles.get(node_id)
        if trouble is not None and self._loop.time() < trouble.paused_until_s:
            raise PeerRefuses(trouble.reported)
        connection: Connection | None = None
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                connection = self._connection(node_id)
                answer = await connection.ask(request, version, response)
            if error_of(answer) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise PeerRefuses(self._lacking())
        except (OSError, PeerRefuses) as error:  # TimeoutError is an OSError
            if connection is not None:
                # The next one uses the settings, the certificates and the login of its time.
                connection.close()
            raise self._noted(node_id, error) from error
        ended = self._troubles.pop(node_id, None)
        if ended is not None and ended.reported:
            logger.info("another broker answers again broker=%d", node_id)
        return answer

    async def _watch(self) -> None:
        """Ask each broker now and then, also whether this one has the right to ask."""
        while True:
            for gone in self._troubles.keys() - {one.node_id for one in self._brokers}:
                del self._troubles[gone]
            own_id = self._brokers.own.node_id
            others = [one.node_id for one in self._brokers if one.node_id != own_id]
            await asyncio.gather(*map(self._check, others))
            await asyncio.sleep(_CHECK_INTERVAL_S)

    async def _check(self, node_id: int) -> None:
        request = AddPartitionsToTxnRequest(transactions=[])
        with contextlib.suppress(PeerAway):
            await self.ask(
                node_id,
                request,
                _CHECK_VERSION,
                AddPartitionsToTxnResponse,
                lambda answer: answer.error_code,
            )

    def _connection(self, node_id: int) -> Connection:
        """Return the connection to a broker, a new one if need be. Raises PeerAway."""
        endpoint = self._endpoint(node_id)
        known = self._connections.get(node_id)
        if known is None or known.endpoint != endpoint or not known.is_usable:
            if known is not None:
                known.retire()
            known = self._connections[node_id] = Connection(
                endpoint, self._client_id, self._tls_context(), self._log_in()
            )
        return known

    def _endpoint(self, node_id: int) -> Endpoint:
        member = self._brokers.get(node_id)
        if member is None:
            raise PeerAway(f"broker {node_id} is not there")
        found = member.endpoint(self._listener.name)
        if found is None:
            raise PeerRefuses(f"has no listener {self._listener.name}: set {LISTENER} alike")
        if found.protocol != self._listener.protocol:
            raise PeerRefuses(
                f"speaks {found.protocol} at its listener {found.name}, this broker "
                f"{self._listener.protocol}: set listener.security.protocol.map alike"
            )
        return found

    def _tls_context(self) -> ssl.SSLContext | None:
        if self._tls is None or self._listener.protocol not in TLS:
            return None
        listener = self._tls.listeners[self._listener.name]
        if self._context is None or self._context[0] is not listener.made:
            from odradek.broker.security.tls.contexts import make_client_context

            context = make_client_context(listener.config, listener.made)
            self._context = listener.made, context
        return self._context[1]

    def _login(self) -> OwnLogin | None:
        """Return the login of this broker by the settings in force, None where there is none."""
        if not self._listener.protocol.startswith("SASL_"):
            return None
        return own_login(
            self._configs.of(InterBrokerConfig).sasl_mechanism_inter_broker_protocol,
            self._listener.name,
            lambda listener, mechanism: self._configs.of_listener(
                SaslConfig, listener, mechanism.lower()
            ),
        )

    def _log_in(self) -> LogIn | None:
        login = self._login()
        if login is None:
            return None
        from odradek.broker.peers.logins import log_in

        return partial(log_in, login=login)

    def _lacking(self) -> str:
        """Return the problem of a broker that may not ask."""
        login = self._login()
        if login is not None:
            principal = f"User:{login.username}"
        elif self._listener.protocol == "SSL":
            principal = "the principal of this broker's certificate"
        else:
            principal = "User:ANONYMOUS"
        return (
            f"refuses to be asked by this broker: allow {principal} the operation CLUSTER_ACTION "
            "on the cluster by an ACL, or add it to super.users there"
        )

    def _noted(self, node_id: int, error: Exception) -> PeerAway:
        """Note why a broker was not asked, and return the error for the caller."""
        now_s = self._loop.time()
        trouble = self._troubles.setdefault(node_id, _Trouble(now_s))
        made: PeerAway
        if isinstance(error, PeerRefuses):
            made = PeerRefuses(f"broker {node_id} {error}")
            trouble.paused_until_s = now_s + _PAUSE_S
        else:
            reason = str(error) or f"nothing for {_TIMEOUT_S:g} s"
            made = PeerAway(f"broker {node_id} does not answer: {reason}")
        is_due = isinstance(made, PeerRefuses) or now_s - trouble.since_s >= _PATIENCE_S
        if is_due and str(made) != trouble.reported:
            trouble.reported = str(made)
            logger.error("cannot ask another broker: %s", made)
        return made
