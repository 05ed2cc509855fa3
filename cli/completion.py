"""odradek completion: the script that completes commands and settings, and a broker's names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, cast

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    from odradek.cli.client import Connection
    from odradek.cli.place import Place

_VARIABLE = "_ODRADEK_COMPLETE"
# After a longer wait the user would rather type the name.
_TIMEOUT_S = 0.5


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, topics, groups and settings in a shell.

    For bash, put this into ~/.bashrc: eval "$(odradek completion bash)"

    For zsh, put this into ~/.zshrc: eval "$(odradek completion zsh)"

    For fish, run: odradek completion fish > ~/.config/fish/completions/odradek.fish

    Example: odradek completion bash
    """
    from odradek.cli.main import main

    kind = get_completion_class(shell)
    assert kind is not None
    # source() runs bash to learn its version, which fails on a machine without bash.
    made = kind(main, {}, "odradek", _VARIABLE)
    click.echo(made.source_template % made.source_vars())


def complete_topics(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a topic by asking the broker; return nothing without a broker."""
    return _complete(context, parameter, incomplete, lambda known: known.admin().topics)


def complete_groups(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the id of a group by asking the broker; return nothing without a broker."""

    def group_ids(connection: Connection) -> Iterable[str]:
        admin = connection.admin()  # which has to live until the answer comes
        found = admin.client.list_consumer_groups(request_timeout=_TIMEOUT_S)
        return [one.group_id for one in found.result(_TIMEOUT_S).valid]

    return _complete(context, parameter, incomplete, group_ids)


def complete_share_groups(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the id of a share group by asking the brokers; return nothing without one."""

    def group_ids(connection: Connection) -> Iterable[str]:
        from odradek.cli.wire.groups import list_groups

        with connection.wire(request_timeout_s=_TIMEOUT_S) as wire:
            return [one.group for one in list_groups(wire, ["share"])]

    return _complete(context, parameter, incomplete, group_ids)


def complete_configs(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a setting, without a broker."""
    equals = "" if parameter.metavar == "KEY" else "="
    return [
        CompletionItem(name + equals)
        for name in sorted(_settings(context, parameter))
        if name.startswith(incomplete)
    ]


def _settings(context: click.Context, parameter: click.Parameter) -> Collection[str]:
    """Return the names of the settings that an option takes."""
    from odradek.config.effective import BROKER_OPTION, SETTABLE_OPTION, TOPIC_OPTION
    from odradek.config.group import GROUP_OPTION

    owners: dict[str, Collection[str]] = {
        "topic": TOPIC_OPTION, "broker": SETTABLE_OPTION, "group": GROUP_OPTION
    }  # fmt: skip
    if owners.keys() <= {one.name for one in context.command.params}:
        named = [one for one in owners if context.params.get(one) is not None]
        return {name for one in named or owners for name in owners[one]}
    return BROKER_OPTION if "--set" in parameter.opts else TOPIC_OPTION


def _complete(
    context: click.Context,
    parameter: click.Parameter,
    incomplete: str,
    names: Callable[[Connection], Iterable[str]],
) -> list[CompletionItem]:
    # No error may print a message into the middle of the shell's line.
    with contextlib.suppress(Exception):
        from odradek.cli.place import find_place

        given = context.params
        named = given.get("bootstrap_servers")
        place = find_place(named, given.get("pairs") or (), given.get("client_config"))
        url = _url(context, place)
        found = _topics_at(url) if url else names(_connection(place))
        taken = given.get(parameter.name or "")
        taken = taken if isinstance(taken, tuple | list) else ()
        return [
            CompletionItem(name)
            for name in sorted(found)
            # A name with line ends would become several; others cannot be seen.
            if name.isprintable() and name.startswith(incomplete) and name not in taken
        ]
    return []


def _connection(place: Place) -> Connection:
    from odradek.cli.client import Connection

    return Connection(place.properties, connect_timeout_s=_TIMEOUT_S)


def _url(context: click.Context, place: Place) -> str | None:
    """Return the URL that a command asks over HTTP, None where it names brokers."""
    from odradek.cli.place import DEFAULT_URL, URL_ENVIRONMENT

    if "url" not in {one.name for one in context.command.params}:
        return None
    own = context.params.get("url") or place.url
    return own or (None if place.is_named else os.environ.get(URL_ENVIRONMENT, DEFAULT_URL))


def _topics_at(url: str) -> list[str]:
    from odradek.cli.ask import ask_with_token

    answer = cast(dict[str, Any], ask_with_token(url, "/api/topics", {}, timeout_s=_TIMEOUT_S))
    return [one["name"] for one in answer["topics"]]
