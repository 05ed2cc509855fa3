"""Find the Java that Spark will run on, and name a package to install where there is none.

Spark's own complaint about a missing or old Java comes after a shell script's, and names neither
the version it wants nor a package that has it.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from odradek.pipeline.errors import PipelineError

# Spark 4's documentation: "Spark runs on Java 17/21".
OLDEST_JAVA = 17

_INSTALL = (
    "install Java 17 or 21 (Debian: default-jre-headless, macOS: brew install openjdk@17) "
    "or point JAVA_HOME at one"
)


def require_java(environment: Mapping[str, str]) -> int:
    """Return the major version of the Java that Spark would start.

    Looks where Spark's launcher does: ``JAVA_HOME`` first, then ``PATH``. Raises PipelineError
    where there is none or it is too old.
    """
    java = _find(environment)
    try:
        # `java -version` writes to standard error; a JVM that cannot start exits non-zero.
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PipelineError(f"{java} does not run ({error}): {_INSTALL}") from error
    major = parse_version(answer.stderr + answer.stdout)
    if major is None:
        raise PipelineError(f"{java} -version names no version: {_INSTALL}")
    if major < OLDEST_JAVA:
        raise PipelineError(f"Spark 4 needs Java 17 or 21 and {java} is Java {major}: {_INSTALL}")
    return major


def parse_version(answer: str) -> int | None:
    """Read the major version from ``java -version``: "17.0.15" is 17 and "1.8.0_402" is 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(found[1]) if found else None


def _find(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.exists():
            raise PipelineError(f"JAVA_HOME={home} holds no bin/java: {_INSTALL}, or unset it")
        return str(java)
    found = shutil.which("java", path=environment.get("PATH"))
    if found is None:
        raise PipelineError(f"Spark needs Java and there is none on PATH: {_INSTALL}")
    return found
