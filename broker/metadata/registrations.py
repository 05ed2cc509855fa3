"""The removal of brokers that are not coming back (KIP-631)."""

from __future__ import annotations

from odradek.broker.errors import Refusal
from odradek.broker.metadata.changes import Changes
from odradek.broker.metadata.members import Brokers
from odradek.broker.metadata.store import MetadataStore
from odradek.protocol.errors import ErrorCode


class Registrations:
    """Removes brokers; the event loop owns it."""

    def __init__(self, brokers: Brokers, store: MetadataStore, changes: Changes) -> None:
        self._brokers, self._store, self._changes = brokers, store, changes

    async def remove(self, node_id: int) -> None:
        """Forget a broker that has stopped, with or without partitions.

        Its partitions stay as they are, without a leader (ReplicationControlManager). Kafka
        forgets one that is alive, too, which nobody hears of again until it is started again.
        Raises Refusal and MetadataError.
        """
        await self._changes.run(lambda: self._remove(node_id))

    async def _remove(self, node_id: int) -> None:
        brokers = self._brokers
        if node_id in brokers:
            message = f"Broker {node_id} is alive: stop it first."
            if len(brokers) == 1:
                message = (
                    f"Broker {node_id} is the only one, and serves this request: stop it instead."
                )
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        if all(one.node_id != node_id for one in brokers.absent):
            message = f"Broker ID {node_id} is not currently registered"
            raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
        await self._store.unregister(node_id)
        brokers.forget(node_id)
