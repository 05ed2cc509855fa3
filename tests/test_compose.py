"""What docker-compose.yml says, held against the Dockerfile and the commands that it gives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
# As its comment has them: the service, and what is given to its command.
EXAMPLES = re.findall(r"^#\s+docker compose run --rm (\S+) (.*)$", TEXT, re.MULTILINE)
JOBS = {"publish", "materialize", "audit"}


def test_up_starts_the_broker_and_one_job() -> None:
    started = {name for name, service in SERVICES.items() if "profiles" not in service}
    assert started == {"broker", "spark"}


def test_what_is_named_is_there() -> None:
    targets = set(re.findall(r"^FROM \S+ AS (\S+)$", (ROOT / "Dockerfile").read_text(), re.M))
    for name, service in SERVICES.items():
        assert service["build"]["target"] in targets, name
        assert set(service.get("depends_on", ())) <= set(SERVICES), name
        volumes = {volume.partition(":")[0] for volume in service["volumes"]}
        assert volumes <= set(COMPOSE["volumes"]), name


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"broker", "spark-master"}))
def test_addresses_are_those_of_services(name: str) -> None:
    service = SERVICES[name]
    words = " ".join([*service.get("entrypoint", ()), *service.get("command", ())])
    found = re.findall(r"([a-z-]+):(\d+)", words)
    assert found
    master = SERVICES["spark-master"]["entrypoint"]
    ports = {
        "broker": re.findall(r":(\d+)", SERVICES["broker"]["environment"]["KAFKA_LISTENERS"]),
        master[master.index("--host") + 1]: [master[master.index("--port") + 1]],
    }
    for host, port in found:
        assert host in SERVICES
        assert port in ports[host]


def test_each_job_has_an_example() -> None:
    assert {name for name, _ in EXAMPLES} == JOBS
    assert all(SERVICES[name]["entrypoint"][:3] == ["odradek", "pipeline", name] for name in JOBS)


@pytest.mark.spark
@pytest.mark.parametrize(("name", "given"), EXAMPLES)
def test_an_example_is_what_the_command_takes(name: str, given: str) -> None:
    command = _command(name)
    arguments = [*SERVICES[name]["entrypoint"][3:], *given.split()]
    assert command.make_context(name, arguments).params["topic"] == "tickets"


@pytest.mark.spark
def test_the_job_of_up_is_what_its_command_takes() -> None:
    name, *arguments = SERVICES["spark"]["command"]
    assert _command(name).make_context(name, arguments).params["table"].startswith("/tables/")


def _command(name: str) -> click.Command:
    pytest.importorskip("pyspark", reason="needs the pipeline extra")
    from pipeline.audit import audit_command
    from pipeline.latest import latest_command
    from pipeline.materialize import materialize_command
    from pipeline.publish import publish_command

    commands = (audit_command, latest_command, materialize_command, publish_command)
    return {str(command.name): command for command in commands}[name]
