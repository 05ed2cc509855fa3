"""Moves of partitions to other brokers, each with a disk of its own; some are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.simulation.cluster.clients import Client, Unanswered

_PAUSE_S = 0.5
_CANCELLED_SHARE = 0.15


class Mover:
    """Asks any broker to move partitions."""

    def __init__(self, client: Client, counts: Mapping[str, int]) -> None:
        """`counts` has the number of partitions of each topic."""
        self.client, self._counts = client, counts

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Move partitions until it is over."""
        source = self.client.source
        while not is_over():
            topic = source.choice(sorted(self._counts))
            wanted = [
                ReassignablePartition(
                    partition_index=number,
                    replicas=None
                    if source.random() < _CANCELLED_SHARE
                    else [self.client.any_broker()],
                )
                for number in range(self._counts[topic])
                if source.random() < 0.5
            ]
            request = AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name=topic, partitions=wanted)]
            )
            try:
                await self.client.ask(self.client.any_broker(), request, 1)
            except Unanswered:
                await asyncio.sleep(_PAUSE_S)
            await asyncio.sleep(_PAUSE_S * 2 * source.random())
