"""What the tests of config share: Apache Kafka's own answers, where its jars are at hand."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]
_PROGRAM = Path(__file__).with_name("KafkaConfigs.java")

Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def ask_kafka() -> Ask:
    """Ask Kafka's classes, in one run of Java; skip where Java or the jars are missing."""
    libs = Path(os.environ.get("KAFKA_LIBS", _ROOT / ".kafka" / "libs")).expanduser()
    if shutil.which("java") is None:
        pytest.skip("Java is not installed")
    if not any(libs.glob("kafka-clients-*.jar")):
        pytest.skip(f"no jars of Kafka in {libs}; set KAFKA_LIBS")

    def ask(**questions: list[Any]) -> dict[str, Any]:
        kinds = ("values", "properties", "describe", "dynamic", "brokers", "topics")
        asked = {kind: questions.get(kind, []) for kind in kinds}
        run = subprocess.run(
            ["java", "-Xmx256m", "-cp", f"{libs}/*", str(_PROGRAM)],
            input=json.dumps(asked).encode(),
            capture_output=True,
            timeout=90,
            check=False,
        )
        assert run.returncode == 0, run.stderr.decode()
        answers: dict[str, Any] = json.loads(run.stdout)
        return answers

    return ask
