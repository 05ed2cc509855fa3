"""What the tests of config share: Apache Kafka's own answers, where its jars are at hand."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.java import program

_PROGRAM = Path(__file__).with_name("KafkaConfigs.java")

Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def ask_kafka() -> Ask:
    """Ask Kafka's classes, in one run of Java; skip where Java or the jars are missing."""

    def ask(**questions: list[Any]) -> dict[str, Any]:
        kinds = (
            "values", "properties", "describe", "dynamic", "brokers", "topics", "provided", "jaas",
        )  # fmt: skip
        asked = {kind: questions.get(kind, []) for kind in kinds}
        run = subprocess.run(
            program(_PROGRAM),
            input=json.dumps(asked).encode(),
            capture_output=True,
            timeout=240,
            check=False,
        )
        assert run.returncode == 0, run.stderr.decode()
        answers: dict[str, Any] = json.loads(run.stdout)
        return answers

    return ask
