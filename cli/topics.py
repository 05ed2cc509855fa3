"""odradek topics: lists, describes, creates, alters and deletes the topics of any Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.answer import print_json
from odradek.cli.arguments import Name, pairs_option, yes_option
from odradek.cli.client import REQUEST_TIMEOUT_S, Admin, Connection, broker_options, json_option
from odradek.cli.completion import complete_configs, complete_topics
from odradek.cli.refusals import Act, CommandError
from odradek.cli.settings import (
    Changes,
    alter_settings,
    describe_settings,
    setting_json,
    source_text,
)
from odradek.cli.words import count

if TYPE_CHECKING:
    from confluent_kafka.admin import TopicDescription

Pairs = tuple[tuple[str, str], ...]

_KNOWN_TIMEOUT_S = 5.0
_KNOWN_CHECK_S = 0.02
# Shown in place of a value that the client may not read.
_UNKNOWN = "?"
_URL_SAFE = str.maketrans("+/", "-_")  # as Kafka writes ids

_topics_argument = click.argument(
    "names",
    nargs=-1,
    required=True,
    metavar="TOPIC...",
    type=Name(),
    shell_complete=complete_topics,
)


@click.group()
def topics() -> None:
    """List, describe, create, alter and delete topics."""


@topics.command("list")
@click.option("--internal", is_flag=True, help="List the broker's internal topics, too.")
@json_option
@broker_options
def list_topics(internal: bool, as_json: bool, connection: Connection) -> None:
    """List topics, with their partitions and cleanup policies.

    Example: odradek topics list
    """
    from odradek.broker.topics.names import INTERNAL

    admin = connection.admin()
    names = sorted(name for name in admin.topics if internal or name not in INTERNAL)
    settings = describe_settings(admin, "topic", names, omits_denied=True)
    found = [
        {
            "topic": name,
            "partitions": len(admin.topics[name].partitions),
            "replication_factor": _replication_factor(admin.topics[name]),
            "cleanup_policy": settings[name]["cleanup.policy"].value if name in settings else None,
            "is_internal": name in INTERNAL,
        }
        for name in names
    ]
    if as_json:
        return print_json({"topics": found})
    if not found:
        return click.echo("There are no topics: odradek topics create NAME creates one.")
    from odradek.cli.tables import print_rows

    print_rows(
        ["Topic", "Partitions>", "Replicas>", "Policy"],
        [
            (
                one["topic"],
                one["partitions"],
                one["replication_factor"],
                one["cleanup_policy"] or _UNKNOWN,
            )
            for one in found
        ],
    )
    if len(settings) < len(names):
        click.echo(f"{_UNKNOWN} needs the right DESCRIBE_CONFIGS on the topic.", err=True)


@topics.command()
@_topics_argument
@json_option
@broker_options
def describe(names: tuple[str, ...], as_json: bool, connection: Connection) -> None:
    """Show a topic's partitions, offsets and settings.

    Only settings from a source other than Kafka's defaults are shown.

    Example: odradek topics describe prices
    """
    admin = connection.admin()
    names = tuple(dict.fromkeys(names))
    admin.require_topics(names)
    described = [_described(admin, name) for name in names]
    if as_json:
        return print_json({"topics": described})
    from odradek.cli.tables import print_rows

    for number, one in enumerate(described):
        if number:
            click.echo()
        partitions, settings = one["partitions"], one["configs"]
        message = count(len(partitions), "partition")
        click.echo(f"{one['topic']}  {message}, id {one['topic_id']}")
        columns = ["Partition>", "Leader>", "Replicas", "In sync", "Start>", "End>"]
        print_rows(columns, [_partition_row(partition) for partition in partitions])
        if settings is None:
            message = f"Its settings need the right DESCRIBE_CONFIGS on topic {one['topic']}."
            click.echo(message, err=True)
        elif settings:
            click.echo()
            print_rows(
                ["Setting", "Value", "From"],
                [(s["name"], s["value"], source_text(s["source"])) for s in settings],
            )


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...", type=Name())
@click.option(
    "--partitions",
    type=click.IntRange(1),
    help="The number of partitions. [default: the broker's num.partitions]",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="The number of replicas of each partition.",
)
@pairs_option(
    "--config", "configs", help="A setting of the topic.", shell_complete=complete_configs
)
@click.option("--compact", is_flag=True, help="The same as --config cleanup.policy=compact.")
@click.option("--if-not-exists", is_flag=True, help="Accept a topic that exists already.")
@json_option
@broker_options
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int,
    configs: Pairs,
    compact: bool,
    if_not_exists: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Create topics.

    Example: odradek topics create prices --compact
    """
    from confluent_kafka.admin import NewTopic

    settings = dict(configs)
    if compact and settings.setdefault("cleanup.policy", "compact") != "compact":
        raise click.UsageError("--compact contradicts --config cleanup.policy")
    admin = connection.admin()
    names = tuple(dict.fromkeys(names))
    missing = [name for name in names if not (if_not_exists and name in admin.topics)]
    made = [
        NewTopic(name, partitions or -1, replication_factor, config=settings) for name in missing
    ]
    futures = admin.client.create_topics(made, request_timeout=REQUEST_TIMEOUT_S) if made else {}
    wait_until_known(admin, [name for name, one in futures.items() if not one.exception()])
    _report(
        admin,
        [(name, futures.get(name), Act(f"create topic {name}", f"CREATE on topic {name}"))
         for name in names],
        ("created", "exists"),
        as_json=as_json,
    )  # fmt: skip


