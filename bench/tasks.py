"""Ten tasks of an operator, on the page and on the command line: docs/images/task-*.

    python -m bench.tasks [--folder FOLDER]

Each task is done in a browser, with a picture of the moment that matters, and by a command in a
terminal, with a picture of its output. docs/tasks.md shows them. Takes half a minute. Needs a
browser (Debian's chromium).
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Locator, Page, sync_playwright
from rich.console import Console
from rich.text import Text

from bench.browser import CHROMIUM, NO_CHROMIUM, launch, unlock
from bench.processes import ROOT, OdradekProcess

FOLDER = ROOT / "docs" / "images"
# Rights are checked, and everybody has all of them.
_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "log.cleaner.backoff.ms": "600000",
}
_STATES = ("new", "open", "pending", "solved")
_COLUMNS = 92
_FONT = re.compile(r"@font-face \{[^}]*\}\s*")
_WIDTH, _HEIGHT = 1100, 620
_COMMAND_S = 60


@dataclass(frozen=True, slots=True)
class Task:
    """A task: how it is done on the page, up to the picture, and how by a command."""

    name: str
    on_page: Callable[[Page], None]
    command: str


def main(arguments: list[str] | None = None) -> int:
    """Do the tasks, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    folder: Path = parser.parse_args(arguments).folder
    if CHROMIUM is None:
        print(NO_CHROMIUM, file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="odradek-tasks-") as data:
        broker = OdradekProcess(Path(data), _SETTINGS)
        broker.start()
        try:
            _fill(broker.bootstrap)
            with sync_playwright() as play:
                started = launch(play)
                page = started.new_page(
                    base_url=broker.http, viewport={"width": _WIDTH, "height": _HEIGHT}
                )
                _begin(page, (broker.data / "odradek-admin-token").read_text().strip())
                for task in TASKS:
                    _do(task, page, broker, folder)
                started.close()
        finally:
            broker.stop()
    return 0


def _do(task: Task, page: Page, broker: OdradekProcess, folder: Path) -> None:
    task.on_page(page)
    page.wait_for_timeout(300)  # colours of a button that was clicked fade
    page.screenshot(path=folder / f"task-{task.name}-page.png")
    _confirm(page)
    shown = run_in_terminal(task.command, {"ODRADEK_BOOTSTRAP_SERVERS": broker.bootstrap})
    draw(f"$ {task.command}\n{shown}", folder / f"task-{task.name}-terminal.svg")
    print(f"did {task.name}")


def run_in_terminal(command: str, environment: Mapping[str, str]) -> str:
    """Run a command in a terminal of its own; return its output, with colours.

    Raises RuntimeError when it fails.
    """
    reader, terminal = pty.openpty()
    scripts = str(Path(sys.executable).parent)
    paths = os.pathsep.join((scripts, os.environ["PATH"]))
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env={
            **os.environ, **environment, "PATH": paths, "TERM": "xterm-256color",
            "COLUMNS": str(_COLUMNS), "ODRADEK_PROFILES": os.devnull,
        },
    )  # fmt: skip
    os.close(terminal)
    octets = bytearray()
    with suppress(OSError):  # Linux reports the end of a terminal as an error
        while more := os.read(reader, 65_536):
            octets += more
    os.close(reader)
    shown = octets.decode().replace("\r\n", "\n")
    if process.wait(_COMMAND_S):
        raise RuntimeError(f"{command}: {shown}")
    return shown


