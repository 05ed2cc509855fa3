"""Builds the interop programs into .interop, each where its tools are; says what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.interop.programs import BUILDS, SOURCES

BUILD_TIMEOUT_S = 1800


def main() -> int:
    """Build all; return 1 when one failed that could have been built."""
    BUILDS.mkdir(exist_ok=True)
    failed = [name for name, build in _BUILDS.items() if not build()]
    for name in failed:
        print(f"{name}: FAILED")
    return 1 if failed else 0


def _go() -> bool:
    return _run("go", ["go", "build", "-o", f"{BUILDS}/", "./..."], SOURCES / "go")


def _kafka_exporter() -> bool:
    """Fetch an exporter that is nobody's fault to lack: not every module proxy has it."""
    module = "github.com/danielqsj/kafka_exporter@v1.9.0"
    if not _run("go", ["go", "install", module], BUILDS, {"GOBIN": str(BUILDS)}):
        print("kafka_exporter: not to be had, so its test is skipped unless it is on the PATH")
    return True


def _kafkatop() -> bool:
    """Fetch a monitor; its other needs, confluent-kafka and rich, are the project's own."""
    packages = ["kafkatop==1.16", "humanize==4.17.0", "readchar==4.2.2"]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade"]
    return _run(sys.executable, [*pip, "--target", str(BUILDS / "kafkatop"), *packages], BUILDS)


def _rust() -> bool:
    """Build on librdkafka, which includes curl's header even where it is built without curl:
    Debian's libcurl4-openssl-dev.
    """
    target = ["--target-dir", str(BUILDS / "rdkafka")]
    return _run("cargo", ["cargo", "build", "--release", "--locked", *target], SOURCES / "rust")


def _java() -> bool:
    goals = ["compile", "dependency:copy-dependencies"]
    return _run("mvn", ["mvn", "-q", "-B", f"-Dbuilds={BUILDS}", *goals], SOURCES / "java")


def _kafka() -> bool:
    goal = ["-q", "-B", f"-Dbuilds={BUILDS}", "dependency:copy-dependencies"]
    return _run("mvn", ["mvn", *goal], SOURCES / "kafka")


def _streams() -> bool:
    goals = ["compile", "dependency:copy-dependencies"]
    return _run("mvn", ["mvn", "-q", "-B", f"-Dbuilds={BUILDS}", *goals], SOURCES / "streams")


def _spark() -> bool:
    """Put together a later PySpark, whose other needs are the project's own, and its jars."""
    wanted = "pyspark==4.2.0"
    folder = BUILDS / "spark"
    ready = folder / ".ready"
    if not ready.exists() or ready.read_text() != wanted:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--upgrade"]
        if not _run(sys.executable, [*pip, "--target", str(folder / "python"), wanted], BUILDS):
            return False
        ready.write_text(wanted)
    goal = ["-q", "-B", f"-Dbuilds={BUILDS}", "dependency:copy-dependencies"]
    return _run("mvn", ["mvn", *goal], SOURCES / "spark")


def _iceberg() -> bool:
    """Put together a REST catalog; Java compiles its one source when it is started."""
    goal = ["-q", "-B", f"-Dbuilds={BUILDS}", "dependency:copy-dependencies"]
    return _run("mvn", ["mvn", *goal], SOURCES / "iceberg")


def _kafkajs() -> bool:
    return _node("kafkajs", {})


def _confluent() -> bool:
    # The package would fetch a binary; built here, it links to what the system has: OpenSSL, curl,
    # zlib and zstd, with their headers (Debian: lib{ssl,curl4-openssl,zstd}-dev, zlib1g-dev).
    # It says `make -j`, as many compilers as there are files, so it is the load that bounds them.
    environment = {
        "CKJS_LINKING": "dynamic",
        "npm_config_build_from_source": "true",
        "MAKEFLAGS": f"-l{os.cpu_count()}",
    }
    return _node("confluent", environment)


def _node(name: str, environment: Mapping[str, str]) -> bool:
    """Install what the lock file says, when that has changed, beside a copy of the program."""
    source, build = SOURCES / "node" / name, BUILDS / name
    ready, lock = build / ".ready", (source / "package-lock.json").read_text()
    if not ready.exists() or ready.read_text() != lock:
        build.mkdir(exist_ok=True)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(source / file, build)
        if not _run("npm", ["npm", "ci", "--no-audit", "--no-fund"], build, environment):
            return False
        if shutil.which("npm"):
            ready.write_text(lock)
    shutil.copy(source / "program.js", build)
    shutil.copy(source.parent / "lines.js", build)
    return True


def _run(
    tool: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> bool:
    """Run a build, unless its tool is missing; return whether it did not fail."""
    if shutil.which(tool) is None:
        print(f"{folder.name}: {tool} is not installed, so its tests are skipped")
        return True
    print(f"{folder.name}: {' '.join(command)}", flush=True)
    changed = {**os.environ, **(environment or {})}
    try:
        done = subprocess.run(command, cwd=folder, env=changed, timeout=BUILD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        print(f"{folder.name}: not built after {BUILD_TIMEOUT_S} s")
        return False
    return done.returncode == 0


_BUILDS = {
    "go": _go,
    "kafka_exporter": _kafka_exporter,
    "kafkatop": _kafkatop,
    "kafkajs": _kafkajs,
    "confluent-javascript": _confluent,
    "rdkafka": _rust,
    "java": _java,
    "kafka": _kafka,
    "streams": _streams,
    "spark": _spark,
    "iceberg": _iceberg,
}

if __name__ == "__main__":
    sys.exit(main())
