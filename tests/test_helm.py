"""The chart of Helm: what Helm renders, held against the broker's settings, image and HTTP.

No cluster of Kubernetes is here: these tests show that Helm accepts and renders the chart, and
that a broker runs with the rendered settings. They do not show that pods, volumes, Services or
the disruption budget do their work. Without Helm (`make helm`), only the names of values are
compared.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.processes import ROOT, OdradekProcess, free_port
from odradek.config.broker import BrokerConfig
from odradek.config.effective import resolve_broker
from odradek.config.layers import static_layer
from tests.support.waiting import wait_for_http

CHART = ROOT / "packaging" / "helm" / "odradek"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
TEMPLATES = "".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))
BUILT = ROOT / ".helm" / "helm"
HELM = str(BUILT) if BUILT.exists() else shutil.which("helm")
# Helm without a cluster takes this version for that of the cluster.
VERSION = ["--kube-version", "1.30.0"]
SECRET = "existingSecret=secrets"
SHARED = [
    "replicas=3", SECRET, "objectStore.url=s3://bucket/odradek", "persistence.enabled=false",
    "serviceMonitor.enabled=true",
]  # fmt: skip
IMAGE = dict(re.findall(r"(KAFKA_\w+)=(\S+)", (ROOT / "Dockerfile").read_text()))

needs_helm = pytest.mark.skipif(HELM is None, reason="Helm is not here: make helm, which needs Go")


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(HELM), *words, *VERSION], capture_output=True, text=True, timeout=120, cwd=CHART
    )


def render(*values: str, release: str = "odradek") -> dict[str, list[dict[str, Any]]]:
    """Return the objects of a release in the namespace `streams`, by their kinds."""
    options = [word for one in values for word in ("--set", one)]
    done = helm("template", release, ".", "--namespace", "streams", *options)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, Any]]] = {}
    for one in yaml.safe_load_all(done.stdout):
        found.setdefault(one["kind"], []).append(one)
    return found


def pod(found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    (one,) = found["StatefulSet"]
    spec: dict[str, Any] = one["spec"]["template"]["spec"]
    return spec


def environment(found: dict[str, list[dict[str, Any]]], number: int = 0) -> dict[str, str]:
    """Return the environment of a pod: that of the image, and Kubernetes's substitutions."""
    (container,) = pod(found)["containers"]
    (one,) = found["StatefulSet"]
    fields = {
        "metadata.name": f"{one['metadata']['name']}-{number}",
        "metadata.labels['apps.kubernetes.io/pod-index']": str(number),
    }
    made = dict(IMAGE)
    for variable in container["env"]:
        text = variable.get("value")
        if text is None:
            text = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        made[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda name: made[name[1]], text)
    return made


def settings(found: dict[str, list[dict[str, Any]]]) -> str:
    (one,) = found["ConfigMap"]
    return str(one["data"]["server.properties"])


def resolve(found: dict[str, list[dict[str, Any]]], folder: Path, number: int = 0) -> BrokerConfig:
    file = folder / "server.properties"
    file.write_text(settings(found))
    secret = {"KAFKA_ODRADEK_CATALOG_URL": "postgresql://odradek@db/odradek"}
    given = environment(found, number) | (secret if "envFrom" in str(pod(found)) else {})
    resolved = resolve_broker([static_layer(file, given)])
    assert not resolved.warnings
    return resolved.config


def _paths(values: dict[str, Any], before: str = "") -> set[str]:
    found: set[str] = set()
    for name, value in values.items():
        if isinstance(value, dict) and value and name != "resources":
            found |= _paths(value, f"{before}{name}.")
        else:
            found.add(before + name)
    return found


def test_the_templates_use_each_value_of_the_file_and_no_others() -> None:
    used = set(re.findall(r"\.Values\.([\w.]+)", TEMPLATES))
    assert used == _paths(VALUES)


def test_each_value_has_a_comment() -> None:
    commented = False
    for line in (CHART / "values.yaml").read_text().splitlines():
        if re.match(r"\w", line):
            assert commented or line.split(":")[0] in (
                "image", "service", "resources", "serviceAccount", "objectStore",
                "podAnnotations", "nodeSelector", "tolerations",
            ), line  # fmt: skip
        commented = line.startswith("#") or (commented and bool(line.strip()))


@needs_helm
def test_helm_finds_nothing_wrong() -> None:
    done = helm("lint", "--strict", ".")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_helm
