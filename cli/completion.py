"""odradek completion: the script that completes commands in a shell, and names from a broker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    from odradek.cli.client import Admin

_VARIABLE = "_ODRADEK_COMPLETE"
# After a longer wait the user would rather type the name.
_TIMEOUT_S = 0.5


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, topics and groups in a shell.

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
    return _complete(context, incomplete, lambda admin: admin.topics)


def complete_groups(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the id of a group by asking the broker; return nothing without a broker."""

    def group_ids(admin: Admin) -> Iterable[str]:
        found = admin.client.list_consumer_groups(request_timeout=_TIMEOUT_S)
        return [one.group_id for one in found.result(_TIMEOUT_S).valid]

    return _complete(context, incomplete, group_ids)


def _complete(
    context: click.Context, incomplete: str, names: Callable[[Admin], Iterable[str]]
) -> list[CompletionItem]:
    # No error may print a message into the middle of the shell's line.
    with contextlib.suppress(Exception):
        from odradek.cli.client import Connection
        from odradek.cli.place import find_place

        given = context.params
        named = given.get("bootstrap_servers")
        place = find_place(named, given.get("pairs") or (), given.get("client_config"))
        admin = Connection(place.properties, connect_timeout_s=_TIMEOUT_S).admin()
        taken = given.get(next((k for k in ("names", "groups") if k in given), "")) or ()
        return [
            CompletionItem(name)
            for name in sorted(names(admin))
            # A name with line ends would become several; others cannot be seen.
            if name.isprintable() and name.startswith(incomplete) and name not in taken
        ]
    return []
