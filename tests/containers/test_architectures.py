"""The image of the broker for another architecture, whose programs QEMU runs."""

from __future__ import annotations

import json

import pytest

from bench.processes import ROOT, free_port
from tests.containers.asking import WAIT_S, answers, consume, fetch, produce
from tests.containers.engine import Engine
from tests.containers.prepare import architectures, image
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_600)]

BROKER = "localhost/odradek-tests/broker-arm64"
VALUES = [b"%03d" % number for number in range(100)]


def test_an_image_for_arm64_serves(containers: Engine) -> None:
    if "arm64" not in architectures():
        pytest.skip("no QEMU for arm64: apt-get install qemu-user-static, then make containers")
    options = ("--platform", "linux/arm64", "--target", "broker")
    containers.build(BROKER, ROOT, *options, base=image("arm64"))
    [built] = json.loads(containers.podman("image", "inspect", BROKER))
    assert built["Architecture"] == "arm64"
    port, http_port = free_port(), free_port()
    container = containers.podman(
        "run", "--detach", "--platform", "linux/arm64",
        "--publish", f"127.0.0.1:{port}:9092", "--publish", f"127.0.0.1:{http_port}:9308",
        "--env", f"KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:{port}", BROKER,
    ).strip()  # fmt: skip
    url = f"http://localhost:{http_port}/health"
    wait_until(lambda: answers(lambda: fetch(url)["status"] == "ok"), "it is well", WAIT_S)
    assert containers.podman("exec", container, "uname", "-m") == "aarch64\n"
    produce(port, "orders", VALUES)
    assert consume(port, "orders", len(VALUES)) == VALUES
