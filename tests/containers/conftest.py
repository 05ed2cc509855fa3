"""The engine of the tests, and the images of docker-compose.yml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
import yaml

from bench.processes import ROOT
from tests.containers.engine import Engine, engine, missing
from tests.containers.standins import STAND_INS

BROKER, PIPELINE = "localhost/odradek-tests/broker", "localhost/odradek-tests/pipeline"


@pytest.fixture(scope="session")
def containers() -> Iterator[Engine]:
    """An engine."""
    if reason := missing():
        pytest.skip(reason)
    with engine() as found:
        yield found


@pytest.fixture(scope="session")
def broker_image(containers: Engine) -> str:
    """The image of the broker, for this machine."""
    containers.build(BROKER, ROOT, "--target", "broker")
    return BROKER


@pytest.fixture(scope="session")
def images(containers: Engine, broker_image: str) -> Mapping[str, str]:
    """The images of services; those that cannot be had are not there."""
    containers.build(PIPELINE, ROOT, "--target", "pipeline")
    built = {"broker": broker_image, "pipeline": PIPELINE}
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    found = {
        name: built[one["build"]["target"]] for name, one in services.items() if "build" in one
    }
    for name, stand_in in STAND_INS.items():
        if image := stand_in.image(containers):
            found[name] = image
    containers.name_images(found)
    return found
