"""odradek groups: lists, describes, deletes and resets consumer groups of any Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.answer import print_json
from odradek.cli.arguments import Name, yes_option
from odradek.cli.client import REQUEST_TIMEOUT_S, Admin, Connection, broker_options, json_option
from odradek.cli.completion import complete_groups
from odradek.cli.positions import (
    BEGINNING,
    END,
    Partition,
    Position,
    move_options,
    print_moved,
    resolve,
)
from odradek.cli.refusals import Act, CommandError, Unavailable, did_you_mean, refused
from odradek.cli.words import count, state_text
from odradek.config.printable import printable

if TYPE_CHECKING:
    from confluent_kafka.admin import ConsumerGroupDescription

# Kafka's names of two states, and librdkafka's.
_NAMES = {"PREPARING_REBALANCE": "PREPARING_REBALANCING",
          "COMPLETING_REBALANCE": "COMPLETING_REBALANCING"}  # fmt: skip
_STATES = {name: state_text(kafkas) for kafkas, name in _NAMES.items()}
# Groups that have other commands, and the protocol types of those that these commands are for.
_OTHER_TYPES = {"SHARE": "odradek share-groups", "STREAMS": "kafka-streams-groups.sh"}
_CONSUMERS = ("consumer", "")
_GONE = ("DEAD", "UNKNOWN")
_NO_COORDINATOR_YET = (
    "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS",
)  # fmt: skip
_BACKOFF_S = 0.1
_UNCOMMITTED = (
    "* There no offset is committed: the lag is that of a consumer with "
    "auto.offset.reset=earliest; with latest it would be 0."
)

_groups_argument = click.argument(
    "names",
    nargs=-1,
    required=True,
    metavar="GROUP...",
    type=Name(),
    shell_complete=complete_groups,
)


@click.group()
def groups() -> None:
    """List, describe, delete and reset consumer groups.

    Groups of both protocols are shown, classic and consumer (KIP-848). Share groups and streams
    groups are listed, too; odradek share-groups has more about share groups.
    """


@groups.command("list")
@json_option
@broker_options
def list_groups(as_json: bool, connection: Connection) -> None:
    """List groups, with their states and types.

    Example: odradek groups list
    """
    found = sorted(_listed(connection.admin()), key=lambda one: one["group"])
    if as_json:
        return print_json({"groups": found})
    if not found:
        return click.echo("There are no consumer groups.")
    from odradek.cli.tables import print_rows

    print_rows(
        ["Group", "State", "Type"],
        [(one["group"], _state_text(one["state"]), one["type"].lower()) for one in found],
    )


@groups.command()
@_groups_argument
@json_option
@broker_options
def describe(names: tuple[str, ...], as_json: bool, connection: Connection) -> None:
    """Show a group's members, their partitions, and the lag.

    The lag is the number of offsets from the committed offset to the end of the partition. A
    partition of the group's topics without a commit has a mark: its lag is that of a consumer
    that begins at the earliest offset, since brokers do not know auto.offset.reset.

    Example: odradek groups describe billing
    """
    admin = connection.admin()
    described = [_described(admin, name) for name in dict.fromkeys(names)]
    if as_json:
        return print_json({"groups": described})
    for number, one in enumerate(described):
        if number:
            click.echo()
        _show(one)


@groups.command()
@_groups_argument
@yes_option
@json_option
@broker_options
def delete(names: tuple[str, ...], yes: bool, as_json: bool, connection: Connection) -> None:
    """Delete groups without members, and their committed offsets.

    Asks for confirmation, unless --yes is given.

    Example: odradek groups delete billing --yes
    """
    admin = connection.admin()
    names = tuple(dict.fromkeys(names))
    _require_groups(admin, names)
    if not yes:
        question = f"Delete {', '.join(names)} with the committed offsets?"
        click.confirm(printable(question), abort=True, err=True)
    futures = admin.client.delete_consumer_groups(
        list(names), request_timeout=REQUEST_TIMEOUT_S
    )
    for name in names:
        admin.wait(futures[name], Act(f"delete group {name}", f"DELETE on group {name}"))
        if not as_json:
            click.echo(f"{printable(name)}: deleted")
    if as_json:
        print_json({"groups": [{"group": name, "outcome": "deleted"} for name in names]})


@groups.command("reset-offsets")
@click.argument("name", metavar="GROUP", type=Name(), shell_complete=complete_groups)
@move_options("The topic whose offsets to move")
@json_option
@broker_options
def reset_offsets(
    name: str,
    topics: tuple[str, ...],
    numbers: tuple[int, ...],
    position: Position,
    dry_run: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Move a group's committed offsets.

    They are moved in all partitions of each topic, or in some. The group must have no members. A
    group that does not exist yet is created.

    Example: odradek groups reset-offsets billing --topic prices --to beginning --dry-run
    """
    admin = connection.admin()
    chosen = {
        topic: admin.require_partitions(topic, numbers) for topic in dict.fromkeys(topics)
    }
    _with_coordinator(admin, name)
    before = _committed(admin, name)
    after = resolve(admin, chosen, position)
    if not dry_run:
        _commit(admin, name, after)
    print_moved(name, before, after, dry_run=dry_run, as_json=as_json)


