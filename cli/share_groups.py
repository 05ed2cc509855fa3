"""odradek share-groups: lists, describes, resets and deletes share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.answer import print_json
from odradek.cli.arguments import Name, topics_option, yes_option
from odradek.cli.client import Connection, broker_options, json_option
from odradek.cli.completion import complete_share_groups
from odradek.cli.positions import Position, move_options, print_moved, resolve
from odradek.cli.words import count, state_name, state_text
from odradek.config.printable import printable

if TYPE_CHECKING:
    from odradek.cli.wire.client import Wire

_group_argument = click.argument(
    "name", metavar="GROUP", type=Name(), shell_complete=complete_share_groups
)
_groups_argument = click.argument(
    "names",
    nargs=-1,
    required=True,
    metavar="GROUP...",
    type=Name(),
    shell_complete=complete_share_groups,
)


@click.group("share-groups")
def share_groups() -> None:
    """List, describe, delete and reset share groups."""


@share_groups.command("list")
@json_option
@broker_options
def list_groups(as_json: bool, connection: Connection) -> None:
    """List share groups, with their states.

    Example: odradek share-groups list
    """
    from odradek.cli.wire.groups import list_groups

    with connection.wire() as wire:
        found = list_groups(wire, ["share"])
    if as_json:
        rows = [{"group": one.group, "state": one.state} for one in found]
        return print_json({"groups": rows})
    if not found:
        return click.echo("There are no share groups.")
    from odradek.cli.tables import print_rows

    print_rows(["Group", "State"], [(one.group, state_text(one.state)) for one in found])


@share_groups.command()
@_groups_argument
@json_option
@broker_options
def describe(names: tuple[str, ...], as_json: bool, connection: Connection) -> None:
    """Show a share group's members, their partitions, and the lag.

    The start is the first offset whose record may still be delivered; the lag is the number of
    records from there that no member has acknowledged.

    Example: odradek share-groups describe jobs
    """
    with connection.wire() as wire:
        described = [_described(wire, name) for name in dict.fromkeys(names)]
    if as_json:
        return print_json({"groups": described})
    for number, one in enumerate(described):
        if number:
            click.echo()
        _show(one)


@share_groups.command("reset-offsets")
@_group_argument
@move_options("The topic whose start offsets to move")
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
    """Move a share group's start offsets.

    They are moved in all partitions of each topic, or in some. The group must have no members.

    Example: odradek share-groups reset-offsets jobs --topic orders --to end --dry-run
    """
    from odradek.cli.share_group_requests import describe_group, find_offsets, move_offsets

    admin = connection.admin()
    chosen = {
        topic: admin.require_partitions(topic, numbers) for topic in dict.fromkeys(topics)
    }
    with connection.wire() as wire:
        describe_group(wire, name)
        before = {
            (one["topic"], one["partition"]): one["start_offset"]
            for one in find_offsets(wire, name)
        }
        after = resolve(admin, chosen, position)
        if not dry_run:
            move_offsets(wire, name, after)
    print_moved(name, before, after, dry_run=dry_run, as_json=as_json)


@share_groups.command("delete-offsets")
@_group_argument
@topics_option("The topic that the group forgets", required=True)
@yes_option
@json_option
@broker_options
def delete_offsets(
    name: str, topics: tuple[str, ...], yes: bool, as_json: bool, connection: Connection
) -> None:
    """Delete a share group's offsets of topics. The group must have no members.

    Asks for confirmation, unless --yes is given.

    Example: odradek share-groups delete-offsets jobs --topic orders --yes
    """
    from odradek.cli import share_group_requests

    wanted = tuple(dict.fromkeys(topics))
    with connection.wire() as wire:
        share_group_requests.describe_group(wire, name)
        for topic in wanted:
            wire.require_topic(topic)
        if not yes:
            question = f"Delete the offsets of share group {name} in {', '.join(wanted)}?"
            click.confirm(printable(question), abort=True, err=True)
        share_group_requests.delete_offsets(wire, name, wanted)
    if as_json:
        rows = [{"topic": topic, "outcome": "deleted"} for topic in wanted]
        return print_json({"group": name, "topics": rows})
    for topic in wanted:
        click.echo(printable(f"{name}: offsets in {topic} deleted"))


@share_groups.command()
@_groups_argument
@yes_option
@json_option
@broker_options
def delete(names: tuple[str, ...], yes: bool, as_json: bool, connection: Connection) -> None:
    """Delete share groups without members, and their offsets.

    Asks for confirmation, unless --yes is given.

    Example: odradek share-groups delete jobs --yes
    """
    from odradek.cli.share_group_requests import describe_group
    from odradek.cli.wire.groups import delete_group

    names = tuple(dict.fromkeys(names))
    with connection.wire() as wire:
        # A request to delete a group does not say of which kind it is.
        for name in names:
            describe_group(wire, name)
        if not yes:
            question = f"Delete {', '.join(names)} with the offsets?"
            click.confirm(printable(question), abort=True, err=True)
        for name in names:
            delete_group(wire, name)
            if not as_json:
                click.echo(f"{printable(name)}: deleted")
    if as_json:
        print_json({"groups": [{"group": name, "outcome": "deleted"} for name in names]})


def _described(wire: Wire, name: str) -> dict[str, Any]:
    from odradek.cli.share_group_requests import describe_group, find_offsets

    coordinator, found = describe_group(wire, name)
    return {
        "group": name,
        "state": state_name(found.group_state),
        "assignor": found.assignor_name or None,
        "coordinator": coordinator,
        "members": [
            {
                "member": one.member_id,
                "client": one.client_id,
                "host": one.client_host,
                "topics": sorted(one.subscribed_topic_names),
                "partitions": [
                    {"topic": topic.topic_name, "partition": number}
                    for topic in one.assignment.topic_partitions
                    for number in topic.partitions
                ],
            }
            for one in found.members
        ],
        "offsets": find_offsets(wire, name),
    }


def _show(one: dict[str, Any]) -> None:
    from odradek.cli.tables import print_rows

    members: Sequence[dict[str, Any]] = one["members"]
    assignor = f", assignor {one['assignor']}" if one["assignor"] else ""
    state = f"{state_text(one['state'])}, {count(len(members), 'member')}{assignor}"
    click.echo(printable(f"{one['group']}  {state}"))
    if one["offsets"]:
        rows = [tuple(row.values()) for row in one["offsets"]]
        print_rows(["Topic", "Partition>", "Start>", "Lag>"], rows)
    else:
        click.echo("It has no offsets.")
    if members:
        click.echo()
        print_rows(
            ["Member", "Client", "Host", "Partitions>"],
            [(m["member"], m["client"], m["host"], len(m["partitions"])) for m in members],
        )
