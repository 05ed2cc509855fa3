"""Transactions: those that coordinators know, and the end of one that hangs.

    GET  /api/transactions
    POST /api/transactions/abort {"transactional_id"}

An abort takes the way of a producer that starts again with the same transactional id: the
coordinator aborts the open transaction, and fences the former producer (KIP-939,
Admin.forceTerminateTransaction).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.web.console.actor import Actor
from odradek.broker.web.console.asking import Asker, ConsoleServices, require
from odradek.broker.web.console.body import Body
from odradek.broker.web.console.coordinators import Coordinator, KeyType
from odradek.broker.web.console.plan import Action, Plan
from odradek.broker.web.console.words import count_words
from odradek.broker.web.requests import Parameters, Problem
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from odradek.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from odradek.protocol.pacing import paced

_ONGOING = "Ongoing"
# The coordinator aborts the open transaction, and answers with an id once that is done.
_BEGUN = (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS)
# The transactions of one answer, of each broker.
_SHOWN_MAX = 1_000


def make(broker: ConsoleServices, asker: Asker) -> Sequence[Action]:
    """Return the action on transactions."""
    return (Action("abort", ("transactional_id",), TransactionActions(asker).abort),)


async def show(asker: Asker, actor: Actor, parameters: Parameters) -> Mapping[str, object]:
    """Return the transactions of all brokers' coordinators, for an answer."""
    shown, problems, left_out = list[Mapping[str, object]](), list[str](), 0
    for node_id in asker.node_ids():
        try:
            request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
            listed = await asker.ask(actor, request, ListTransactionsResponse, node_id)
            require(listed.error_code)
            ids = (one.transactional_id for one in paced(listed.transaction_states))
            # Another broker answers this broker, not the person.
            permitted = asker.describable(actor, ResourceKind.TRANSACTIONAL_ID, ids)
            found = [one for one in listed.transaction_states if one.transactional_id in permitted]
            left_out += max(len(found) - _SHOWN_MAX, 0)
            names = [one.transactional_id for one in found[:_SHOWN_MAX]]
            described = await asker.ask(
                actor, _describing(names), DescribeTransactionsResponse, node_id
            )
            states = described.transaction_states
            topics = {topic.topic for one in paced(states) for topic in one.topics}
            seen = asker.describable(actor, ResourceKind.TOPIC, topics)
            shown += [_shown(one, node_id, seen) for one in paced(states) if not one.error_code]
        except Problem as problem:
            problems.append(f"broker {node_id}: {problem}")
    shown.sort(key=lambda one: str(one["transactional_id"]))
    return {"transactions": shown, "left_out": left_out, "problems": problems}


def _describing(names: Sequence[str]) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(transactional_ids=list(names))


def _shown(one: TransactionState, node_id: int, topics: Set[str]) -> Mapping[str, object]:
    return {
        "transactional_id": one.transactional_id,
        "state": one.transaction_state,
        "coordinator": node_id,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "timeout_ms": one.transaction_timeout_ms,
        "began_ms": None if one.transaction_start_time_ms < 0 else one.transaction_start_time_ms,
        "partitions": [
            {"topic": topic.topic, "partitions": sorted(topic.partitions)}
            for topic in one.topics
            if topic.topic in topics
        ],
    }


class TransactionActions:
    """Plans the action on transactions."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def abort(self, actor: Actor, body: Body) -> Plan:
        """Abort the open transaction of a transactional id."""
        name = body.text("transactional_id")
        self._asker.require_right(actor, AclOperation.WRITE, ResourceKind.TRANSACTIONAL_ID, name)
        coordinator = Coordinator(self._asker, actor, name, KeyType.TRANSACTION)
        described = await coordinator.ask(_describing([name]), DescribeTransactionsResponse)
        state = described.transaction_states[0]
        if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise Problem(404, f"there is no transactional id {name}")
        require(state.error_code)
        if state.transaction_state != _ONGOING:
            raise Problem(
                409, f"{name} has no open transaction: it is in state {state.transaction_state}"
            )

        async def carry_out() -> Sequence[str]:
            request = InitProducerIdRequest(
                transactional_id=name, transaction_timeout_ms=state.transaction_timeout_ms
            )
            answer = await coordinator.ask(request, InitProducerIdResponse)
            if answer.error_code not in _BEGUN:
                require(answer.error_code)
            return [f"The transaction of {name} is aborted."]

        count = sum(len(topic.partitions) for topic in state.topics)
        will = [f"Abort the transaction of {name} in {count_words(count, 'partition')}."]
        warning = f"The producer that uses {name} is fenced: it has to be started again."
        return Plan(will, carry_out, [warning])
