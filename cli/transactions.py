"""odradek transactions: lists and describes transactions, finds and aborts hanging ones."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.answer import print_json
from odradek.cli.arguments import (
    Name,
    broker_option,
    partition_option,
    partitions_option,
    yes_option,
)
from odradek.cli.client import Connection, broker_options, json_option
from odradek.cli.completion import complete_topics
from odradek.cli.refusals import CommandError
from odradek.cli.words import count, duration, state_name, state_text, time_text
from odradek.config.printable import printable

if TYPE_CHECKING:
    from odradek.cli.transaction_requests import Producer
    from odradek.cli.wire.client import Wire
    from odradek.protocol.messages.describe_transactions import TransactionState

# Kafka's names of the states, by those of the option.
_STATES = {
    re.sub(r"(?<=[a-z])(?=[A-Z])", "-", one).lower(): one
    for one in (
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
        "PrepareEpochFence", "Dead",
    )
}  # fmt: skip
_OPEN = ("ONGOING", "PREPARE_")
_DURATION_VERSION, _PATTERN_VERSION = 1, 2
# The default of transaction.max.timeout.ms, and of Kafka's tool.
_MAX_TIMEOUT_MINUTES = 15
_MS_PER_MINUTE = 60_000
_NEVER = -1

_topic_argument = click.argument("topic", type=Name(), shell_complete=complete_topics)


@click.group()
def transactions() -> None:
    """List and describe transactions, find and abort hanging ones."""


@transactions.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(list(_STATES), case_sensitive=False),
    help="List only transactional ids in this state; may be repeated.",
)
@click.option(
    "--longer-than",
    "duration_ms",
    type=click.IntRange(min=0),
    metavar="MS",
    help="List only transactions that have been open for more milliseconds.",
)
@click.option(
    "--pattern",
    metavar="REGEX",
    help="List only transactional ids that this regular expression matches.",
)
@json_option
@broker_options
def list_transactions(
    states: tuple[str, ...],
    duration_ms: int | None,
    pattern: str | None,
    as_json: bool,
    connection: Connection,
) -> None:
    """List transactional ids, with the states of their transactions.

    Example: odradek transactions list --state ongoing
    """
    from odradek.cli import transaction_requests
    from odradek.protocol.messages.list_transactions import ListTransactionsRequest

    request = ListTransactionsRequest(
        state_filters=[_STATES[one] for one in dict.fromkeys(states)],
        duration_filter=_NEVER if duration_ms is None else duration_ms,
        transactional_id_pattern=pattern,
    )
    # In a version without it, a filter would have no effect.
    least = _PATTERN_VERSION if pattern else 0 if duration_ms is None else _DURATION_VERSION
    with connection.wire() as wire:
        answers = transaction_requests.list_transactions(wire, request, least)
    found = [
        {
            "transactional_id": one.transactional_id,
            "state": state_name(one.transaction_state),
            "producer_id": one.producer_id,
            "coordinator": node,
        }
        for node, answer in answers.items()
        for one in answer.transaction_states
    ]
    found.sort(key=lambda one: str(one["transactional_id"]))
    if as_json:
        return print_json({"transactions": found})
    if not found:
        return click.echo("There are no such transactional ids.")
    from odradek.cli.tables import print_rows

    print_rows(
        ["Transactional id", "State", "Producer>", "Coordinator>"],
        [
            (
                one["transactional_id"],
                state_text(str(one["state"])),
                str(one["producer_id"]),
                one["coordinator"],
            )
            for one in found
        ],
    )


@transactions.command()
@click.argument("ids", nargs=-1, required=True, metavar="TRANSACTIONAL_ID...", type=Name())
@json_option
@broker_options
def describe(ids: tuple[str, ...], as_json: bool, connection: Connection) -> None:
    """Show the transaction of a transactional id: its state, age and partitions.

    Example: odradek transactions describe payments-1
    """
    from odradek.cli.transaction_requests import describe_transaction

    with connection.wire() as wire:
        described = [_described(*describe_transaction(wire, one)) for one in dict.fromkeys(ids)]
    if as_json:
        return print_json({"transactions": described})
    from odradek.cli.tables import print_rows

    for number, one in enumerate(described):
        if number:
            click.echo()
        # A transaction that has ended keeps its start.
        is_open = one["state"].startswith(_OPEN) and one["start_time_ms"] is not None
        age = f", open for {duration(_now_ms() - one['start_time_ms'])}" if is_open else ""
        click.echo(
            printable(
                f"{one['transactional_id']}  {state_text(one['state'])}{age}, timeout "
                f"{duration(one['timeout_ms'])}, producer {one['producer_id']}, epoch "
                f"{one['producer_epoch']}, coordinator {one['coordinator']}"
            )
        )
        if one["partitions"]:
            rows = [tuple(partition.values()) for partition in one["partitions"]]
            print_rows(["Topic", "Partition>"], rows)


@transactions.command()
@_topic_argument
@partitions_option("Show")
@broker_option("Ask this broker, which has a replica.  [default: the leaders]")
@json_option
@broker_options
def producers(
    topic: str,
    numbers: tuple[int, ...],
    broker: int | None,
    as_json: bool,
    connection: Connection,
) -> None:
    """Show the producers that partitions know, and their open transactions.

    Example: odradek transactions producers payments
    """
    from odradek.cli.transaction_requests import find_producers

    with connection.wire() as wire:
        wanted = _partitions(wire, topic, numbers, broker)
        found = find_producers(wire, wanted, broker)
    _show_producers("producers", found, as_json, f"{topic} has no producers with ids.")


@transactions.command("find-hanging")
@click.option(
    "--topic",
    help="Look only at this topic.  [default: all topics]",
    type=Name(),
    shell_complete=complete_topics,
)
@partitions_option("Look at")
@broker_option("Look only at this broker's replicas.")
@click.option(
    "--max-timeout-minutes",
    "minutes",
    type=click.IntRange(min=0),
    default=_MAX_TIMEOUT_MINUTES,
    show_default=True,
    help="The longest timeout of a transaction; a younger one does not hang.",
)
@json_option
@broker_options
def find_hanging(
    topic: str | None,
    numbers: tuple[int, ...],
    broker: int | None,
    minutes: int,
    as_json: bool,
    connection: Connection,
) -> None:
    """Find open transactions of partitions that no coordinator will end.

    Such a transaction keeps readers of committed records from all later records; abort ends it.

    Example: odradek transactions find-hanging --topic payments
    """
    from odradek.cli import transaction_requests

    if numbers and topic is None:
        raise click.UsageError("--partition needs --topic")
    with connection.wire() as wire:
        wanted = _partitions(wire, topic, numbers, broker)
        found = transaction_requests.find_hanging(wire, wanted, broker, minutes * _MS_PER_MINUTE)
    _show_producers("hanging", found, as_json, "No transaction hangs.")


@transactions.command()
@_topic_argument
@partition_option("The partition with the transaction.", required=True)
@click.option(
    "--start-offset",
    type=click.IntRange(min=0),
    metavar="OFFSET",
    required=True,
    help="The first offset of the transaction, as find-hanging and producers show it.",
)
@yes_option
@json_option
@broker_options
def abort(
    topic: str,
    partition: int,
    start_offset: int,
    yes: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Abort an open transaction in a partition, by a marker that no coordinator sends.

    Use it for transactions that find-hanging shows. A marker in a transaction whose producer goes
    on makes the partition lose records that are then reported as committed. Asks for
    confirmation, unless --yes is given.

    Example: odradek transactions abort payments -p 0 --start-offset 42
    """
    from odradek.cli.transaction_requests import find_producers, write_abort_marker

    with connection.wire() as wire:
        wanted = _partitions(wire, topic, (partition,), None)
        open_ones = [
            one for one in find_producers(wire, wanted) if one.start_offset == start_offset
        ]
        if not open_ones:
            raise CommandError(
                f"{topic}-{partition} has no open transaction that begins at offset "
                f"{start_offset}: see odradek transactions producers {topic}"
            )
        (found,) = open_ones
        if not yes:
            question = f"Abort the transaction of {topic}-{partition} at offset {start_offset}?"
            click.confirm(printable(question), abort=True, err=True)
        write_abort_marker(wire, found)
    if as_json:
        return print_json({"aborted": found.document()})
    click.echo(printable(f"{topic}-{partition}: transaction at offset {start_offset} aborted"))


