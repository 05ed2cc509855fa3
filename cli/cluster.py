"""odradek cluster: shows the brokers of any Kafka; changes clusters of Odradek's."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from odradek.cli.answer import print_json
from odradek.cli.ask import answer_or_exit, token_option, url_option
from odradek.cli.client import REQUEST_TIMEOUT_S, Admin, Connection, broker_options, json_option
from odradek.cli.cluster_moves import export, init
from odradek.cli.refusals import Act
from odradek.cli.words import count


@click.group()
def cluster() -> None:
    """Show the brokers of a cluster, move partitions between them; begin or end a cluster."""


cluster.add_command(init)
cluster.add_command(export)


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
@url_option
@json_option
@token_option
def rebalance(url: str, as_json: bool, token: str | None) -> None:
    """Let the workers of each machine lead equal shares of its partitions.

    Example: odradek cluster rebalance
    """
    _move(url, "/api/cluster/rebalance", {}, as_json, token)


@cluster.command()
@click.argument("broker", type=click.IntRange(min=0))
@url_option
@json_option
@token_option
def drain(broker: int, url: str, as_json: bool, token: str | None) -> None:
    """Let the other workers of its machine lead the partitions of a BROKER.

    Example: odradek cluster drain 2
    """
    _move(url, "/api/cluster/drain", {"broker": broker}, as_json, token)


def _move(
    url: str, path: str, parameters: dict[str, object], as_json: bool, token: str | None
) -> None:
    answer = answer_or_exit(url, path, parameters, post=True, token=token)
    if as_json:
        return print_json(answer)
    moves = answer["moves"]
    assert isinstance(moves, int)
    click.echo(
        f"{count(moves, 'partition')} on the way to another broker."
        if moves
        else "Nothing has to move."
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
