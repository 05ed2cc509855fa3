"""The states of share-partitions, wherever their coordinators are (KIP-932).

The coordinator of a share-partition's state leads the partition of __share_group_state that the
key belongs to. Another broker is asked by the APIs 83 to 87.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from odradek.broker.coordination.runtime import Answer
from odradek.broker.orders.java import partition_for
from odradek.broker.peers.errors import PeerAway
from odradek.broker.peers.peers import Peers
from odradek.broker.shares.batches import StateBatch
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.state_records import ShareState
from odradek.broker.shares.state_shard import StateAnswer
from odradek.broker.shares.states import Persister
from odradek.broker.topics import names as topic_names
from odradek.broker.topics.registry import Topics
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)

_RETRIABLE = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
# After each of these a request is sent again, but the last.
_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 1.0, 0.0)


class SharedPersister:
    """A Persister of several brokers; the event loop owns it."""

    def __init__(self, own: Persister, topics: Topics, peers: Peers) -> None:
        """`own` is the coordinator of this broker."""
        self._own, self._topics, self._peers = own, topics, peers

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> Answer[StateAnswer]:
        """See Persister."""
        module = initialize_share_group_state
        data = module.PartitionData(
            partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
        )
        topic = module.InitializeStateData(topic_id=key.topic_id, partitions=[data])
        return self._route(
            key,
            lambda: self._own.initialize(key, state_epoch, start_offset),
            module.InitializeShareGroupStateRequest(group_id=key.group_id, topics=[topic]),
            0,
            module.InitializeShareGroupStateResponse,
        )

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Answer[StateAnswer]:
        """See Persister."""
        module = read_share_group_state
        data = module.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        topic = module.ReadStateData(topic_id=key.topic_id, partitions=[data])
        return self._route(
            key,
            lambda: self._own.read(key, leader_epoch),
            module.ReadShareGroupStateRequest(group_id=key.group_id, topics=[topic]),
            0,
            module.ReadShareGroupStateResponse,
            lambda one: ShareState(
                0, one.state_epoch, leader_epoch, one.start_offset, -1, _batches(one)
            ),
        )

    def write(self, key: SharePartitionKey, change: ShareState) -> Answer[StateAnswer]:
        """See Persister."""
        module = write_share_group_state
        data = module.PartitionData(
            partition=key.partition,
            state_epoch=change.state_epoch,
            leader_epoch=change.leader_epoch,
            start_offset=change.start_offset,
            delivery_complete_count=change.delivery_complete_count,
            state_batches=[
                module.StateBatch(
                    first_offset=one.first_offset,
                    last_offset=one.last_offset,
                    delivery_state=one.state,
                    delivery_count=one.delivery_count,
                )
                for one in change.batches
            ],
        )
        topic = module.WriteStateData(topic_id=key.topic_id, partitions=[data])
        return self._route(
            key,
            lambda: self._own.write(key, change),
            module.WriteShareGroupStateRequest(group_id=key.group_id, topics=[topic]),
            1,
            module.WriteShareGroupStateResponse,
            repeats=False,  # a later change may be stored by then
        )

    def summarize(self, key: SharePartitionKey) -> Answer[StateAnswer]:
        """See Persister."""
        module = read_share_group_state_summary
        data = module.PartitionData(partition=key.partition, leader_epoch=-1)
        topic = module.ReadStateSummaryData(topic_id=key.topic_id, partitions=[data])
        return self._route(
            key,
            lambda: self._own.summarize(key),
            module.ReadShareGroupStateSummaryRequest(group_id=key.group_id, topics=[topic]),
            1,
            module.ReadShareGroupStateSummaryResponse,
            lambda one: ShareState(
                0,
                one.state_epoch,
                one.leader_epoch,
                one.start_offset,
                one.delivery_complete_count,
            ),
        )

    def delete(self, key: SharePartitionKey) -> Answer[StateAnswer]:
        """See Persister."""
        module = delete_share_group_state
        data = module.PartitionData(partition=key.partition)
        topic = module.DeleteStateData(topic_id=key.topic_id, partitions=[data])
        return self._route(
            key,
            lambda: self._own.delete(key),
            module.DeleteShareGroupStateRequest(group_id=key.group_id, topics=[topic]),
            0,
            module.DeleteShareGroupStateResponse,
        )

    def _route(
        self,
        key: SharePartitionKey,
        ask_own: Callable[[], Answer[StateAnswer]],
        request: Any,
        version: int,
        response: type[Any],
        state_of: Callable[[Any], ShareState] | None = None,
        *,
        repeats: bool = True,
    ) -> Answer[StateAnswer]:
        """Ask the coordinator of a key: this broker, or another by a request.

        As in Kafka's PersisterStateManager a coordinator that has just changed is asked again.
        """

        def ask() -> Answer[StateAnswer]:
            leader_id = self._coordinator(key)
            if leader_id is None:
                return ask_own()
            return self._ask(leader_id, request, version, response, state_of)

        if self._topics.get(topic_names.SHARE_GROUP_STATE) is not None:
            answer = ask()
            is_last = isinstance(answer, StateAnswer) and answer.error not in _RETRIABLE
            if is_last or not repeats:
                return answer
            return self._repeat(ask, answer)
        return self._repeat(ask, None)

    async def _repeat(
        self, ask: Callable[[], Answer[StateAnswer]], asked: Answer[StateAnswer] | None
    ) -> StateAnswer:
        for pause_s in _PAUSES_S:
            if asked is None:
                await self._topics.internal(topic_names.SHARE_GROUP_STATE)
                asked = ask()
            answer = await asked if isinstance(asked, Awaitable) else asked
            if answer.error not in _RETRIABLE:
                break
            await asyncio.sleep(pause_s)
            asked = None
        return answer

    def _coordinator(self, key: SharePartitionKey) -> int | None:
        """Return the other broker that coordinates a key; None for this one."""
        topic = self._topics.get(topic_names.SHARE_GROUP_STATE)
        assert topic is not None, "it is created first"
        return topic.other_leader(partition_for(key.name, len(topic.partitions)))

    async def _ask(
        self,
        leader_id: int,
        request: Any,
        version: int,
        response: type[Any],
        state_of: Callable[[Any], ShareState] | None,
    ) -> StateAnswer:
        try:
            answer = await self._peers.ask(
                leader_id, request, version, response, lambda answer: _only(answer).error_code
            )
        except PeerAway:  # the reason is for operators
            message = f"broker {leader_id} cannot be asked"
            return StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        one = _only(answer)
        if one.error_code:
            return StateAnswer(ErrorCode.of(one.error_code), one.error_message)
        return StateAnswer() if state_of is None else StateAnswer(state=state_of(one))


def _only(answer: Any) -> Any:
    """Return the result of the only partition."""
    ((one,),) = (topic.partitions for topic in answer.results)
    return one


def _batches(one: read_share_group_state.PartitionResult) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(
            batch.first_offset, batch.last_offset, batch.delivery_count, batch.delivery_state
        )
        for batch in one.state_batches
    )
