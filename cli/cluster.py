"""odradek cluster: shows the brokers of any Kafka; changes clusters of Odradek's."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from odradek.cli.answer import print_json
from odradek.cli.ask import answer_or_exit, token_option, url_option
from odradek.cli.client import REQUEST_TIMEOUT_S, Admin, Connection, broker_options, json_option
from odradek.cli.cluster_fsck import fsck
from odradek.cli.cluster_moves import export, init
from odradek.cli.cluster_objects import objects
from odradek.cli.cluster_restore import restore
from odradek.cli.lazy import LazyGroup
from odradek.cli.refusals import Act
from odradek.cli.words import count


@click.group(cls=LazyGroup, aliases={"info": "status"})
def cluster() -> None:
    """Show the brokers of a cluster, move partitions between them; begin or end a cluster."""


for command in (init, export, objects, fsck, restore):
    cluster.add_command(command)


@cluster.command()
@json_option
@broker_options
def status(as_json: bool, connection: Connection) -> None:
    """Show the brokers, and how many partitions have no leader.

    Example: odradek cluster status
    """
    found = _found(connection.admin())
    if as_json:
        return print_json(found)
    brokers, partitions = len(found["brokers"]), found["partitions"]
    click.echo(
        f"Cluster {found['cluster_id']} has {count(brokers, 'broker')} and "
        f"{count(partitions, 'partition')}."
    )
    if found["without_leader"]:
        click.echo(f"{count(found['without_leader'], 'partition')} without a leader.")
    click.echo()
    _print_brokers(found)


@cluster.command()
@json_option
@broker_options
def brokers(as_json: bool, connection: Connection) -> None:
    """List the brokers, and how many partitions each leads.

    Example: odradek cluster brokers
    """
    found = _found(connection.admin())
    if as_json:
        return print_json({"brokers": found["brokers"]})
    _print_brokers(found)


@cluster.command()
@click.option(
    "--between-hosts",
    is_flag=True,
    help="Let all brokers lead equal shares: copy partitions to other hosts, too.",
)
@url_option
@json_option
@token_option
def rebalance(between_hosts: bool, url: str, as_json: bool, token: str | None) -> None:
    """Let the workers of each machine lead equal shares of its partitions.

    Example: odradek cluster rebalance
    """
    wanted: dict[str, object] = {"between_hosts": "true"} if between_hosts else {}
    _move(url, "/api/cluster/rebalance", wanted, as_json, token)


@cluster.command()
@click.argument("broker", type=click.IntRange(min=0))
@url_option
@json_option
@token_option
def drain(broker: int, url: str, as_json: bool, token: str | None) -> None:
    """Let other brokers lead the partitions of a BROKER.

    They are the other workers of its machine. Without any, its partitions are copied to the
    brokers of other machines.

    Example: odradek cluster drain 2
    """
    _move(url, "/api/cluster/drain", {"broker": broker}, as_json, token)


@cluster.command()
@url_option
@json_option
@token_option
def moves(url: str, as_json: bool, token: str | None) -> None:
    """List the partitions that are on their way to another broker.

    Example: odradek cluster moves
    """
    answer = answer_or_exit(url, "/api/cluster", {}, token=token)
    number, listed = answer["moving"], answer["moving_rows"]
    assert isinstance(number, int) and isinstance(listed, list)
    if as_json:
        return print_json({"moving": number, "moving_rows": listed})
    if not number:
        return click.echo("No partition is on its way to another broker.")
    from odradek.cli.tables import print_rows

    columns = ("topic", "partition", "from", "to", "copied_offset", "end_offset")
    print_rows(
        ["Topic", "Partition>", "From>", "To>", "Copied>", "End>"],
        [[one[name] for name in columns] for one in listed],
    )
    if number > len(listed):
        click.echo(f"and {number - len(listed):,} more")
    return None


def _move(
    url: str, path: str, parameters: dict[str, object], as_json: bool, token: str | None
) -> None:
    answer = answer_or_exit(url, path, parameters, post=True, token=token)
    if as_json:
        return print_json(answer)
    moves, copies = answer["moves"], answer["copies"]
    assert isinstance(moves, int) and isinstance(copies, int)
    click.echo(
        f"{count(moves, 'partition')} on the way to another broker."
        if moves
        else "Nothing has to move."
    )
    if copies:
        click.echo(
            f"The records of {count(copies, 'partition')} are copied to another host first: "
            "odradek cluster moves shows how far they are."
        )


def _found(admin: Admin) -> dict[str, Any]:
    asked = admin.client.describe_cluster(request_timeout=REQUEST_TIMEOUT_S)
    described = admin.wait(asked, Act("describe the cluster", "DESCRIBE on the cluster"))
    leaders = Counter(
        partition.leader
        for topic in admin.topics.values()
        for partition in topic.partitions.values()
    )
    return {
        "cluster_id": described.cluster_id,
        "partitions": leaders.total(),
        "without_leader": leaders[-1],
        "brokers": [
            {
                "broker": one.id,
                "address": f"{one.host}:{one.port}",
                "rack": one.rack,
                "leads": leaders[one.id],
            }
            for one in sorted(described.nodes, key=lambda node: node.id)
        ],
    }


def _print_brokers(found: dict[str, Any]) -> None:
    from odradek.cli.tables import print_rows

    print_rows(
        ["Broker>", "Address", "Rack", "Leads>"],
        [(one["broker"], one["address"], one["rack"], one["leads"]) for one in found["brokers"]],
    )
