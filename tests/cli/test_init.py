"""odradek init: the files that it writes are those that a broker, systemd and Compose take."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from bench.processes import ROOT, OdradekProcess
from odradek.cli.init import _NAMES
from odradek.cli.main import main
from odradek.cli.starting_files import PARTS, starting_files
from odradek.cli.starting_settings import LINE_COLUMNS, SECTIONS, starting_settings
from odradek.config.effective import declared_options, resolve_broker
from odradek.config.layers import static_layer
from odradek.config.option import fallbacks_of
from odradek.config.topic import TopicConfig

DECLARED = {one.name: one for one in (*declared_options(), *fallbacks_of(TopicConfig))}
TEXT = starting_settings(Path("/var/lib/odradek"))
LEFT_OUT = re.findall(r"^#([a-z][\w.]*=.*)$", TEXT, re.M)
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def init(*words: object) -> Result:
    return CliRunner().invoke(main, ["init", *map(str, words)])


def files_in(folder: Path) -> set[str]:
    return {str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()}


def test_three_files_are_written_and_named(tmp_path: Path) -> None:
    done = init(tmp_path / "broker")
    assert done.exit_code == 0, done.output
    expected = {"server.properties", "odradek.service", "docker-compose.yml"}
    assert files_in(tmp_path / "broker") == expected
    for name in expected:
        assert f"{tmp_path / 'broker' / name}: written" in done.output
    assert f"odradek serve --config {tmp_path / 'broker' / 'server.properties'}" in done.output


def test_the_present_folder_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert init("--only", "settings").exit_code == 0
    assert files_in(tmp_path) == {"server.properties"}
    assert f"\nlog.dirs={tmp_path}/data\n" in Path("server.properties").read_text()


def test_the_settings_as_written_resolve_without_a_warning(tmp_path: Path) -> None:
    assert init(tmp_path, "--only", "settings").exit_code == 0
    layer = static_layer(tmp_path / "server.properties")
    assert set(layer.values) == {"node.id", "listeners", "metrics.listener", "log.dirs"}
    resolved = resolve_broker([layer])
    assert not resolved.warnings
    assert resolved.config.log_dirs == (str(tmp_path / "data"),)


@pytest.mark.parametrize("line", LEFT_OUT)
def test_a_line_is_valid_without_its_mark_of_a_comment(tmp_path: Path, line: str) -> None:
    name, _, value = line.partition("=")
    assert DECLARED[name].read(value) is not None
    written = TEXT.replace(f"#{line}\n", f"{line}\n")
    (tmp_path / "server.properties").write_text(written)
    assert static_layer(tmp_path / "server.properties").values[name] == value


def test_each_setting_has_its_meaning_and_its_default_or_an_example() -> None:
    names = [name for section in SECTIONS for name in section.names]
    assert len(set(names)) == len(names)
    comments = " ".join(line.removeprefix("# ") for line in TEXT.splitlines())
    for section in SECTIONS:
        for name in section.names:
            assert DECLARED[name].doc in comments, name
            assert not DECLARED[name].inert, name
            line = f"#{name}={DECLARED[name].default_text}\n"
            is_example = f"# For example:\n#{name}=" in TEXT
            assert line in TEXT or is_example or f"\n{name}=" in TEXT, name
    assert not [one for one in TEXT.splitlines() if len(one) > LINE_COLUMNS and one[1] == " "]


def test_a_folder_with_a_backslash_is_the_folder_of_the_data(tmp_path: Path) -> None:
    folder = tmp_path / r"a\b=c"
    assert init(folder, "--only", "settings").exit_code == 0
    layer = static_layer(folder / "server.properties")
    assert layer.values["log.dirs"] == str(folder / "data")


@pytest.mark.parametrize("name", ["a,b", "a  b"])
def test_a_folder_that_a_setting_cannot_name_is_refused(tmp_path: Path, name: str) -> None:
    done = init(tmp_path / name)
    assert done.exit_code == 1
    assert "log.dirs cannot name" in done.output and "choose another FOLDER" in done.output
    assert not (tmp_path / name).exists()


def test_no_file_is_replaced_and_then_none_is_written(tmp_path: Path) -> None:
    (tmp_path / "odradek.service").write_text("mine")
    done = init(tmp_path)
    assert done.exit_code == 1
    place = tmp_path / "odradek.service"
    assert done.output == (
        f"odradek: {place} is there, and nothing was written: --force replaces it, or choose "
        "another FOLDER\n"
    )
    assert files_in(tmp_path) == {"odradek.service"}
    assert place.read_text() == "mine"


def test_force_replaces_the_files(tmp_path: Path) -> None:
    (tmp_path / "odradek.service").write_text("mine")
    assert init(tmp_path, "--force").exit_code == 0
    assert "ExecStart=" in (tmp_path / "odradek.service").read_text()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = init(tmp_path / "file" / "below")
    assert done.exit_code == 1
    place = tmp_path / "file" / "below" / "server.properties"
    assert done.output == f"odradek: cannot write {place}: Not a directory\n"


def test_more_parts_are_written_beside_the_others_or_alone(tmp_path: Path) -> None:
    assert init(tmp_path / "all", "--with", "alerts,dashboards").exit_code == 0
    assert {"alerts/odradek.yml", "dashboards/odradek.json", "server.properties"} < files_in(
        tmp_path / "all"
    )
    done = init(tmp_path / "one", "--only", "alerts")
    assert done.exit_code == 0
    assert "serve" not in done.output
    assert files_in(tmp_path / "one") == {"alerts/odradek.yml"}
    alerts = (tmp_path / "one" / "alerts" / "odradek.yml").read_bytes()
    assert alerts == (ROOT / "docs" / "alerts" / "odradek.yml").read_bytes()


def test_the_documentation_is_written_as_it_is(tmp_path: Path) -> None:
    assert init(tmp_path, "--only", "docs").exit_code == 0
    pages = {f"docs/{one.name}" for one in (ROOT / "docs").glob("*.md")}
    images = {f"docs/images/{one.name}" for one in (ROOT / "docs" / "images").iterdir()}
    others = {"alerts/odradek.yml", "grafana/odradek.json", "pytest_fixture.py"}
    assert files_in(tmp_path) == pages | images | {f"docs/{name}" for name in others}


def test_links_among_the_written_pages_lead_somewhere(tmp_path: Path) -> None:
    assert init(tmp_path, "--only", "docs").exit_code == 0
    for page in (tmp_path / "docs").glob("*.md"):
        targets = re.findall(r"\]\(([\w./-]+)[)#]", page.read_text())
        # Those that leave the folder are for a checkout.
        inner = [one for one in targets if not one.startswith("../") and "." in one]
        assert not [one for one in inner if not (page.parent / one).is_file()], page.name


def test_the_chart_is_written_with_its_templates(tmp_path: Path) -> None:
    assert init(tmp_path, "--only", "helm").exit_code == 0
    chart = ROOT / "packaging" / "helm"
    assert {f"helm/{name}" for name in files_in(chart)} == files_in(tmp_path)


def test_each_part_is_a_word_of_the_options_and_of_the_help() -> None:
    assert set(_NAMES) == set(PARTS)
    text = init("--help").output
    assert all(re.search(rf"^  {name} ", text, re.M) for name in PARTS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--with", "alerts,docz"], "'docz' is no part: choose of settings, systemd"),
        (["--with", "docs", "--only", "alerts"], "leave out --with or --only"),
    ],
)
def test_wrong_usage_names_the_remedy(words: list[str], said: str) -> None:
    done = init(*words)
    assert done.exit_code == 2
    assert said in done.output and done.output.count("\n") == 1


def test_the_unit_starts_the_command_that_wrote_it_unless_it_is_in_a_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "odradek"
    command.write_text("#!/bin/sh\n")
    packaged = (ROOT / "packaging" / "systemd" / "odradek.service").read_text()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    unit = starting_files(tmp_path, ["systemd"], command)[tmp_path / "odradek.service"].decode()
    assert f"\nExecStart={command} serve --config /etc/odradek/" in unit
    assert unit.replace(str(command), "/usr/local/bin/odradek") == packaged
    monkeypatch.setenv("HOME", str(tmp_path))
    unit = starting_files(tmp_path, ["systemd"], command)[tmp_path / "odradek.service"].decode()
    assert unit == packaged


def test_the_container_serves_where_compose_publishes_it(tmp_path: Path) -> None:
    assert init(tmp_path).exit_code == 0
    compose = yaml.safe_load((tmp_path / "docker-compose.yml").read_text())
    (service,) = compose["services"].values()
    ports = [one.rsplit(":", 2) for one in service["ports"]]
    assert {address for address, _, _ in ports} == {"127.0.0.1"}
    settings, data = (one.split(":") for one in service["volumes"])
    assert settings[0] == "./server.properties" and settings[2] == "ro"
    assert service["command"] == ["--config", settings[1]]
    assert data[0] in compose["volumes"]
    # The environment of the image, and that of the file.
    image = dict(re.findall(r"(KAFKA_\w+)=(\S+)", DOCKERFILE))
    layer = static_layer(tmp_path / "server.properties", {**image, **service["environment"]})
    resolved = resolve_broker([layer])
    assert not resolved.warnings
    config = resolved.config
    assert config.log_dirs == (data[1],)
    inner = {str(one.port) for one in config.bound_endpoints} | {str(config.metrics_address[1])}
    assert {port for _, _, port in ports} < inner
    hosts = {(one.host, one.port) for one in config.advertised_endpoints}
    assert hosts == {("localhost", 9092), (next(iter(compose["services"])), 19092)}


def test_compose_takes_the_file(tmp_path: Path) -> None:
    tool = shutil.which("docker")
    version = [tool or "docker", "compose", "version"]
    if tool is None or subprocess.run(version, capture_output=True).returncode:
        pytest.skip("there is no docker compose here")
    assert init(tmp_path).exit_code == 0
    done = subprocess.run(
        [tool, "compose", "config", "--services"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["broker"]


def test_doctor_finds_nothing_wrong_with_the_settings_as_written(tmp_path: Path) -> None:
    assert init(tmp_path, "--only", "settings").exit_code == 0
    words = ["doctor", "--config", str(tmp_path / "server.properties"), "--json"]
    done = CliRunner().invoke(main, words, env=dict.fromkeys(_kafkas_variables(), None))
    found = [one for one in json.loads(done.output)["findings"] if one["subject"] == "settings"]
    assert [one["state"] for one in found] == ["ok"]


def _kafkas_variables() -> list[str]:
    return [name for name in os.environ if name.startswith("KAFKA_")]


@pytest.mark.slow
def test_a_broker_serves_with_the_settings_as_written(tmp_path: Path) -> None:
    assert init(tmp_path, "--only", "settings").exit_code == 0
    config = ["--config", str(tmp_path / "server.properties")]
    # Another port than 9092, which is not free on each machine.
    broker = OdradekProcess(tmp_path, options=config)
    broker.start()
    try:
        assert "warning" not in broker.log_text().lower()
    finally:
        broker.stop()
    assert (tmp_path / "data").is_dir()
