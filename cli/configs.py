"""odradek configs: describes and changes settings of topics, brokers and groups of any Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from odradek.cli.answer import print_json
from odradek.cli.arguments import Name, pairs_option
from odradek.cli.client import Admin, Connection, broker_options, json_option
from odradek.cli.completion import complete_configs, complete_groups, complete_topics
from odradek.cli.settings import (
    Changes,
    Setting,
    alter_settings,
    describe_settings,
    setting_json,
    source_text,
)
from odradek.config.printable import printable

F = TypeVar("F", bound=Callable[..., None])


def _of_options(command: F) -> F:
    """Add the options for the topic, broker or group that has the settings."""
    for option in (
        click.option(
            "--group",
            help="The group that has the settings.",
            type=Name(),
            shell_complete=complete_groups,
        ),
        click.option(
            "--broker",
            type=click.IntRange(0),
            metavar="ID",
            help="The broker that has the settings.",
        ),
        click.option(
            "--topic",
            help="The topic that has the settings.",
            type=Name(),
            shell_complete=complete_topics,
        ),
    ):
        command = option(command)
    return command


@click.group()
def configs() -> None:
    """Describe and change settings of topics, brokers, groups."""


@configs.command()
@_of_options
@click.option("--all", "is_all", is_flag=True, help="Show defaults, too.")
@json_option
@broker_options
def describe(
    topic: str | None,
    broker: int | None,
    group: str | None,
    is_all: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Show settings, their sources, and the values they override.

    Example: odradek configs describe --topic prices
    """
    kind, name = _resource(topic, broker, group)
    admin = _connected(connection, kind, name)
    settings = describe_settings(admin, kind, [name])[name]
    shown = [one for one in settings.values() if is_all or not one.is_default]
    if as_json:
        return print_json({kind: name, "configs": [setting_json(one) for one in shown]})
    if not shown:
        return click.echo("All settings have their defaults: --all shows them.")
    from odradek.cli.tables import print_rows

    print_rows(
        ["Setting", "Value", "From", "Otherwise"],
        [
            (
                one.name,
                "(secret)" if one.is_sensitive else one.value,
                source_text(one.source),
                _otherwise(one),
            )
            for one in shown
        ],
    )


@configs.command()
@_of_options
@pairs_option(
    "--set", "configs", help="Set a setting to a value.", shell_complete=complete_configs
)
@click.option(
    "--delete",
    "deleted",
    multiple=True,
    metavar="KEY",
    shell_complete=complete_configs,
    help="Delete a setting: its value comes from the broker or the default again.",
)
@json_option
@broker_options
def alter(
    topic: str | None,
    broker: int | None,
    group: str | None,
    configs: tuple[tuple[str, str], ...],
    deleted: tuple[str, ...],
    as_json: bool,
    connection: Connection,
) -> None:
    """Change settings: all of them, or none.

    Example: odradek configs alter --topic prices --set min.cleanable.dirty.ratio=0.1
    """
    kind, name = _resource(topic, broker, group)
    changes = Changes(dict(configs), deleted)
    if not changes:
        raise click.UsageError("name a change: --set KEY=VALUE or --delete KEY")
    admin = _connected(connection, kind, name)
    alter_settings(admin, kind, name, changes)
    if as_json:
        return print_json({kind: name, **changes.document()})
    click.echo(f"{kind} {printable(name)}: altered")


def _resource(topic: str | None, broker: int | None, group: str | None) -> tuple[str, str]:
    given = {"topic": topic, "broker": broker, "group": group}
    chosen = [(kind, str(name)) for kind, name in given.items() if name is not None]
    if len(chosen) != 1:
        raise click.UsageError("name exactly one of --topic, --broker and --group")
    return chosen[0]


def _connected(connection: Connection, kind: str, name: str) -> Admin:
    """Connect, and require that the topic or broker exists; a group need not exist."""
    admin = connection.admin()
    if kind == "topic":
        admin.require_topic(name)
    elif kind == "broker":
        admin.require_broker(int(name))
    return admin


def _otherwise(setting: Setting) -> str:
    """Return the values that would apply if a setting were deleted, in order."""
    others = [one for one in setting.synonyms if one[2] != setting.source]
    return ", ".join(f"{name}={value} ({source_text(source)})" for name, value, source in others)
