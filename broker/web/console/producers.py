"""The producers of partitions, and the end of a transaction that no coordinator knows any more.

    GET  /api/producers?topic=T
    POST /api/producers/abort {"topic", "partition", "producer_id"}

An abort writes the marker to the partition, as kafka-transactions.sh does (WriteTxnMarkers,
KIP-664).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.topics.topic import Topic
from odradek.broker.web.console.actor import Actor
from odradek.broker.web.console.asking import Asker, ConsoleServices, require
from odradek.broker.web.console.body import Body
from odradek.broker.web.console.ends import known
from odradek.broker.web.console.plan import Action, Plan
from odradek.broker.web.requests import Parameters, Problem, require_partition
from odradek.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.pacing import paced

_SHOWN_MAX = 5_000


def make(broker: ConsoleServices, asker: Asker) -> Sequence[Action]:
    """Return the action on producers."""
    plans = ProducerActions(asker)
    return (Action("abort", ("topic", "partition", "producer_id"), plans.abort),)


async def show(asker: Asker, actor: Actor, parameters: Parameters) -> Mapping[str, object]:
    """Return the producers of a topic's partitions, for an answer. Raises Problem."""
    topic = asker.topic(parameters.text("topic") or "")
    asker.require_right(actor, AclOperation.READ, ResourceKind.TOPIC, topic.name)
    shown = list[Mapping[str, object]]()
    for number, one in await _producers(asker, actor, topic, range(len(topic.partitions))):
        shown.append(
            {
                "partition": number,
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "last_sequence": one.last_sequence,
                "last_ms": None if one.last_timestamp < 0 else one.last_timestamp,
                "transaction_from": known(one.current_txn_start_offset),
            }
        )
    left_out = max(len(shown) - _SHOWN_MAX, 0)
    return {"producers": shown[:_SHOWN_MAX], "left_out": left_out}


async def _producers(
    asker: Asker, actor: Actor, topic: Topic, numbers: Sequence[int]
) -> Sequence[tuple[int, ProducerState]]:
    found = list[tuple[int, ProducerState]]()
    for leader, owned in asker.leaders(topic, numbers).items():
        asked = TopicRequest(name=topic.name, partition_indexes=owned)
        request = DescribeProducersRequest(topics=[asked])
        answer = await asker.ask(actor, request, DescribeProducersResponse, leader)
        for one in answer.topics[0].partitions:
            require(one.error_code, one.error_message, f"{topic.name}-{one.partition_index}")
            found += [(one.partition_index, producer) for producer in paced(one.active_producers)]
    return sorted(found, key=lambda pair: (pair[0], pair[1].producer_id))


class ProducerActions:
    """Plans the action on producers."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def abort(self, actor: Actor, body: Body) -> Plan:
        """Abort the open transaction of a producer in one partition."""
        topic = self._asker.topic(body.text("topic"))
        number, producer_id = body.number("partition"), body.number("producer_id")
        if number is None or producer_id is None:
            raise Problem(400, "give partition and producer_id")
        require_partition(topic, number)
        self._asker.require_right(actor, AclOperation.ALTER, ResourceKind.CLUSTER)
        found = next(
            (
                one
                for _, one in await _producers(self._asker, actor, topic, [number])
                if one.producer_id == producer_id
            ),
            None,
        )
        where = f"{topic.name}-{number}"
        if found is None or known(found.current_txn_start_offset) is None:
            raise Problem(409, f"producer {producer_id} has no open transaction in {where}")
        state = found

        async def carry_out() -> Sequence[str]:
            marker = WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=state.producer_epoch,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=topic.name, partition_indexes=[number])],
                coordinator_epoch=max(state.coordinator_epoch, 0),
            )
            request = WriteTxnMarkersRequest(markers=[marker])
            (leader,) = self._asker.leaders(topic, [number])
            answer = await self._asker.ask(actor, request, WriteTxnMarkersResponse, leader)
            require(answer.markers[0].topics[0].partitions[0].error_code, None, where)
            return [f"The transaction of producer {producer_id} in {where} was aborted."]

        will = [
            f"Abort the transaction of producer {producer_id} in {where}, which is open since "
            f"offset {state.current_txn_start_offset:,}."
        ]
        warning = (
            "Do this only if the transaction hangs. If its coordinator still knows it, abort it "
            "there, or its records may be half committed."
        )
        return Plan(will, carry_out, [warning])


