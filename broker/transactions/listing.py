"""Descriptions and lists of transactional ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import re2

from odradek.broker.coordination.expressions import compile_expression
from odradek.broker.errors import Refusal
from odradek.broker.orders.java import string_hash
from odradek.broker.orders.maps import partition_order
from odradek.broker.orders.scala import SMALL_MAX, trie_order
from odradek.broker.transactions.state import Transaction, TransactionState
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import describe_transactions, list_transactions
from odradek.protocol.messages.describe_transactions import TopicData
from odradek.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from odradek.protocol.pacing import paced

_STATES = {state.word: state for state in TransactionState}


def described(
    transactional_id: str, value: Transaction
) -> describe_transactions.TransactionState:
    """Describe a transactional id; its topics are in the order of their first partitions."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in paced(partition_order(value.partitions)):
        by_topic[topic].append(partition)
    return describe_transactions.TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=value.state.word,
        transaction_timeout_ms=value.timeout_ms,
        transaction_start_time_ms=value.started_ms,
        producer_id=value.producer_id,
        producer_epoch=value.epoch,
        topics=[TopicData(topic=name, partitions=found) for name, found in by_topic.items()],
    )


def not_described(
    transactional_id: str, error: ErrorCode
) -> describe_transactions.TransactionState:
    """Return the description of a transactional id that an error prevents."""
    return describe_transactions.TransactionState(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def passing(
    request: ListTransactionsRequest, known: Iterable[tuple[str, Transaction]], now_ms: int
) -> dict[str, Transaction]:
    """Return the transactional ids that pass a request's filters, except for its pattern."""
    wanted = set(paced(request.state_filters))
    states = {_STATES[name] for name in _STATES.keys() & wanted}
    producer_ids = set(paced(request.producer_id_filters))
    duration_ms = request.duration_filter
    return {
        transactional_id: value
        for transactional_id, value in known
        if (not producer_ids or value.producer_id in producer_ids)
        and (not wanted or value.state in states)
        and (duration_ms < 0 or now_ms - value.started_ms > duration_ms)
    }


def listed(
    request: ListTransactionsRequest, found: Mapping[str, Transaction]
) -> ListTransactionsResponse:
    """List transactional ids."""
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=[name for name in paced(_filters(request)) if name not in _STATES],
        transaction_states=[
            list_transactions.TransactionState(
                transactional_id=transactional_id,
                producer_id=value.producer_id,
                transaction_state=value.state.word,
            )
            for transactional_id, value in paced(found.items())
        ],
    )


def _filters(request: ListTransactionsRequest) -> list[str]:
    """Return the states that a request names, in the order of Kafka's set."""
    names = list(dict.fromkeys(paced(request.state_filters)))
    return names if len(names) <= SMALL_MAX else trie_order(names, string_hash)


def not_listed(error: ErrorCode) -> ListTransactionsResponse:
    """Return the response of a list that an error prevents."""
    return ListTransactionsResponse(
        error_code=error, unknown_state_filters=[], transaction_states=[]
    )


def read_pattern(text: str | None) -> Any:
    """Compile a request's pattern, in RE2's language as in Kafka; return None for no pattern.

    Raises Refusal for a pattern that is no regular expression.
    """
    if not text:
        return None
    try:
        return compile_expression(text)
    except re2.error as error:
        raise Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION) from error
