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
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.configs import Configs
from odradek.broker.metadata.members import Brokers, Endpoint
from odradek.broker.peers.connections import Connection
from odradek.broker.peers.credentials import Credentials
from odradek.broker.peers.errors import PeerAway, PeerRefuses
from odradek.config.inter_broker import LISTENER
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)

if TYPE_CHECKING:
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
        self._brokers, self._own = brokers, Credentials(configs, tls)
        self._loop = asyncio.get_running_loop()
        self._connections: dict[int, Connection] = {}
        self._troubles: dict[int, _Trouble] = {}
        self._client_id = f"broker-{brokers.own.node_id}"
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
                raise PeerRefuses(
                    f"refuses to be asked by this broker: allow {self._own.principal} the "
                    "operation CLUSTER_ACTION on the cluster (odradek acls create --cluster "
                    "--operation cluster-action --principal ...), or add it to super.users there"
                )
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
                endpoint, self._client_id, self._own.context, self._own.log_in
            )
        return known

    def _endpoint(self, node_id: int) -> Endpoint:
        member = self._brokers.get(node_id)
        if member is None:
            raise PeerAway(f"broker {node_id} is not there")
        own = self._own.listener
        found = member.endpoint(own.name)
        if found is None:
            raise PeerRefuses(f"has no listener {own.name}: set {LISTENER} alike")
        if found.protocol != own.protocol:
            raise PeerRefuses(
                f"speaks {found.protocol} at its listener {own.name}, this broker "
                f"{own.protocol}: set listener.security.protocol.map alike"
            )
        return found

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