def test_one_broker_has_a_volume_and_no_disruption_budget(tmp_path: Path) -> None:
    found = render()
    assert set(found) == {"ConfigMap", "Service", "ServiceAccount", "StatefulSet"}
    (one,) = found["StatefulSet"]
    (claim,) = one["spec"]["volumeClaimTemplates"]
    (container,) = pod(found)["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    config = resolve(found, tmp_path)
    assert str(config.log_dirs[0]).startswith(f"{mounts[claim['metadata']['name']]}/")
    assert container["args"] == ["--config", f"{mounts['settings']}/server.properties"]


@needs_helm
@pytest.mark.parametrize("release", ["odradek", "kafka"])
def test_a_broker_advertises_its_own_name_in_the_service_of_brokers(
    tmp_path: Path, release: str
) -> None:
    found = render("replicas=3", SECRET, release=release)
    (one,) = found["StatefulSet"]
    governing = one["spec"]["serviceName"]
    (service,) = [it for it in found["Service"] if it["metadata"]["name"] == governing]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    for number in (0, 2):
        config = resolve(found, tmp_path, number)
        assert config.node_id == number
        (address,) = config.advertised_endpoints
        name = one["metadata"]["name"]
        assert address.host == f"{name}-{number}.{governing}.streams.svc.cluster.local"
        assert address.port == config.bound_endpoints[0].port == 9092


@needs_helm
def test_probes_and_ports_are_those_of_the_broker(tmp_path: Path) -> None:
    found = render("service.port=9093", "service.httpPort=9400")
    config = resolve(found, tmp_path)
    (container,) = pod(found)["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert config.metrics_address is not None
    assert ports == {"kafka": config.bound_endpoints[0].port, "http": config.metrics_address[1]}
    probes = [container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")]
    assert [one["path"] for one in probes] == ["/health/live", "/health/ready"]
    assert {one["port"] for one in probes} == {"http"}
    for service in found["Service"]:
        assert {one["targetPort"] for one in service["spec"]["ports"]} == set(ports)
        assert {one["port"] for one in service["spec"]["ports"]} == {9093, 9400}


@needs_helm
def test_services_and_budget_select_the_pods() -> None:
    found = render(*SHARED)
    (one,) = found["StatefulSet"]
    labels = one["spec"]["template"]["metadata"]["labels"].items()
    (budget,) = found["PodDisruptionBudget"]
    selectors = [service["spec"]["selector"] for service in found["Service"]]
    selectors += [one["spec"]["selector"]["matchLabels"]]
    selectors += [budget["spec"]["selector"]["matchLabels"]]
    assert all(selector.items() <= labels for selector in selectors)
    assert budget["spec"]["maxUnavailable"] == 1


@needs_helm
def test_shared_topics_need_no_volumes(tmp_path: Path) -> None:
    found = render(*SHARED)
    (one,) = found["StatefulSet"]
    assert "volumeClaimTemplates" not in one["spec"]
    assert {"name": "data", "emptyDir": {}} in pod(found)["volumes"]
    assert resolve(found, tmp_path).odradek_storage == "object"
    assert "odradek.object.store.url=s3://bucket/odradek\n" in settings(found)


@needs_helm
def test_the_monitor_selects_one_service_and_a_port_of_it() -> None:
    found = render(*SHARED)
    (monitor,) = found["ServiceMonitor"]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    labelled = [one for one in found["Service"] if wanted <= one["metadata"]["labels"].items()]
    (service,) = labelled
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {one["name"] for one in service["spec"]["ports"]}


@needs_helm
def test_settings_are_written_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    given = {
        "message.max.bytes": 1048588,
        "auto.create.topics.enable": False,
        "log.cleaner.min.cleanable.ratio": 0.25,
        "super.users": r"User:CN=a\b",
    }
    file.write_text(yaml.safe_dump({"settings": given}))
    done = helm("template", "odradek", ".", "--values", str(file), "--show-only",
                "templates/configmap.yaml")  # fmt: skip
    assert done.returncode == 0, done.stderr
    (tmp_path / "server.properties").write_text(
        yaml.safe_load(done.stdout)["data"]["server.properties"]
    )
    assert static_layer(tmp_path / "server.properties").values == {
        "message.max.bytes": "1048588",
        "auto.create.topics.enable": "false",
        "log.cleaner.min.cleanable.ratio": "0.25",
        "super.users": r"User:CN=a\b",
    }


@needs_helm
@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["replicas=2"], "replicas: several brokers need a catalog: set existingSecret"),
        (["persistence.enabled=false"], "need an object store: set objectStore.url"),
        (["objectStore.url=s3://b"], "shared topics need a catalog: set existingSecret"),
        ([r"settings.log\.dirs=/x"], "the chart sets log.dirs itself: remove it"),
    ],
)
def test_values_that_contradict_each_other_are_refused(values: list[str], said: str) -> None:
    options = [word for one in values for word in ("--set", one)]
    done = helm("template", "odradek", ".", *options)
    assert done.returncode != 0
    assert said in done.stderr


@needs_helm
def test_pods_run_as_the_user_of_the_image_without_rights() -> None:
    spec = pod(render())
    assert spec["securityContext"]["runAsNonRoot"] is True
    # The first user that useradd creates.
    assert spec["securityContext"]["runAsUser"] == 1000
    assert "RUN useradd --create-home odradek" in (ROOT / "Dockerfile").read_text()
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    # Services are no variables: KAFKA_PORT of a Service would be a setting.
    assert spec["enableServiceLinks"] is False
    assert spec["automountServiceAccountToken"] is False


@needs_helm
@pytest.mark.slow
def test_a_broker_with_the_rendered_settings_answers_both_probes(tmp_path: Path) -> None:
    found = render(r"settings.num\.partitions=3")
    file = tmp_path / "server.properties"
    file.write_text(settings(found))
    port, given = free_port(), environment(found)
    places = {
        "0.0.0.0:9092": f"127.0.0.1:{port}",
        "odradek-0.odradek-brokers.streams.svc.cluster.local:9092": f"127.0.0.1:{port}",
        "/data": str(tmp_path),
    }
    for old, new in places.items():
        given = {name: text.replace(old, new) for name, text in given.items()}
    broker = OdradekProcess(
        tmp_path / "broker", environment=given, options=["--config", str(file)], is_bare=True,
        port=port,
    )  # fmt: skip
    broker.start()
    try:
        (container,) = pod(found)["containers"]
        for name in ("livenessProbe", "readinessProbe"):
            wait_for_http(broker, container[name]["httpGet"]["path"])
    finally:
        broker.stop()
    assert (tmp_path / "odradek").is_dir()
