"""The recipes of docs/testing.md: those in Python run, the others fit the image and its output."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from bench.processes import ROOT
from odradek.config.effective import resolve_broker
from odradek.config.layers import static_layer
from tests.docs.blocks import blocks
from tests.testing.project import run

PAGE = ROOT / "docs" / "testing.md"
BLOCKS = list(blocks(PAGE))
CONTAINERS = ("java", "python", "go", "javascript")


def texts(language: str) -> list[str]:
    return ["\n".join(one.lines) + "\n" for one in BLOCKS if one.language == language]


def named(language: str) -> dict[str, str]:
    """Return the files of a language, by the name in their first line."""
    found = {}
    for text in texts(language):
        name = re.match(r"# (\w+\.py)\n", text)
        assert name is not None, text
        found[name[1]] = text
    return found


@pytest.mark.slow
def test_the_files_of_the_page_are_a_project_whose_tests_pass(tmp_path: Path) -> None:
    files = named("python")
    (tmp_path / "pytest.ini").write_text(texts("ini")[0])
    for name, text in files.items():
        if name != "testcontainers_odradek.py":
            (tmp_path / name).write_text(text)
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def recipe(language: str) -> str:
    (text,) = [one for one in texts(language) if "testcontainers" in one]
    return text


@pytest.mark.parametrize("language", CONTAINERS)
def test_a_recipe_for_containers_gives_clients_the_address_of_the_published_port(
    language: str,
) -> None:
    text = recipe(language)
    dockerfile = (ROOT / "Dockerfile").read_text()
    own = dict(re.findall(r"(KAFKA_\w+)=(\S+)", dockerfile))
    assert '"KAFKA_ADVERTISED_LISTENERS"' in text or "KAFKA_ADVERTISED_LISTENERS:" in text
    assert "PLAINTEXT://" in text
    assert "localhost:" in text
    given = {**own, "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:40000"}
    config = resolve_broker([static_layer(None, given)]).config
    assert config.bound_endpoints[0].port == 9092 and "9092" in text
    assert config.advertised_endpoints[0].port == 40000
    assert config.advertised_endpoints[0].host == "localhost"


@pytest.mark.parametrize("language", CONTAINERS)
def test_a_recipe_waits_for_the_line_of_a_broker_that_is_ready(language: str) -> None:
    assert "accepts connections" in recipe(language)
    assert " accepts connections on " in (ROOT / "broker" / "serve.py").read_text()


def test_the_recipe_in_python_is_a_module() -> None:
    ast.parse(named("python")["testcontainers_odradek.py"])


def test_the_workflow_runs_the_tests_with_kernels_where_the_broker_looks_for_them() -> None:
    (text,) = texts("yaml")
    job = yaml.safe_load(text)["jobs"]["tests"]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands[-1] == "pytest"
    (cache,) = [step for step in job["steps"] if step.get("uses", "").startswith("actions/cache")]
    assert job["env"]["NUMBA_CACHE_DIR"].endswith(f"/{cache['with']['path']}")
    module = commands[-2].removeprefix("python -m ")
    assert (ROOT / module.removeprefix("odradek.").replace(".", "/")).with_suffix(".py").exists()
