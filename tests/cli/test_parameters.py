"""The same thing is named in the same way by all commands, and completed in all of them."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from odradek.cli.completion import (
    complete_configs,
    complete_groups,
    complete_share_groups,
    complete_topics,
)
from odradek.cli.main import main

NEW = {"topics create"}  # its names do not exist yet
SETTINGS = {"--config", "--set", "--delete-config", "--delete"}


def commands(
    group: click.Group, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            if name != "pipeline":  # the jobs' own parsers read their lines
                yield from commands(found, (*words, name))
        else:
            yield " ".join((*words, name)), found


ALL = dict(commands(main))
COMPLETING = (complete_topics, complete_groups, complete_share_groups, complete_configs)


def _expected(name: str, one: click.Parameter) -> object:
    """Return the function that completes a parameter, None for most."""
    if isinstance(one, click.Argument):
        label = one.make_metavar(click.Context(ALL[name])).strip("[].")
        if label == "GROUP":
            return complete_share_groups if name.startswith("share-groups ") else complete_groups
        return complete_topics if label == "TOPIC" and name not in NEW else None
    options = set(one.opts)
    if "--topic" in options:
        return complete_topics
    if "--group" in options:
        return complete_groups
    is_setting = (one.metavar or "").startswith("KEY") and options & SETTINGS
    return complete_configs if is_setting else None


@pytest.mark.parametrize("name", ALL)
def test_topics_groups_and_settings_are_completed_everywhere(name: str) -> None:
    found = {
        one.name: (given if (given := one._custom_shell_complete) in COMPLETING else None)
        for one in ALL[name].params
    }
    assert found == {one.name: _expected(name, one) for one in ALL[name].params}


def test_a_partition_is_the_same_option_everywhere() -> None:
    found = {
        name: one
        for name, command in ALL.items()
        for one in command.params
        if isinstance(one, click.Option) and {"-p", "--partition"} & set(one.opts)
    }
    assert {"consume", "produce", "get", "records delete", "groups reset-offsets",
            "cleaner plan", "cleaner run", "cleaner verify", "transactions abort",
            "transactions producers", "share-groups reset-offsets",
            "logdirs move"} <= set(found)  # fmt: skip
    for name, one in found.items():
        assert one.opts == ["-p", "--partition"], name
        assert one.metavar == "N", name
        assert isinstance(one.type, click.IntRange) and one.type.min == 0, name
        assert one.multiple == ("may be repeated" in (one.help or "")), name
    assert {name for name, one in found.items() if one.multiple} == {
        "consume", "records delete", "groups reset-offsets", "transactions find-hanging",
        "transactions producers", "share-groups reset-offsets", "logdirs move",
    }  # fmt: skip
