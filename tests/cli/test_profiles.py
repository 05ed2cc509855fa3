"""Profiles, and where a command goes: the order of options, environment and profiles."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from bench.processes import OdradekProcess
from odradek.cli.ask import url_option
from odradek.cli.main import main
from odradek.cli.place import (
    ENVIRONMENT,
    PROFILE_ENVIRONMENT,
    REGISTRY_ENVIRONMENT,
    Place,
    find_place,
)
from odradek.cli.profiles import FILE_VARIABLE
from odradek.cli.refusals import CommandError
from tests.support.forking import ForkedOdradek

Run = Callable[..., Result]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "folder" / "profiles.ini"
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    for name in (ENVIRONMENT, PROFILE_ENVIRONMENT, REGISTRY_ENVIRONMENT, "ODRADEK_URL"):
        monkeypatch.delenv(name, raising=False)
    return path


@pytest.fixture
def run(file: Path) -> Run:
    def go(*arguments: str) -> Result:
        result = CliRunner().invoke(main, list(arguments))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return go


@pytest.fixture
def two(run: Run) -> Run:
    """Make a current profile with a password, and another one."""
    assert run("profile", "set", "home", "-b", "home:1", "-X", "sasl.password=hush").exit_code == 0
    assert run("profile", "set", "away", "-b", "away:2", "--url", "http://away:3").exit_code == 0
    return run


def _place(*, before: tuple[str, ...] = (), given: str | None = None, **options: object) -> Place:
    """Return the place that a command finds behind options of the whole program."""
    found: list[Place] = []

    @click.command()
    def look() -> None:
        found.append(find_place(given, **options))  # type: ignore[arg-type]

    main.add_command(look, "look")
    try:
        result = CliRunner().invoke(main, [*before, "look"], standalone_mode=False)
    finally:
        del main.commands["look"]
    if result.exception is not None:
        raise result.exception
    return found[0]


def test_the_first_profile_is_the_current_one_and_use_chooses_another(two: Run) -> None:
    def current() -> list[str]:
        listed = json.loads(two("profile", "list", "--json").stdout)["profiles"]
        return [one["profile"] for one in listed if one["is_current"]]

    assert current() == ["home"]
    assert two("profile", "use", "away").exit_code == 0
    assert current() == ["away"]
    assert two("profile", "delete", "away").exit_code == 0
    assert current() == []


def test_secrets_are_in_the_file_alone_which_nobody_else_reads(two: Run, file: Path) -> None:
    assert "hush" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for arguments in (("show", "home"), ("show", "home", "--json"), ("list",)):
        assert "hush" not in two("profile", *arguments).stdout


def test_properties_are_changed_and_removed_one_by_one(two: Run) -> None:
    two("profile", "set", "home", "-X", "client.id=me", "-X", "sasl.password=")
    shown = json.loads(two("profile", "show", "home", "--json").stdout)["properties"]
    assert shown == {"bootstrap.servers": "home:1", "client.id": "me"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("use", "hom"), "there is no profile hom: did you mean home?"),
        (("show", "none-such"), "there is no profile none-such"),
        (("set", "a b", "-b", "x:1"), "cannot name a profile"),
        (("set", "new"), "give them with -b"),
        (("set", "home", "-X", "a=b\nc"), "unprintable"),
    ],
)
def test_mistakes_get_one_line(two: Run, arguments: tuple[str, ...], words: str) -> None:
    result = two("profile", *arguments)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert words in line


def test_a_damaged_file_is_named_and_kept(run: Run, file: Path) -> None:
    file.parent.mkdir()
    file.write_text("no section\n")
    result = run("profile", "set", "home", "-b", "home:1")
    assert result.exit_code == 1
    assert str(file) in result.stderr and len(result.stderr.splitlines()) == 1
    assert file.read_text() == "no section\n"


def test_the_nearest_address_counts(two: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = "bootstrap.servers"
    assert _place().properties[servers] == "home:1"
    monkeypatch.setenv(ENVIRONMENT, "environment:4")
    assert _place().properties[servers] == "environment:4"
    # Named in the same line it is meant.
    assert _place(before=("--profile", "away")).properties[servers] == "away:2"
    own = {"pairs": [f"{servers}=own:5"]}
    assert _place(**own).properties[servers] == "own:5"
    before = ("-b", "before:6")
    assert _place(before=before, **own).properties[servers] == "before:6"
    assert _place(before=before, given="given:7", **own).properties[servers] == "given:7"


def test_a_password_goes_to_its_own_cluster_alone(
    two: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _place().properties["sasl.password"] == "hush"
    assert "sasl.password" not in _place(given="elsewhere:1").properties
    monkeypatch.setenv(ENVIRONMENT, "elsewhere:1")
    assert "sasl.password" not in _place().properties
    named = _place(before=("--profile", "home"), given="elsewhere:1").properties
    assert (named["bootstrap.servers"], named["sasl.password"]) == ("elsewhere:1", "hush")


def test_a_named_profile_counts_before_the_current_one(
    two: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _place(before=("--profile", "away"))
    assert (found.properties["bootstrap.servers"], found.url) == ("away:2", "http://away:3")
    monkeypatch.setenv(PROFILE_ENVIRONMENT, "away")
    assert _place().url == "http://away:3"
    monkeypatch.setenv(PROFILE_ENVIRONMENT, "gone")
    with pytest.raises(CommandError, match="there is no profile gone"):
        _place()


def test_the_nearest_url_counts(two: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []

    @click.command()
    @url_option
    def look(url: str) -> None:
        found.append(url)

    monkeypatch.setitem(main.commands, "look", look)
    monkeypatch.setenv("ODRADEK_URL", "http://environment:4")
    for arguments in ([], ["--profile", "away"], ["--profile", "away", "look", "--url", "given"]):
        CliRunner().invoke(main, arguments if "look" in arguments else [*arguments, "look"])
    assert found == ["http://environment:4", "http://away:3", "given"]


def test_the_nearest_registry_counts(two: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _place().registry is None
    two("profile", "set", "home", "--registry", "http://home:4")
    two("profile", "set", "away", "--registry", "http://away:4")
    assert _place().registry == "http://home:4"
    # Ids of another cluster's records would have other schemas.
    assert _place(given="elsewhere:1").registry is None
    monkeypatch.setenv(REGISTRY_ENVIRONMENT, "http://environment:4")
    assert _place().registry == _place(given="elsewhere:1").registry == "http://environment:4"
    assert _place(before=("--profile", "away")).registry == "http://away:4"
    shown = json.loads(two("profile", "show", "home", "--json").stdout)
    assert shown["registry"] == "http://home:4" and "registry" not in shown["properties"]
    two("profile", "set", "home", "--registry", "")
    assert "registry" not in two("profile", "list").stdout
    monkeypatch.delenv(REGISTRY_ENVIRONMENT)
    assert _place().registry is None


def test_without_any_of_them_commands_go_to_this_machine(file: Path) -> None:
    found = _place()
    assert found.properties == {"bootstrap.servers": "127.0.0.1:9092"}
    assert not found.is_named


@pytest.fixture(scope="module")
def odradek(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekProcess]:
    process = ForkedOdradek(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.stop()


@pytest.mark.slow
def test_a_broker_is_asked_for_its_url(run: Run, odradek: OdradekProcess) -> None:
    for arguments in (("-b", odradek.bootstrap), ("--profile", "here")):
        run("profile", "set", "here", "-b", odradek.bootstrap)
        result = run(*arguments, "cleaner", "plan", "--json")
        assert result.exit_code == 0, result.output
        assert "plans" in json.loads(result.stdout)


@pytest.mark.slow
def test_a_broker_without_http_is_reported(run: Run, tmp_path: Path) -> None:
    process = ForkedOdradek(tmp_path, {"metrics.listener": ""})
    process.start()
    try:
        result = run("-b", process.bootstrap, "cleaner", "plan")
    finally:
        process.stop()
    assert result.exit_code == 1
    assert "has no metrics.listener: name the URL of an Odradek with --url" in result.stderr
