"""What docker-compose.yml says, held against the Dockerfile and the commands that it gives."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import pytest
import yaml

from bench.processes import OdradekProcess, end, free_port
from bench.servers import s3_server
from odradek.config.effective import resolve_apart, resolve_broker
from odradek.config.http import HttpConfig
from odradek.config.layers import from_environment
from odradek.config.object_store import ObjectStoreConfig
from odradek.config.resolution import Layer, Source
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.cli.commands import Commands
from tests.containers.engine import COMPOSE as COMPOSE_PROGRAM
from tests.support.waiting import wait_until

ROOT = Path(__file__).parent.parent
PACKAGING = ROOT / "packaging"
TEXT = (ROOT / "docker-compose.yml").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
# As its comment has them: the service, and what is given to its command.
EXAMPLES = re.findall(r"^#\s+docker compose run --rm (\S+) (.*)$", TEXT, re.MULTILINE)
JOBS = {"publish", "materialize", "audit"}
BUILT = {name: service for name, service in SERVICES.items() if "build" in service}
MEMBERS = sorted(
    name for name in BUILT if SERVICES[name].get("profiles") == ["cluster", "object"]
)
SHARED = {"ODRADEK_STORAGE": "object"}
PROFILES = {profile for one in SERVICES.values() for profile in one.get("profiles", ())}
MONITORING = {name for name, one in SERVICES.items() if one.get("profiles") == ["monitoring"]}


def test_up_starts_the_broker_and_one_job() -> None:
    started = {name for name, service in SERVICES.items() if "profiles" not in service}
    assert started == {"broker", "spark"}


def test_named_stages_images_and_volumes_exist() -> None:
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.M)
    targets = {name for _, name in stages}
    for name, service in SERVICES.items():
        if name in BUILT:
            assert service["build"]["target"] in targets, name
        else:
            # A tag can be moved to another image, a digest cannot.
            tag = r"[\w./-]+:v?\d+\.\d+(\.\d+)?"
            assert re.fullmatch(rf"{tag}@sha256:[0-9a-f]{{64}}", service["image"]), name
        assert set(service.get("depends_on", ())) <= set(SERVICES), name
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert (ROOT / source).exists(), source
            else:
                assert source in COMPOSE["volumes"], name


def test_the_image_copies_what_is_there_from_stages_before() -> None:
    stages: list[str] = []
    for line in DOCKERFILE.splitlines():
        word, *rest = line.split() or [""]
        if word == "FROM":
            image = r"python:3\.\d+-slim@sha256:[0-9a-f]{64}"
            assert rest[0] in stages or re.fullmatch(image, rest[0])
            stages.append(rest[2])
        if word == "COPY":
            source = next((one[7:] for one in rest if one.startswith("--from=")), None)
            paths = [one for one in rest if not one.startswith("--")][:-1]
            assert source in stages if source else all((ROOT / one).exists() for one in paths)


def test_the_image_listens_where_it_says_and_not_as_root() -> None:
    broker = DOCKERFILE[DOCKERFILE.index("FROM base AS broker") :]
    exposed = re.search(r"^EXPOSE (.*)$", broker, re.M)
    assert exposed is not None and exposed[1].split() == ["9092", "9308"]
    assert re.search(r"KAFKA_LISTENERS=PLAINTEXT://0\.0\.0\.0:9092", broker)
    assert re.search(r"KAFKA_METRICS_LISTENER=0\.0\.0\.0:9308", broker)
    # Whatever restarts unhealthy containers is to leave a broker with a problem alone.
    assert re.findall(r"http://127\.0\.0\.1:9308(/[^']*)'", broker) == ["/health/live"]
    assert re.findall(r"^VOLUME (.*)$", broker, re.M) == ["/data"]
    assert re.findall(r"^USER (.*)$", broker, re.M) == ["odradek"]


def _read(text: str, environment: Mapping[str, str]) -> str:
    """Return a value as Compose reads it: ${name:-if unset}, ${name:+if set}."""

    def value(found: re.Match[str]) -> str:
        given = environment.get(found[1], "")
        return (given or found[3]) if found[2] == "-" else (given and found[3])

    return re.sub(r"\$\{(\w+):([-+])([^}]*)\}", value, text)


def _wholes(name: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a broker of the cluster, with that of its image."""
    block = DOCKERFILE[DOCKERFILE.index("FROM base AS broker") :]
    image = dict(re.findall(r"(KAFKA_\w+)=(\S+)", block))
    own = SERVICES[name]["environment"]
    return {**image, **{key: _read(text, environment) for key, text in own.items()}}