def _listed(admin: Admin) -> list[dict[str, str]]:
    """Return groups of all types; of consumers alone where only librdkafka can list them."""
    try:
        return _listed_with_types(admin.connection)
    except Unavailable:
        return _listed_by_librdkafka(admin)


def _listed_with_types(connection: Connection) -> list[dict[str, str]]:
    from odradek.cli.wire.groups import list_groups

    with connection.wire() as wire:
        found = list_groups(wire)
    return [
        {"group": one.group, "state": _NAMES.get(one.state, one.state), "type": one.type}
        for one in found
        if one.type in _OTHER_TYPES or one.protocol in _CONSUMERS
    ]


def _listed_by_librdkafka(admin: Admin) -> list[dict[str, str]]:
    act = Act("list groups", "DESCRIBE on the cluster, or on groups")
    found = admin.wait(
        admin.client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S), act
    )
    return [
        {"group": one.group_id, "state": one.state.name, "type": one.type.name}
        for one in found.valid
    ]


def _require_groups(admin: Admin, names: Sequence[str]) -> None:
    """Raise CommandError for the first group that is none of consumers.

    librdkafka describes groups that do not exist.
    """
    types = {one["group"]: one["type"] for one in _listed(admin)}
    for name in names:
        if name not in types:
            raise CommandError(f"there is no group {name}{did_you_mean(name, types)}")
        if types[name] in _OTHER_TYPES:
            raise CommandError(
                f"{name} is a {types[name].lower()} group: use {_OTHER_TYPES[types[name]]}"
            )


def _described(admin: Admin, name: str) -> dict[str, Any]:
    found = _with_coordinator(admin, name)
    if found.state.name in _GONE:
        _require_groups(admin, [name])
    members = [
        {
            "member": one.member_id,
            "client": one.client_id,
            "host": one.host,
            "instance": one.group_instance_id,
            "partitions": [
                {"topic": p.topic, "partition": p.partition}
                for p in (one.assignment.topic_partitions if one.assignment else ())
            ],
        }
        for one in found.members
    ]
    return {
        "group": name,
        "state": found.state.name,
        "type": found.type.name,
        "assignor": found.partition_assignor or None,
        "coordinator": found.coordinator.id if found.coordinator else None,
        "members": members,
        "offsets": _lags(admin, name, members),
    }


def _with_coordinator(admin: Admin, name: str) -> ConsumerGroupDescription:
    """Describe a group once it has a coordinator; a new cluster creates it at the first request.

    librdkafka 2.16 aborts the process when a group's offsets are requested before that.
    """
    from confluent_kafka import KafkaException

    act = Act(f"describe group {name}", f"DESCRIBE on group {name}")
    deadline_s = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        futures = admin.client.describe_consumer_groups([name], request_timeout=REQUEST_TIMEOUT_S)
        try:
            found: ConsumerGroupDescription = futures[name].result(REQUEST_TIMEOUT_S)
            return found
        except KafkaException as error:
            is_passing = error.args[0].name() in _NO_COORDINATOR_YET
            if not is_passing or time.monotonic() > deadline_s:
                raise refused(error.args[0], act, admin.connection.reason) from error
            time.sleep(_BACKOFF_S)


