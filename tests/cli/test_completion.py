"""odradek completion: a shell completes commands, and the names that a broker knows."""

from __future__ import annotations

import functools
import shutil
import subprocess

import pytest
from click.testing import CliRunner

from bench.processes import free_port
from odradek.cli.client import Connection
from odradek.cli.main import main
from tests.cli.answering import answering
from tests.cli.commands import Commands, fresh

SHELLS = ("bash", "zsh", "fish")


def completed(bootstrap: str, *words: str) -> list[str]:
    """Return what bash would offer for the last word."""
    asked = {
        "_ODRADEK_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("odradek", *words)),
        "COMP_CWORD": str(len(words)),
        **Commands(bootstrap).environment,
    }
    result = CliRunner().invoke(main, [], prog_name="odradek", env=asked)
    assert result.stderr == ""
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_printed_that_asks_the_command(shell: str) -> None:
    script = Commands("").shown("completion", shell)
    assert f"_ODRADEK_COMPLETE={shell}_complete" in script
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=script, text=True, check=True)


def test_commands_and_options_are_completed_without_a_broker() -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    assert completed(nowhere, "to") == ["topics"]
    assert completed(nowhere, "topics", "de") == ["delete", "describe"]
    assert "--partition" in completed(nowhere, "consume", "--part")


def test_without_a_broker_no_name_is_completed_and_nobody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Without a time of its own, a completion would wait for longer than this test may take.
    monkeypatch.setattr("odradek.cli.client._HOPELESS_S", 600.0)
    patient = functools.partial(Connection, connect_timeout_s=600.0)
    monkeypatch.setattr("odradek.cli.client.Connection", patient)
    assert completed(f"127.0.0.1:{free_port()}", "consume", "pri") == []
    assert completed("nonsense", "groups", "describe", "b") == []


def test_settings_are_completed_without_a_broker() -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    dirty_ratio = ["min.cleanable.dirty.ratio="]
    assert completed(nowhere, "topics", "create", "a", "--config", "min.clean") == dirty_ratio
    deleted = completed(nowhere, "topics", "alter", "a", "--delete-config", "min.clean")
    assert deleted == ["min.cleanable.dirty.ratio"]
    alter = ("configs", "alter")
    assert completed(nowhere, *alter, "--topic", "a", "--set", "min.clean") == dirty_ratio
    broker = completed(nowhere, *alter, "--broker", "1", "--set", "log.cleaner.th")
    assert broker == ["log.cleaner.threads="]
    assert "log.dirs=" not in completed(nowhere, *alter, "--group", "g", "--set", "")
    assert "log.dirs=" in completed(nowhere, "serve", "--set", "log.di")


def test_commands_that_speak_http_complete_topics_at_their_url() -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    with answering(b'{"topics": [{"name": "prices"}, {"name": "orders"}]}') as url:
        for words in (("cleaner", "plan"), ("cleaner", "why"), ("cleaner", "verify"), ("get",)):
            assert completed(nowhere, *words, "--url", url, "pri") == ["prices"]


@pytest.mark.slow
def test_topics_and_groups_arecompleted(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.cli.completion._TIMEOUT_S", 60.0)  # a busy machine needs more
    topic, other, group = fresh("prices"), fresh("prices"), fresh("billing")
    commands.shown("topics", "create", topic, other)
    commands.shown("groups", "reset-offsets", group, "--topic", topic, "--to", "end")
    at = commands.bootstrap
    assert completed(at, "consume", topic) == [topic]
    assert set(completed(at, "topics", "describe", "prices")) >= {topic, other}
    assert topic not in completed(at, "topics", "describe", topic, "prices")
    assert completed(at, "configs", "describe", "--topic", topic) == [topic]
    assert completed(at, "groups", "describe", group) == [group]
    assert completed(at, "consume", topic, "--group", group) == [group]
    named = ("topics", "describe", "-b", at, topic)
    assert completed(f"127.0.0.1:{free_port()}", *named) == [topic]