def test_brokers_of_the_cluster_are_found_by_each_other_and_by_clients() -> None:
    assert MEMBERS == ["broker-1", "broker-2", "broker-3"]
    brokers = {}
    for name in MEMBERS:
        found = from_environment(_wholes(name, {}))
        settings = {key: text for key, (text, _) in found.items()}
        config = resolve_broker([Layer(Source.STATIC_BROKER, settings)]).config
        brokers[config.node_id] = name
        assert str(config.node_id) == name[-1]
        # The first listener is that of the brokers among themselves, and of other containers.
        assert settings["inter.broker.listener.name"] == config.bound_endpoints[0].name
        bound, advertised = config.bound_endpoints, config.advertised_endpoints
        assert [one.protocol for one in bound] == ["PLAINTEXT", "PLAINTEXT"]
        assert (advertised[0].host, advertised[0].port) == (name, bound[0].port)
        published = _published(SERVICES[name])
        assert advertised[1].host == "localhost"
        assert f"127.0.0.1:{advertised[1].port}:{bound[1].port}" in published
        assert any(one.endswith(":9308") for one in published)
        assert SERVICES[name]["volumes"] == [f"data-{config.node_id}:/data"]
        url = urlsplit(settings["odradek.catalog.url"])
        catalog = SERVICES[str(url.hostname)]
        assert catalog["environment"]["POSTGRES_USER"] == url.username
        assert catalog["environment"]["POSTGRES_DB"] == url.path[1:]
        condition = {"condition": "service_healthy"}
        # The server of S3 is there with the profile `object` alone.
        optional = {**condition, "required": False}
        assert SERVICES[name]["depends_on"] == {url.hostname: condition, "s3": optional}
        assert _storage(name, {}) == ("local", "")
        assert catalog["healthcheck"]["test"][:2] == ["CMD", "pg_isready"]
        assert "ports" not in catalog
    assert sorted(brokers) == [1, 2, 3]