@transactions.command()
@click.argument("name", metavar="TRANSACTIONAL_ID", type=Name())
@yes_option
@json_option
@broker_options
def terminate(name: str, yes: bool, as_json: bool, connection: Connection) -> None:
    """Abort the open transaction of a transactional id, and fence its producer.

    The producer that uses the id gets an error. Asks for confirmation, unless --yes is given.

    Example: odradek transactions terminate payments-1 --yes
    """
    from odradek.cli import transaction_requests

    with connection.wire() as wire:
        transaction_requests.describe_transaction(wire, name)  # terminating would create it
        if not yes:
            question = f"Abort the transaction of {name}, and fence its producer?"
            click.confirm(printable(question), abort=True, err=True)
        transaction_requests.terminate(wire, name)
    if as_json:
        return print_json({"transactional_id": name, "outcome": "terminated"})
    click.echo(printable(f"{name}: terminated"))


def _partitions(
    wire: Wire, topic: str | None, numbers: tuple[int, ...], broker: int | None
) -> list[tuple[str, int]]:
    """Return the partitions of a topic, or of all, of which a broker has replicas."""
    if broker is not None:
        wire.require_broker(broker)
    if topic is not None:
        wire.require_partitions(topic, numbers)
    found = [
        (name, one)
        for name, described in wire.topics(None if topic is None else [topic]).items()
        for one in described.partitions
        if (not numbers or one.partition_index in numbers)
        and (broker is None or broker in one.replica_nodes)
    ]
    if topic is not None and not found:
        raise CommandError(f"broker {broker} has no replica of {topic}")
    if topic is None and broker is None:
        led = [(name, one) for name, one in found if one.leader_id >= 0]
        if len(led) < len(found):
            missing = count(len(found) - len(led), "partition")
            click.echo(f"{missing} without a leader: left out", err=True)
        found = led
    return [(name, one.partition_index) for name, one in found]


def _described(coordinator: int, found: TransactionState) -> dict[str, Any]:
    start_ms = found.transaction_start_time_ms
    return {
        "transactional_id": found.transactional_id,
        "state": state_name(found.transaction_state),
        "coordinator": coordinator,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "start_time_ms": None if start_ms == _NEVER else start_ms,
        "partitions": [
            {"topic": topic.topic, "partition": number}
            for topic in sorted(found.topics, key=lambda one: one.topic)
            for number in sorted(topic.partitions)
        ],
    }


def _show_producers(name: str, found: list[Producer], as_json: bool, nothing: str) -> None:
    if as_json:
        return print_json({name: [one.document() for one in found]})
    if not found:
        return click.echo(printable(nothing))
    from odradek.cli.tables import print_rows

    print_rows(
        ["Topic", "Partition>", "Producer>", "Epoch>", "Sequence>", "Last record", "Open since>"],
        [
            (
                one.topic,
                one.partition,
                str(one.producer_id),
                one.producer_epoch,
                one.last_sequence,
                None if one.last_timestamp_ms is None else time_text(one.last_timestamp_ms),
                one.start_offset,
            )
            for one in found
        ],
    )


def _now_ms() -> int:
    return int(time.time() * 1000)
