"""The commands that docker-compose.yml gives, and what a person then finds on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from bench.processes import ROOT
from tests.containers.asking import WAIT_S, answers, await_answer, consume, fetch, produce
from tests.containers.engine import Engine
from tests.support.registry import RunningRegistry
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1_800)]

COMMANDS = [
    " ".join(line.split())
    for line in re.findall(
        r"^# {3}((?:[A-Z_]+=\S+ )?(?:docker compose|curl) .*)$",
        (ROOT / "docker-compose.yml").read_text(),
        re.M,
    )
]
VALUES = [b"%03d" % number for number in range(100)]


@contextmanager
def up(engine: Engine, images: Mapping[str, str], command: str) -> Iterator[None]:
    """Run a command that starts services; remove all in the end."""
    _, _, services = command.partition(" --detach ")
    if missing := [one for one in services.split() if one not in images and one[0] != "-"]:
        pytest.skip(f"no image of {', '.join(missing)} can be had or made here")
    try:
        engine.sh(command)
        yield
    except Exception:
        print(engine.sh("docker compose --profile '*' logs --no-color --tail 40"))
        raise
    finally:
        engine.sh("docker compose --profile '*' down --volumes --timeout 5")


def command_of(profile: str) -> str:
    """Return the command of a profile."""
    [found] = [one for one in COMMANDS if f"--profile {profile} up" in one]
    return found


def is_well(port: int) -> bool:
    return bool(fetch(f"http://localhost:{port}/health")["status"] == "ok")


def await_brokers() -> None:
    for port in (9309, 9310, 9311):
        wait_until(lambda port=port: answers(lambda: is_well(port)), "the brokers are well")


def test_the_broker_serves_as_no_root_and_keeps_its_data(
    containers: Engine, images: Mapping[str, str]
) -> None:
    with up(containers, images, "docker compose up --wait --detach broker"):
        assert is_well(9308)
        assert containers.sh("docker compose exec -T broker whoami") == "odradek\n"
        produce(9092, "orders", VALUES)
        containers.sh("docker compose up --wait --detach --force-recreate broker")
        assert consume(9092, "orders", len(VALUES)) == VALUES


def test_the_jobs_read_and_write_topics_of_the_broker(
    containers: Engine, images: Mapping[str, str]
) -> None:
    jobs = [one for one in COMMANDS if one.startswith("docker compose run --rm ")]
    assert [one.split()[4] for one in jobs] == ["publish", "materialize", "audit"]
    with up(containers, images, "docker compose up --wait --detach broker"):
        for job in jobs:
            containers.sh(job.replace(" run ", " run -T "))
        containers.sh("docker compose up --detach", {"TOPIC": "tickets"})
        wait_until(
            lambda: "parquet" in containers.sh("docker compose exec -T spark ls /tables/tickets"),
            "the latest values are in a table",
            WAIT_S,
        )


def test_a_job_runs_on_the_cluster_of_spark(containers: Engine, images: Mapping[str, str]) -> None:
    [publish] = [one for one in COMMANDS if one.startswith("docker compose run --rm publish ")]
    with up(containers, images, command_of("spark-cluster")):
        containers.sh("docker compose up --wait --detach broker")
        job = publish.replace(" run ", " run -T ").replace(" 10000", " 100")
        containers.sh(f"{job} --master spark://spark-master:7077")
        logs = containers.sh("docker compose --profile spark-cluster logs spark-worker")
        assert "Asked to launch executor" in logs


def test_three_brokers_are_one_cluster(containers: Engine, images: Mapping[str, str]) -> None:
    with up(containers, images, command_of("cluster")):
        await_brokers()
        produce(9093, "orders", VALUES)
        assert consume(9095, "orders", len(VALUES)) == VALUES


def test_topics_outlive_the_disk_of_a_broker(
    containers: Engine, images: Mapping[str, str]
) -> None:
    with up(containers, images, command_of("object")):
        await_brokers()
        produce(9093, "orders", VALUES)
        containers.sh("docker compose --profile object rm --stop --force --volumes broker-1")
        assert consume(9095, "orders", len(VALUES)) == VALUES


def test_records_are_shown_by_their_schemas(containers: Engine, images: Mapping[str, str]) -> None:
    with up(containers, images, command_of("registry")):
        await_answer("http://localhost:8081/health/ready")
        registry = RunningRegistry("http://localhost:8081/apis/ccompat/v7")
        schema = {"type": "record", "name": "Order", "fields": [{"name": "by", "type": "string"}]}
        number = registry.add("orders-value", schema)
        produce(9092, "orders", [b"\0" + number.to_bytes(4, "big") + b"\x06Ada"])
        [record] = fetch("http://localhost:9308/api/records?topic=orders&partition=0")["records"]
        assert record["value"]["schema"]["data"] == {"by": "Ada"}


def test_connect_makes_records_of_the_lines_of_a_file(
    containers: Engine, images: Mapping[str, str]
) -> None:
    with up(containers, images, command_of("connect")):
        await_answer("http://localhost:8083/")
        [put] = [one for one in COMMANDS if one.startswith("curl")]
        containers.sh(put.replace("curl ", "curl --fail --silent --show-error "))
        lines = (ROOT / "packaging/connect/lines.txt").read_bytes().splitlines()
        assert consume(9092, "lines", len(lines)) == sorted(lines)


def test_prometheus_has_the_figures_of_the_broker(
    containers: Engine, images: Mapping[str, str]
) -> None:
    """Grafana's image cannot be made here: it is left out."""
    command = command_of("monitoring").replace(" up ", " up --detach ").replace(" grafana", "")

    def is_scraped() -> bool:
        found = fetch("http://localhost:9090/api/v1/query?query=up")["data"]["result"]
        return [one["value"][1] for one in found] == ["1"]

    with up(containers, images, command):
        wait_until(
            lambda: answers(is_scraped),
            "Prometheus has asked the broker",
            WAIT_S,
            shown=lambda: fetch("http://localhost:9090/api/v1/targets"),
        )
