"""Names and texts of others do nothing to a terminal, and end no line."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from odradek.cli import adopt, completion
from odradek.cli.dump_rows import Row
from odradek.cli.dump_show import Table
from odradek.cli.main import main
from odradek.cli.one_line import one_line
from odradek.cli.refusals import CommandError
from odradek.cli.tables import print_rows
from odradek.cli.words import printable_answer
from odradek.config.printable import printable
from tests.cli.answering import answering

# It retitles a window, clears the screen by the one character that begins such a sequence, writes
# from right to left, and begins lines that nobody has written.
EVIL = "a\x1b]0;owned\x07\x9b2J\u202e\r\nbilling  stable\u2028b"
WRITTEN = r"a\x1b]0;owned\x07\x9b2J\u202e\r\nbilling  stable\u2028b"


@given(st.text())
def test_any_text_is_made_printable_and_what_is_so_stays(text: str) -> None:
    assert printable(text).isprintable()
    assert not text.isprintable() or printable(text) == text


def test_all_text_of_an_answer_is_made_printable() -> None:
    answer = {"a": [{"b": EVIL}, EVIL, 1, None], "c": EVIL, "d": 1.5, "e": True}
    assert printable_answer(answer) == {
        "a": [{"b": WRITTEN}, WRITTEN, 1, None], "c": WRITTEN, "d": 1.5, "e": True,
    }  # fmt: skip


def test_a_row_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(["Group", "State"], [(EVIL, "stable"), ("b", None)])
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{WRITTEN}  stable")
    assert second.split() == ["b", "-"]


def test_an_error_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    CommandError(f"there is no group {EVIL}").show()
    assert capsys.readouterr().err == f"odradek: there is no group {WRITTEN}\n"
    assert one_line(click.ClickException("no \x1b]0;x\x07\n group")) == r"no \x1b]0;x\x07 group"


def test_a_dumped_row_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    record = {
        "offset": 0, "timestamp": 0, "key": b"k", "value": b"v", "headers": [(EVIL, b"1")],
    }  # fmt: skip
    table = Table()
    for row in (
        Row("record", record),
        Row("record", record | {"decoded": {"type": "offset", "group": EVIL}}),
        Row("checkpoint", {"offset": 1, "partition": 0, "topic": EVIL}),
        Row("meta.properties", {"cluster.id": EVIL}),
    ):
        table.show(Path("a"), row)
    shown = capsys.readouterr().out
    assert shown.count(WRITTEN) == 4 and len(shown.splitlines()) == 6


def test_adopted_names_are_shown_in_printable_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), highlight=False, width=500)
    adopt._show_pairs(console, "Taken over", [(EVIL, EVIL)])
    adopt._show_obstacles(console, [adopt.Obstacle(EVIL, f"[bold]{EVIL}")], force=False)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert shown.count(WRITTEN) == 4 and "\x1b" not in shown and f"[bold]{WRITTEN}" in shown


def test_a_name_that_cannot_be_typed_is_not_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Admin:
        topics = ("prices", EVIL, "p\x1b")

    class Connection:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def admin(self) -> Admin:
            return Admin()

    monkeypatch.setattr("odradek.cli.client.Connection", Connection)
    context = click.Context(click.Command("consume"))
    parameter = click.Argument(["topic"])
    found = completion.complete_topics(context, parameter, "")
    assert [one.value for one in found] == ["prices"]


def shown(document: object, *arguments: str, status: int = 200) -> str:
    with answering(json.dumps(document).encode(), status) as url:
        result = CliRunner().invoke(main, [*arguments, "--url", url])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert all(line.isprintable() for line in result.output.split("\n")), result.output
    return result.output.replace("\n", "")


WHY: dict[str, Any] = {
    "topic": EVIL, "partition": 0, "verdict": "NOT", "sentence": EVIL, "reason": None,
    "due_ms": None, "queue_position": None, "now_ms": 0,
    "conditions": [
        {"kind": "LIMIT", "name": EVIL, "is_met": True, "text": EVIL, "met_at_ms": None}
    ],
}  # fmt: skip
FAILURE = {"exception": EVIL, "retry_at_ms": 0}


@pytest.mark.parametrize(
    ("arguments", "document", "status"),
    [
        (("cleaner", "plan"), {"error": EVIL}, 500),
        (("cleaner", "plan"), {"error": EVIL, "token_file": f"/{EVIL}/x"}, 401),
        (("cleaner", "why", "a", "0"), WHY, 200),
        (("cleaner", "run", "a", "--no-wait"), {"asked": [{"topic": EVIL, "partition": 0}]}, 200),
        (
            ("cleaner", "history", "a", "0"),
            {
                "topic": EVIL, "partition": 0, "now_ms": 0,
                "runs": [{"outcome": "FAILED", "at_ms": 0, "failure": FAILURE}],
            },
            200,
        ),
        (
            ("cleaner", "verify", "a"),
            {"is_proved": False, "partitions": [{"partition": 0, "error": EVIL}]},
            200,
        ),
        (
            ("get", "a", "k"),
            {"status": "none", "topic": EVIL, "key": {"text": "k"}, "searched": [], "offline": []},
            200,
        ),
        (
            ("get", "a", "k"),
            {
                "status": "found", "partition": 0, "offset": 0, "timestamp_ms": 0, "also_in": [],
                "value": {"base64": "djE="}, "headers": [{"key": EVIL, "value": None}],
            },
            200,
        ),
        (
            ("doctor", "--set", "log.dirs=/nowhere"),
            {
                "status": "failing", "problems": [EVIL], "threads": {"alive": 1, "wanted": 1},
                "quarantined": [{"topic": EVIL, "partition": 0, "exception": EVIL}],
            },
            200,
        ),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else None,
)  # fmt: skip
def test_answers_over_http_are_made_printable(
    arguments: tuple[str, ...], document: object, status: int
) -> None:
    assert r"a\x1b]0;owned\x07" in shown(document, *arguments, status=status)
