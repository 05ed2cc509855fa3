"""All commands: what their helps promise, and what a help costs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from bench.processes import ROOT
from odradek.cli.lazy import LazyGroup
from odradek.cli.main import main

HEAVY = (
    "confluent_kafka", "rich", "numpy", "numba", "aiohttp", "odradek.broker.main",
    "odradek.storage", "pyspark",
)  # fmt: skip


def _walk(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from _walk(command, (*path, name))


ALL = dict(_walk(main, ("odradek",)))
# The jobs' own parsers read the rest of the line; they are tried in tests/pipeline.
LEAVES = {
    path: command
    for path, command in ALL.items()
    if not isinstance(command, click.Group) and not path.startswith("odradek pipeline ")
}


def _lines(path: str) -> Iterator[tuple[str, LazyGroup]]:
    command = ALL.get(path, main)
    if isinstance(command, LazyGroup):
        for name in command.lazy:
            yield name, command


@pytest.mark.parametrize("path", ["odradek", *ALL])
def test_a_list_of_commands_has_their_own_first_sentences(path: str) -> None:
    for name, group in _lines(path):
        command = ALL[f"{path} {name}"]
        assert command.name == name
        assert group.lazy[name][1] == command.get_short_help_str(200)


@pytest.mark.parametrize("path", LEAVES)
def test_a_help_has_an_example_of_that_very_command(path: str) -> None:
    assert f"Example: {path}" in " ".join((LEAVES[path].help or "").split()), path


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"]], ids=" ".join)
def test_a_help_imports_nothing_that_takes_a_while(arguments: list[str]) -> None:
    program = "import sys\nfrom odradek.cli.main import main\n"
    program += f"main({arguments!r}, standalone_mode=False)\n"
    program += f"print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