def wait_until_known(
    admin: Admin, names: Sequence[str], *, gone: Sequence[str] = ()
) -> None:
    """Wait until a broker lists new topics, and no deleted ones, as the next command finds them.

    Kafka's controller answers when they are created; its brokers learn of them a little later.
    """
    deadline = time.monotonic() + _KNOWN_TIMEOUT_S

    def is_known() -> bool:
        return admin.topics.keys() >= set(names) and admin.topics.keys().isdisjoint(gone)

    while not is_known() and time.monotonic() < deadline:
        time.sleep(_KNOWN_CHECK_S)
        admin.connect()


@topics.command()
@_topics_argument
@yes_option
@json_option
@broker_options
def delete(names: tuple[str, ...], yes: bool, as_json: bool, connection: Connection) -> None:
    """Delete topics, with all their records.

    Asks for confirmation, unless --yes is given.

    Example: odradek topics delete prices --yes
    """
    admin = connection.admin()
    names = tuple(dict.fromkeys(names))
    admin.require_topics(names)
    if not yes:
        click.confirm(f"Delete {', '.join(names)} with all records?", abort=True, err=True)
    futures = admin.client.delete_topics(list(names), request_timeout=REQUEST_TIMEOUT_S)
    _report(
        admin,
        [(name, futures[name], Act(f"delete topic {name}", f"DELETE on topic {name}"))
         for name in names],
        ("deleted", "was gone"),
        as_json=as_json,
    )  # fmt: skip


@topics.command()
@click.argument("name", metavar="TOPIC", type=Name(), shell_complete=complete_topics)
@pairs_option(
    "--config", "configs", help="Set a setting to a value.", shell_complete=complete_configs
)
@click.option(
    "--delete-config",
    "deleted",
    multiple=True,
    metavar="KEY",
    shell_complete=complete_configs,
    help="Delete a setting of the topic: the broker's setting applies again.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    help="The new number of partitions, which can only grow.",
)
@json_option
@broker_options
def alter(
    name: str,
    configs: Pairs,
    deleted: tuple[str, ...],
    partitions: int | None,
    as_json: bool,
    connection: Connection,
) -> None:
    """Change a topic's settings, or give it more partitions.

    With more partitions, keys go to other partitions than before: a compacted topic then keeps
    the last value of such a key in both partitions.

    Example: odradek topics alter prices --config delete.retention.ms=60000
    """
    from confluent_kafka.admin import NewPartitions

    changes = Changes(dict(configs), deleted)
    if not changes and partitions is None:
        raise click.UsageError("name a change: --config, --delete-config or --partitions")
    admin = connection.admin()
    admin.require_topic(name)
    # Settings come first: if they are refused, nothing has changed.
    if changes:
        alter_settings(admin, "topic", name, changes)
    if partitions is not None:
        asked = admin.client.create_partitions([NewPartitions(name, partitions)])
        admin.wait(asked[name], Act(f"give topic {name} {count(partitions, 'partition')}",
                                    f"ALTER on topic {name}"))  # fmt: skip
    if as_json:
        return print_json({"topic": name, "partitions": partitions, **changes.document()})
    click.echo(f"{name}: altered")


def _replication_factor(topic: Any) -> int:
    return max((len(one.replicas) for one in topic.partitions.values()), default=0)


def _described(admin: Admin, name: str) -> dict[str, Any]:
    from confluent_kafka import TopicCollection

    from odradek.cli.positions import BEGINNING, END, resolve

    act = Act(f"describe topic {name}", f"DESCRIBE on topic {name}")
    described: TopicDescription = admin.wait(
        admin.client.describe_topics(TopicCollection([name]))[name], act
    )
    ids = [one.id for one in described.partitions if one.leader is not None]
    start, end = (resolve(admin, {name: ids}, where) for where in (BEGINNING, END))
    settings = describe_settings(admin, "topic", [name], omits_denied=True).get(name)
    return {
        "topic": name,
        "topic_id": str(described.topic_id).translate(_URL_SAFE),
        "is_internal": described.is_internal,
        "partitions": [
            {
                "partition": one.id,
                "leader": None if one.leader is None else one.leader.id,
                "replicas": [node.id for node in one.replicas],
                "isr": [node.id for node in one.isr],
                "start_offset": start.get((name, one.id)),
                "end_offset": end.get((name, one.id)),
            }
            for one in described.partitions
        ],
        "configs": None
        if settings is None
        else [setting_json(one) for one in settings.values() if not one.is_default],
    }


def _partition_row(one: dict[str, Any]) -> tuple[object, ...]:
    replicas, isr = (",".join(map(str, one[name])) for name in ("replicas", "isr"))
    return (one["partition"], one["leader"], replicas, isr, one["start_offset"], one["end_offset"])


def _report(
    admin: Admin, asked: Iterable[tuple[str, Any, Act]], words: tuple[str, str], *, as_json: bool
) -> None:
    """Print the outcome for each topic; then print all refusals but the last, and raise that.

    `words` are the outcomes of a topic with a request, and of a topic that needed none.
    """
    done: list[dict[str, str]] = []
    refusals: list[CommandError] = []
    for name, future, act in asked:
        try:
            if future is not None:
                admin.wait(future, act)
            done.append({"topic": name, "outcome": words[future is None]})
        except CommandError as error:
            refusals.append(error)
            done.append({"topic": name, "outcome": "refused", "error": error.message})
    if as_json:
        print_json({"topics": done})
    for one in done:
        if not as_json and "error" not in one:
            click.echo(f"{one['topic']}: {one['outcome']}")
    for refusal in refusals[:-1]:
        refusal.show()
    if refusals:
        raise refusals[-1]