def draw(text: str, picture: Path) -> None:
    """Draw the text of a terminal."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=_COLUMNS, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(text))
        drawn = console.export_svg(title="", unique_id=picture.stem)
    # Rich names a font at another host; any of fixed width will do.
    picture.write_text(_FONT.sub("", drawn))


def _fill(bootstrap: str) -> None:
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap, "log_level": 0
    }  # fmt: skip
    admin = AdminClient(settings)
    topics = [NewTopic("tickets", 3, 1), NewTopic("clicks", 2, 1)]
    for one in admin.create_topics(topics).values():
        one.result(20)
    producer = Producer(settings)
    for number in range(240):
        state = _STATES[(number // 60 + number) % 4]
        value = f'{{"state": "{state}", "subject": "printer {number % 40} is on fire"}}'
        producer.produce("tickets", value, f"t{number % 60}", headers={"origin": "web"})
        producer.produce("clicks", f'{{"page": "/{number % 9}"}}')
    assert producer.flush(20) == 0
    reader = Consumer({**settings, "group.id": "billing"})
    places = [TopicPartition("tickets", number, 40) for number in range(3)]
    reader.commit(offsets=places, asynchronous=False)
    reader.close()


def _begin(page: Page, token: str) -> None:
    page.goto("/#/topics")
    page.get_by_role("button", name="Unlock actions").click()
    unlock(page, token)
    page.locator("#link.live").wait_for(state="attached")


def _open(page: Page, path: str, heading: str) -> None:
    page.goto("about:blank")  # without the message of the task before
    page.goto(f"/#/{path}")
    page.get_by_role("heading", level=1, name=heading).wait_for()


def _fill_in(page: Page, button: str, title: str, **values: str) -> None:
    """Open the form of an action, fill it in, and go on to its effects."""
    page.get_by_role("button", name=button).first.click()
    form = page.get_by_role("dialog", name=title)
    for label, value in values.items():
        _field(form, label).fill(value)
    form.get_by_role("button", name="Go on").click()
    page.get_by_role("dialog", name="This will be done").wait_for()


def _field(form: Locator, label: str) -> Locator:
    text = form.get_by_role("textbox", name=label, exact=True)
    number = form.get_by_role("spinbutton", name=label)
    return text.or_(number).or_(form.get_by_role("combobox", name=label, exact=True))


def _confirm(page: Page) -> None:
    """Confirm the effects that are shown, if there are any."""
    certain = page.get_by_role("dialog", name="This will be done")
    if certain.is_visible():
        certain.locator("button.primary, button.danger").last.click()
        certain.wait_for(state="hidden")


def _see_topics(page: Page) -> None:
    _open(page, "topics", "Topics")
    page.get_by_role("cell", name="tickets").wait_for()


def _see_records(page: Page) -> None:
    _open(page, "topic/tickets/records", "tickets")
    page.get_by_role("row").nth(5).wait_for()


def _find_records(page: Page) -> None:
    _see_records(page)
    page.get_by_role("searchbox", name="Search keys and values").fill("t7")
    page.get_by_role("checkbox", name="exactly this key").check()
    page.get_by_role("textbox", name="Filter by an expression").fill('value.state == "open"')
    page.get_by_role("button", name="Show").click()
    page.get_by_role("status").filter(has_text="1 shown").wait_for()


def _write_record(page: Page) -> None:
    _open(page, "topic/tickets", "tickets")
    _fill_in(
        page, "Write a record", "Write a record to tickets", Key="t7", Value='{"state": "solved"}'
    )


def _create_topic(page: Page) -> None:
    _open(page, "topics", "Topics")
    more = {"More settings": "retention.ms=86400000"}
    _fill_in(page, "Create topic", "Create a topic", Name="orders", Partitions="6", **more)


def _change_setting(page: Page) -> None:
    _open(page, "topic/tickets/settings", "tickets")
    _fill_in(page, "Change retention.ms", "Change retention.ms", Value="3600000000")


def _see_lag(page: Page) -> None:
    _open(page, "group/billing", "billing")
    page.get_by_role("cell", name="tickets").first.wait_for()


def _move_offsets(page: Page) -> None:
    _open(page, "group/billing", "billing")
    _fill_in(page, "Move offsets", "Move the offsets of billing", To="10")


def _delete_records(page: Page) -> None:
    _open(page, "topic/clicks", "clicks")
    _fill_in(page, "Empty", "Delete records of clicks")


def _give_right(page: Page) -> None:
    _open(page, "access", "Access")
    _fill_in(page, "Add entry", "Add an entry", Principal="User:ann", Name="tickets")


_SOLVED = shlex.quote('t8:{"state": "solved"}')
TASKS = (
    Task("1-topics", _see_topics, "odradek topics list"),
    Task("2-newest-records", _see_records, "odradek consume tickets --from -2 --to end"),
    Task("3-find", _find_records, "odradek get tickets t7"),
    Task(
        "4-write", _write_record,
        f"echo {_SOLVED} | odradek produce tickets --key-separator :",
    ),
    Task(
        "5-create", _create_topic,
        "odradek topics create returns --partitions 6 --config retention.ms=86400000",
    ),
    Task(
        "6-setting", _change_setting,
        "odradek topics alter tickets --config retention.ms=7200000000",
    ),
    Task("7-lag", _see_lag, "odradek groups describe billing"),
    Task(
        "8-offsets", _move_offsets,
        "odradek groups reset-offsets billing --topic tickets --to beginning",
    ),
    Task("9-delete", _delete_records, "odradek records delete tickets --before 5 --yes"),
    Task(
        "10-right", _give_right,
        "odradek acls create --principal User:bob --operation read --topic tickets",
    ),
)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
