"""The distributions hold one top-level name, and run beside a user's modules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from bench.processes import ROOT
from tests.dev_environment import make_environment
from tests.distribution import RECORD, plant_foreign_modules, serve_and_produce
from tests.packages import PACKAGES

pytestmark = pytest.mark.slow

# pytest with its own packages, and a client.
FOR_TESTS = ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "kafka-python")
PROJECT = '''
from kafka import KafkaConsumer, KafkaProducer


def test_orders(odradek_broker, odradek_topic):
    topic = odradek_topic("orders")
    with KafkaProducer(bootstrap_servers=odradek_broker.bootstrap_servers) as producer:
        producer.send(topic, b"1").get(60)
        assert producer.partitions_for("others") == {0, 1}
    consumer = KafkaConsumer(
        topic, bootstrap_servers=odradek_broker.bootstrap_servers, auto_offset_reset="earliest",
        metadata_max_age_ms=1_000,  # kafka-python 3.0 may miss the topic at its start
    )
    assert next(consumer).value == b"1"
    consumer.close()
'''

BUILD = ("pyproject.toml", "README.md", "LICENSE", "docs", "packaging", "odradek", *PACKAGES)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution, and the wheel from it, out of a copy of the repository."""
    folder = tmp_path_factory.mktemp("distribution")
    source = folder / "source"
    source.mkdir()
    for name in BUILD:
        if (ROOT / name).is_dir():
            skipped = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=skipped)
        else:
            shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist"]
    done = subprocess.run([*command, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


def test_the_index_would_take_the_distributions(built: Path) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", *built.iterdir()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stdout


def test_the_wheel_holds_one_name_and_all_files_under_it(built: Path) -> None:
    with zipfile.ZipFile(wheel(built)) as archive:
        names = {Path(name) for name in archive.namelist()}
    (metadata,) = {name.parts[0] for name in names} - {"odradek"}
    assert metadata.endswith(".dist-info")
    assert {name for name in names if name.parts[0] == "odradek"} == files_of_the_packages()


def test_the_source_distribution_holds_what_the_wheel_is_built_from(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        members = archive.getmembers()
    assert all(member.isfile() or member.isdir() for member in members)
    names = {Path(*Path(member.name).parts[1:]) for member in members if member.isfile()}
    assert files_of_the_packages() <= names


def test_the_wheel_serves_beside_modules_of_the_same_names(built: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv", ROOT / "requirements.lock")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index"]
    subprocess.run([*install, "--no-deps", wheel(built)], check=True)
    plant_foreign_modules(tmp_path / "elsewhere")
    written = [python, "-m", "odradek.cli.main", "init", "--with", "alerts,dashboards,docs"]
    subprocess.run([*written, "files"], cwd=tmp_path / "elsewhere", check=True)
    assert (tmp_path / "elsewhere" / "files" / "docs" / "alerts" / "odradek.yml").is_file()
    said = serve_and_produce(python, tmp_path / "elsewhere")
    first, *rest = said.splitlines()
    assert "accepts connections" in first
    assert rest == RECORD.splitlines()


def test_a_project_that_installs_the_wheel_has_fixtures_of_pytest(
    built: Path, tmp_path: Path
) -> None:
    lock = tmp_path / "packages.lock"
    for_tests = "".join(f"{name}==0\n" for name in FOR_TESTS)
    lock.write_text((ROOT / "requirements.lock").read_text() + for_tests)
    python = make_environment(tmp_path / "venv", lock)
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index"]
    subprocess.run([*install, "--no-deps", wheel(built)], check=True)
    project = tmp_path / "project"
    plant_foreign_modules(project)
    (project / "pytest.ini").write_text("[pytest]\nodradek_settings = num.partitions=2\n")
    (project / "test_orders.py").write_text(PROJECT)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST_"))}
    done = subprocess.run(
        [python, "-m", "pytest", "-q"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_a_checkout_serves_beside_modules_of_the_same_names(tmp_path: Path) -> None:
    """The checkout's environment has the editable installation."""
    plant_foreign_modules(tmp_path / "elsewhere")
    assert RECORD in serve_and_produce(Path(sys.executable), tmp_path / "elsewhere")


def wheel(folder: Path) -> Path:
    (path,) = folder.glob("*.whl")
    return path


def files_of_the_packages() -> set[Path]:
    """Return the paths of modules, of the web page and of shared files, as they are installed."""
    found = {path.relative_to(ROOT) for path in (ROOT / "odradek").glob("*.py")}
    for package in PACKAGES:
        modules = (ROOT / package).rglob("*.py")
        found |= {Path("odradek", path.relative_to(ROOT)) for path in modules}
    page = (ROOT / "broker" / "web" / "page").iterdir()
    found |= {Path("odradek", path.relative_to(ROOT)) for path in page}
    return found | {Path("odradek", "share", path) for path in shared_files()}


def shared_files() -> set[Path]:
    """Return the paths of the files that `odradek init` writes, below odradek/share."""
    docs = ROOT / "docs"
    found = {*docs.glob("*.md"), *docs.glob("images/*"), *docs.glob("alerts/*.yml")}
    found |= {*docs.glob("grafana/*.json"), docs / "pytest_fixture.py"}
    paths = {path.relative_to(ROOT) for path in found}
    for name in ("compose", "helm", "prometheus", "systemd"):
        files = (ROOT / "packaging" / name).rglob("*")
        paths |= {path.relative_to(ROOT / "packaging") for path in files if path.is_file()}
    return paths