def _lags(
    admin: Admin, name: str, members: Iterable[dict[str, Any]]
) -> list[dict[str, object]]:
    owners: dict[Partition, str] = {
        (one["topic"], one["partition"]): member["member"]
        for member in members
        for one in member["partitions"]
    }
    committed = _committed(admin, name)
    # All partitions of a topic: those without a commit have records for the group, too.
    asked = {
        topic: sorted(admin.topics[topic].partitions)
        for topic in {topic for topic, _ in (*owners, *committed)}
        if topic in admin.topics
    }
    ends = resolve(admin, asked, END)
    uncommitted = {
        topic: numbers
        for topic, every in asked.items()
        if (numbers := [one for one in every if (topic, one) not in committed])
    }
    starts = resolve(admin, uncommitted, BEGINNING) if uncommitted else {}
    return [
        {
            "topic": one[0],
            "partition": one[1],
            "committed_offset": committed.get(one),
            "end_offset": ends.get(one),
            **_lag(committed.get(one), starts.get(one), ends.get(one)),
            "member": owners.get(one),
        }
        for one in sorted({*owners, *committed, *ends})
    ]


def _lag(committed: int | None, start: int | None, end: int | None) -> dict[str, object]:
    """Return the lag, and where it is counted from; both are None for a topic that is gone."""
    if end is None:
        return {"lag": None, "lag_from": None}
    if committed is not None:
        return {"lag": end - committed, "lag_from": "commit"}
    assert start is not None, "it was asked for where nothing is committed"
    return {"lag": end - start, "lag_from": "earliest"}


def _committed(admin: Admin, name: str) -> dict[Partition, int]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    futures = admin.client.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(name)], request_timeout=REQUEST_TIMEOUT_S
    )
    act = Act(f"read the offsets of group {name}", f"DESCRIBE on group {name}")
    found = admin.wait(futures[name], act)
    return {
        (one.topic, one.partition): one.offset
        for one in found.topic_partitions or ()
        if one.offset >= 0
    }


def _commit(admin: Admin, name: str, offsets: dict[Partition, int]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    asked = ConsumerGroupTopicPartitions(
        name, [TopicPartition(*one, at) for one, at in sorted(offsets.items())]
    )
    futures = admin.client.alter_consumer_group_offsets(
        [asked], request_timeout=REQUEST_TIMEOUT_S
    )
    act = Act(f"move the offsets of group {name}", f"READ on group {name}, and on the topics")
    found = admin.wait(futures[name], act)
    for one in found.topic_partitions or ():
        if one.error is not None:
            raise refused(one.error, act)


def _show(one: dict[str, Any]) -> None:
    from odradek.cli.tables import print_rows

    state = _state_text(one["state"])
    assignor = f", assignor {one['assignor']}" if one["assignor"] else ""
    members = count(len(one["members"]), "member")
    line = f"{one['group']}  {state}, {one['type'].lower()}, {members}{assignor}"
    click.echo(printable(line))
    if one["offsets"]:
        columns = ["Topic", "Partition>", "Committed>", "End>", "Lag>", "Member"]
        print_rows(columns, [_offsets_row(row) for row in one["offsets"]])
        if any(row["lag_from"] == "earliest" for row in one["offsets"]):
            click.echo(_UNCOMMITTED)
    else:
        click.echo("It has committed no offsets.")
    if one["members"]:
        click.echo()
        print_rows(
            ["Member", "Client", "Host", "Partitions>"],
            [(m["member"], m["client"], m["host"], len(m["partitions"])) for m in one["members"]],
        )


def _offsets_row(row: dict[str, Any]) -> tuple[object, ...]:
    lag = f"{row['lag']:,}*" if row["lag_from"] == "earliest" else row["lag"]
    names = ("topic", "partition", "committed_offset", "end_offset")
    return *(row[name] for name in names), lag, row["member"]


def _state_text(state: str) -> str:
    return _STATES.get(state, state.lower())