def test_one_variable_makes_topics_shared_in_the_server_of_s3() -> None:
    server = SERVICES["s3"]
    assert server["profiles"] == ["object"]
    assert "ports" not in server
    for name in MEMBERS:
        assert _storage(name, SHARED) == ("object", f"s3://{_bucket()}")
        environment = _wholes(name, SHARED)
        prefix = "KAFKA_ODRADEK_OBJECT_STORE_"
        assert environment[f"{prefix}ENDPOINT"] == "http://s3:7070"
        keys = [environment[f"{prefix}{one}"] for one in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")]
        assert keys == list(server["environment"].values())


def test_one_variable_gives_the_broker_the_schema_registry() -> None:
    assert _http({}).odradek_schema_registry_url == ""
    found = urlsplit(_http({"ODRADEK_REGISTRY": "apicurio"}).odradek_schema_registry_url)
    [published] = _published(SERVICES[str(found.hostname)])
    assert published == f"127.0.0.1:8081:{found.port}"
    [command] = re.findall(r"ODRADEK_REGISTRY=\w+ docker compose .*", TEXT)
    assert command.split()[-2:] == ["broker", found.hostname]


def _http(environment: Mapping[str, str]) -> HttpConfig:
    found = from_environment(_wholes("broker", environment))
    layer = Layer(Source.STATIC_BROKER, {key: text for key, (text, _) in found.items()})
    return resolve_apart(HttpConfig, [layer])


def test_connect_and_the_registry_find_the_broker() -> None:
    advertised = SERVICES["broker"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    address = advertised.partition("DOCKER://")[2]
    assert SERVICES["registry"]["environment"]["APICURIO_KAFKASQL_BOOTSTRAP_SERVERS"] == address
    assert SERVICES["ui"]["environment"]["KAFKA_CLUSTERS_0_BOOTSTRAPSERVERS"] == address
    worker = (PACKAGING / "connect/worker.properties").read_text()
    assert f"\nbootstrap.servers={address}\n" in worker
    [(folder, place, _)] = [one.split(":") for one in SERVICES["connect"]["volumes"]]
    assert (ROOT / folder / "worker.properties").exists()
    assert SERVICES["connect"]["entrypoint"][1] == f"{place}/worker.properties"
    connector = json.loads((PACKAGING / "connect/lines.json").read_text())
    assert (ROOT / folder / connector["file"].removeprefix(f"{place}/")).exists()


def _storage(name: str, environment: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the storage of new topics and the object store of a broker of the cluster."""
    found = from_environment(_wholes(name, environment))
    settings = {key: text for key, (text, _) in found.items()}
    layers = [Layer(Source.STATIC_BROKER, settings)]
    store = resolve_apart(ObjectStoreConfig, layers)
    return resolve_broker(layers).config.odradek_storage, store.odradek_object_store_url


def _bucket() -> str:
    """Return the bucket that the server's command creates."""
    shell, option, command = SERVICES["s3"]["entrypoint"]
    assert (shell, option) == ("sh", "-c")
    found = re.match(r"mkdir -p /data/(\S+) && exec versitygw .* posix .* /data$", command)
    assert found is not None
    return found[1]


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """Run the server of S3 by its command; yield its address."""
    if not s3_server.PROGRAM.exists():
        pytest.skip("versitygw is not built (make s3, which needs Go)")
    service, port = SERVICES["s3"], free_port()
    places = {
        "/data": str(folder / "objects"), "--port :7070": f"--port 127.0.0.1:{port}",
        "exec versitygw": f"exec {s3_server.PROGRAM}",
    }  # fmt: skip
    *shell, command = service["entrypoint"]
    [check] = [one for one in service["healthcheck"]["test"] if one.startswith("http")]
    for old, new in places.items():
        assert old in command
        command = command.replace(old, new)
    environment = {**os.environ, **service["environment"]}
    with (folder / "s3.log").open("wb") as output:
        process = subprocess.Popen(
            [*shell, command], env=environment, stdout=output, stderr=output
        )

    def answers() -> bool:
        assert process.poll() is None, (folder / "s3.log").read_text()
        try:
            urllib.request.urlopen(check.replace(":7070", f":{port}"), timeout=5).close()
        except OSError:
            return False
        return True

    try:
        wait_until(answers, "the server of S3 answers")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        end(process)


@pytest.mark.slow
@pytest.mark.parametrize("variables", [{}, SHARED], ids=["local", "object"])
def test_brokers_with_the_environments_of_the_cluster_are_one(
    tmp_path: Path, new_database: str, variables: dict[str, str]
) -> None:
    ports = {name: (free_port(), free_port()) for name in MEMBERS}
    with ExitStack() as stack:
        store = stack.enter_context(_server(tmp_path)) if variables else "s3:7070"
        brokers = []
        for name in MEMBERS:
            inner, outer = ports[name]
            environment = _wholes(name, variables)
            places = {
                "0.0.0.0:19092": f"127.0.0.1:{inner}", f"{name}:19092": f"127.0.0.1:{inner}",
                "0.0.0.0:9092": f"127.0.0.1:{outer}", f"localhost:909{2 + int(name[-1])}":
                f"127.0.0.1:{outer}", "/data": str(tmp_path / name), "s3:7070": store,
                environment["KAFKA_ODRADEK_CATALOG_URL"]: new_database,
            }  # fmt: skip
            for old, new in places.items():
                environment = {key: text.replace(old, new) for key, text in environment.items()}
            one = OdradekProcess(tmp_path, environment=environment, is_bare=True, port=outer)
            stack.callback(one.stop)
            one.start()
            brokers.append(one)
        commands = Commands(brokers[0].bootstrap)
        wait_until(lambda: len(commands.document("cluster", "status")["brokers"]) == len(MEMBERS))
        found = commands.document("cluster", "status")["brokers"]
        assert [one["address"] for one in found] == [one.bootstrap for one in brokers]
        if variables:
            commands.shown("topics", "create", "orders")
            commands.shown("produce", "orders", text="x" * 100_000)
            stored = commands.document("cluster", "objects", "--catalog", new_database)
            assert stored["wal"]["oldest"]["needed_by"]["topic"] == "orders"
            assert list((tmp_path / "objects" / _bucket()).rglob("wal/*/*"))


def _published(service: dict[str, Any], **environment: str) -> list[str]:
    """Return a service's ports as Compose reads them, address:port:port."""
    return [_read(one, environment) for one in service.get("ports", ())]


def test_each_port_is_published_once_and_on_this_machine_alone() -> None:
    published = [port for one in SERVICES.values() for port in _published(one)]
    assert len(set(published)) == len(published)
    ports = {"9092:9092", "9308:9308", "9090:9090", "3000:3000"}
    ports |= {"8080:8080", "8081:8080", "8083:8083"}
    ports |= {f"{9092 + n}:9092" for n in (1, 2, 3)} | {f"{9308 + n}:9308" for n in (1, 2, 3)}
    assert {f"127.0.0.1:{port}" for port in ports} == set(published)


def test_the_address_to_publish_on_is_one_variable_that_the_file_explains() -> None:
    comment = "".join(line for line in TEXT.splitlines() if line.startswith("#"))
    assert "ODRADEK_PUBLISH" in comment
    for service in SERVICES.values():
        for port in _published(service, ODRADEK_PUBLISH="0.0.0.0"):
            assert port.startswith("0.0.0.0:")


def test_monitoring_finds_the_broker_and_what_is_shown() -> None:
    assert {"prometheus", "grafana"} == MONITORING
    prometheus = yaml.safe_load((PACKAGING / "prometheus/prometheus.yml").read_text())
    [job] = prometheus["scrape_configs"]
    [[target]] = [one["targets"] for one in job["static_configs"]]
    assert target == "broker:9308"
    assert "127.0.0.1:9308:9308" in _published(SERVICES["broker"])
    mounts = dict(volume.split(":")[:2] for volume in SERVICES["prometheus"]["volumes"])
    assert prometheus["rule_files"] == [f"{mounts['./docs/alerts']}/*.yml"]
    provisioning = PACKAGING / "grafana/provisioning"
    [source] = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    host, port = source["url"].removeprefix("http://").split(":")
    assert host in SERVICES and f"127.0.0.1:{port}:{port}" in _published(SERVICES[host])
    [provider] = yaml.safe_load((provisioning / "dashboards/odradek.yml").read_text())["providers"]
    shown = dict(volume.split(":")[:2] for volume in SERVICES["grafana"]["volumes"])
    assert provider["options"]["path"] == shown["./docs/grafana"]


def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("there is no promtool here")
    alerts = sorted((ROOT / "docs/alerts").glob("*.yml"))
    text = (PACKAGING / "prometheus/prometheus.yml").read_text()
    written = tmp_path / "prometheus.yml"
    written.write_text(text.replace("/etc/prometheus/alerts", str(ROOT / "docs/alerts")))
    done = subprocess.run([tool, "check", "config", written], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("rules found") == len(alerts)


@pytest.mark.parametrize("name", sorted(set(BUILT) - {"broker", "spark-master", *MEMBERS}))
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


@pytest.mark.parametrize("profile", ["", *sorted(PROFILES)])
def test_compose_takes_each_profile(profile: str) -> None:
    tool = [str(COMPOSE_PROGRAM)] if COMPOSE_PROGRAM.exists() else ["docker", "compose"]
    if not shutil.which(tool[0]) or subprocess.run([*tool, "version"]).returncode:
        pytest.skip("there is no docker compose here, nor the one of `make containers`")
    command = [*tool, "--profile", profile, "config", "--services"]
    environment = {**os.environ, **SHARED}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    expected = {
        name
        for name, one in SERVICES.items()
        if "profiles" not in one or profile in one["profiles"]
    }
    assert set(done.stdout.split()) == expected


def test_commands_for_shared_topics_are_those_of_the_file() -> None:
    [command] = re.findall(r"ODRADEK_STORAGE=object docker compose .*", TEXT)
    assert command.split()[-3:] == MEMBERS
    for page in ("README.md", "docs/object-storage.md"):
        assert command in " ".join((ROOT / page).read_text().split()), page


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
    from odradek.pipeline.audit import audit_command
    from odradek.pipeline.latest import latest_command
    from odradek.pipeline.materialize import materialize_command
    from odradek.pipeline.publish import publish_command

    commands = (audit_command, latest_command, materialize_command, publish_command)
    return {str(command.name): command for command in commands}[name]
