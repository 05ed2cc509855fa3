"""odradek logdirs: shows the log directories of brokers, and moves replicas between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.answer import print_json
from odradek.cli.arguments import Name, broker_option, partitions_option, topics_option
from odradek.cli.client import Connection, broker_options, json_option
from odradek.cli.completion import complete_topics
from odradek.cli.refusals import Act, AnswerError, CommandError, check, explain
from odradek.cli.words import count, size
from odradek.config.printable import printable

if TYPE_CHECKING:
    from odradek.cli.wire.client import Wire
    from odradek.protocol.messages.describe_log_dirs import DescribeLogDirsResult

_UNKNOWN = -1


@click.group()
def logdirs() -> None:
    """Show the log directories of brokers, and move replicas between them."""


@logdirs.command()
@topics_option("Show only the replicas of this topic")
@broker_option("Show only the directories of this broker.")
@json_option
@broker_options
def describe(
    topics: tuple[str, ...], broker: int | None, as_json: bool, connection: Connection
) -> None:
    """Show the directories, the space on their volumes, and the sizes of the replicas in them.

    A replica with a mark is on its way into the directory.

    Example: odradek logdirs describe --topic prices
    """
    with connection.wire() as wire:
        found = _described(wire, tuple(dict.fromkeys(topics)), broker)
    if as_json:
        return print_json({"brokers": found})
    from odradek.cli.tables import print_rows

    homes = [(one["broker"], home) for one in found for home in one["log_dirs"]]
    print_rows(
        ["Broker>", "Directory", "Replicas>", "Size>", "Usable>", "Total>", "State"],
        [_home_row(number, home) for number, home in homes],
    )
    replicas = [
        _replica_row(number, home["log_dir"], one)
        for number, home in homes
        for one in home["replicas"]
    ]
    if replicas:
        click.echo()
        print_rows(["Topic", "Partition>", "Broker>", "Size>", "Lag>", "Directory"], replicas)


@logdirs.command()
@click.argument("topic", type=Name(), shell_complete=complete_topics)
@partitions_option("Move")
@broker_option("The broker that has the replicas.", required=True)
@click.option(
    "--to", "directory", required=True, metavar="DIR", type=Name(),
    help="The directory, by its absolute path in the broker's log.dirs.",
)  # fmt: skip
@json_option
@broker_options
def move(
    topic: str,
    numbers: tuple[int, ...],
    broker: int,
    directory: str,
    as_json: bool,
    connection: Connection,
) -> None:
    """Move a broker's replicas of a topic to another of its directories.

    The broker copies them while it serves them; describe shows how far they are.

    Example: odradek logdirs move prices -p 0 --broker 1 --to /data/second
    """
    with connection.wire() as wire:
        wire.require_broker(broker)
        chosen = _replicas_of(wire, topic, numbers, broker)
        _require_directory(wire, topic, broker, directory)
        _move(wire, topic, chosen, broker, directory)
    if as_json:
        moves = [{"topic": topic, "partition": number} for number in chosen]
        return print_json({"broker": broker, "log_dir": directory, "moves": moves})
    moved = count(len(chosen), "replica")
    click.echo(printable(f"{topic}: {moved} on the way to {directory} of broker {broker}"))


def _described(wire: Wire, topics: Sequence[str], broker: int | None) -> list[dict[str, Any]]:
    """Return the directories of all brokers, or of one, with all replicas or those of topics."""
    from odradek.protocol.messages.describe_log_dirs import (
        DescribableLogDirTopic,
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
    )

    if broker is not None:
        wire.require_broker(broker)
    wanted = [
        DescribableLogDirTopic(topic=name, partitions=wire.require_partitions(name))
        for name in topics
    ]
    act = Act("describe log directories", "DESCRIBE on the cluster")
    brokers = sorted(wire.brokers) if broker is None else [broker]
    request = DescribeLogDirsRequest(topics=wanted or None)
    answers = wire.ask_each(dict.fromkeys(brokers, request), DescribeLogDirsResponse, act)
    for answer in answers.values():
        check(answer.error_code, act)
    return [
        {
            "broker": number,
            "log_dirs": sorted(map(_home, answer.results), key=lambda one: str(one["log_dir"])),
        }
        for number, answer in answers.items()
    ]


def _home(found: DescribeLogDirsResult) -> dict[str, Any]:
    replicas = [
        {
            "topic": topic.name,
            "partition": one.partition_index,
            "size_bytes": one.partition_size,
            "offset_lag": one.offset_lag,
            "is_future": one.is_future_key,
        }
        for topic in found.topics
        for one in topic.partitions
    ]
    return {
        "log_dir": found.log_dir,
        "error": explain(AnswerError(found.error_code)) if found.error_code else None,
        "total_bytes": _known(found.total_bytes),
        "usable_bytes": _known(found.usable_bytes),
        "is_cordoned": found.is_cordoned,
        "replicas": sorted(replicas, key=lambda one: (one["topic"], one["partition"])),
    }


def _replicas_of(wire: Wire, topic: str, numbers: Sequence[int], broker: int) -> list[int]:
    """Return the chosen partitions, or all that a broker has; raises CommandError without one."""
    wire.require_partitions(topic, numbers)
    held = [
        one.partition_index
        for one in wire.require_topic(topic).partitions
        if broker in one.replica_nodes
    ]
    missing = [f"-{number}" for number in numbers if number not in held]
    if missing or not held:
        where = f"{topic}{missing[0] if missing else ''}"
        raise CommandError(f"broker {broker} has no replica of {where}")
    return sorted(set(numbers) or held)


def _require_directory(wire: Wire, topic: str, broker: int, directory: str) -> None:
    """Raise CommandError for a directory that the broker does not have."""
    (found,) = _described(wire, (topic,), broker)
    known = [home["log_dir"] for home in found["log_dirs"]]
    if directory not in known:
        raise CommandError(
            f"broker {broker} has no log directory {directory}: it has {', '.join(known)}"
        )


def _move(wire: Wire, topic: str, numbers: list[int], broker: int, directory: str) -> None:
    from odradek.protocol.messages.alter_replica_log_dirs import (
        AlterReplicaLogDir,
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
        AlterReplicaLogDirTopic,
    )

    topics = [AlterReplicaLogDirTopic(name=topic, partitions=numbers)]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=directory, topics=topics)])
    act = Act(f"move replicas of {topic}", "ALTER on the cluster")
    answer = wire.ask(request, AlterReplicaLogDirsResponse, act, node=broker)
    for result in answer.results:
        for one in result.partitions:
            check(one.error_code, act)


def _home_row(broker: int, home: dict[str, Any]) -> tuple[object, ...]:
    replicas = home["replicas"]
    space = (home["usable_bytes"], home["total_bytes"])
    state = home["error"] or ("cordoned" if home["is_cordoned"] else "online")
    return (
        str(broker),
        home["log_dir"],
        len(replicas),
        size(sum(one["size_bytes"] for one in replicas)),
        *(None if one is None else size(one) for one in space),
        state,
    )


def _replica_row(broker: int, directory: str, one: dict[str, Any]) -> tuple[object, ...]:
    mark = "*" if one["is_future"] else ""
    return (
        one["topic"],
        one["partition"],
        str(broker),
        size(one["size_bytes"]),
        one["offset_lag"],
        f"{directory}{mark}",
    )


def _known(number: int) -> int | None:
    return None if number == _UNKNOWN else number
