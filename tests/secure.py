"""What `make secure` looks for: packages with known holes, secrets in the files.

    python -m tests.secure              looks, and prints a line for each finding
    python -m tests.secure --accept     takes what the scan for secrets finds for no secrets

detect-secrets judges file by file: a file that was found clean is not looked at again until it
changes (.secure_cache/). pip-audit asks for known holes once a day, and again when a lock file
changes. Without an answer it prints what could not be looked up, and fails only when SECURE_STRICT
is set: without a network nothing can be known, and that is no reason to stop work. Dangerous code
is found by ruff, which has bandit's rules.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import chdir
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".secure_cache" / "clean.json"
BASELINE = ROOT / ".secrets.baseline"
LOCKS = (
    "requirements.lock", "requirements-build.lock", "requirements-pipeline.lock",
    "requirements-console.lock", "requirements-dev.lock", "requirements-fuzz.lock",
    "requirements-kerberos.lock", "requirements-install.lock",
)  # fmt: skip
# What a test calls a password is none, and its vectors are as random as any key; keys of known
# forms are looked for in tests, too.
GUESSING = ("KeywordDetector", "HexHighEntropyString", "Base64HighEntropyString")
# These are read as they are; of other kinds detect-secrets reads lines that it has written itself.
_PLAIN = (".py", ".md")
_DAY_S, _HOUR_S = 86_400, 3_600
_BATCH = 40


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one tool says; `is_clean` is None when it could not look."""

    tool: str
    is_clean: bool | None
    lines: Sequence[str]


def main(arguments: Sequence[str]) -> int:
    """Look, print the verdicts, and return the exit status."""
    if arguments == ["--accept"]:
        _accept()
        return 0
    cache = _read_cache()
    files = _files()
    with ThreadPoolExecutor() as pool:
        looks = (look_for_secrets, look_for_holes)
        verdicts = list(pool.map(lambda look: look(files, cache), looks))
    CACHE.parent.mkdir(exist_ok=True)
    CACHE.write_text(json.dumps(cache))
    for verdict in verdicts:
        state = {True: "clean", False: "NOT CLEAN", None: "NOT LOOKED AT"}[verdict.is_clean]
        print(f"{verdict.tool}: {state}", *verdict.lines, sep="\n  ")
    is_strict = bool(os.environ.get("SECURE_STRICT"))
    wrong = (False, None) if is_strict else (False,)
    return int(any(verdict.is_clean in wrong for verdict in verdicts))


def look_for_secrets(files: Sequence[str], cache: dict[str, str]) -> Verdict:
    """Have detect-secrets look at all files; those it knows for no secrets are in the baseline."""
    changed = _changed("detect-secrets", files, cache)
    known = _known()
    found = _scan(changed)
    lines = [
        f"{file}:{line}: {kind}: take it out, make it invalid, or say "
        "`python -m tests.secure --accept` if it is none"
        for file, line, kind, digest in found
        if (file, kind, digest) not in known
    ]
    bad = {line.partition(":")[0] for line in lines}
    _note("detect-secrets", [one for one in changed if one not in bad], cache)
    return Verdict("detect-secrets", not lines, lines)


def look_for_holes(_: Sequence[str], cache: dict[str, str]) -> Verdict:
    """Have pip-audit look up the packages of all lock files."""
    digest = _digest(b"".join((ROOT / lock).read_bytes() for lock in LOCKS))
    today, now = (f"{digest} {int(time.time()) // seconds}" for seconds in (_DAY_S, _HOUR_S))
    if cache.get("pip-audit") == today:
        return Verdict("pip-audit", True, ())
    if cache.get("pip-audit in vain") == now:
        return Verdict("pip-audit", None, ("they could not be looked up within the last hour",))
    try:
        found = json.loads(_audit())["dependencies"]
    except (ValueError, KeyError, TypeError, subprocess.SubprocessError):
        found = []
    holes = [
        f"{one['name']} {one['version']}: {hole['id']}, mended in "
        f"{', '.join(hole['fix_versions']) or 'no version yet'}"
        for one in found
        for hole in one.get("vulns", ())
    ]
    lines = list(holes)
    unknown = sum("skip_reason" in one for one in found)
    if unknown or not found:
        what = f"{unknown} of {len(found)} packages" if found else "all of it"
        lines.append(f"{what} could not be looked up: is there a network?")
    if holes:  # nothing is kept: they are looked up and reported each time
        return Verdict("pip-audit", False, lines)
    if lines:
        cache["pip-audit in vain"] = now
        return Verdict("pip-audit", None, lines)
    cache["pip-audit"] = today
    return Verdict("pip-audit", True, ())


def _audit() -> str:
    locks = [argument for lock in LOCKS for argument in ("-r", lock)]
    command = [
        sys.executable, "-m", "pip_audit", *locks, "--no-deps", "--disable-pip",
        "--format", "json", "--progress-spinner", "off", "--timeout", "10",
    ]  # fmt: skip
    run = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=300
    )
    return run.stdout


def _files() -> list[str]:
    """Return the files of the repository, those that are new included."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    names = sorted(set(found.split("\0")) - {"", BASELINE.name, *LOCKS})
    return [one for one in names if (ROOT / one).is_file()]


def _changed(tool: str, files: Iterable[str], cache: dict[str, str]) -> list[str]:
    return [one for one in files if cache.get(f"{tool} {one}") != _stamp(tool, one)]


def _note(tool: str, files: Iterable[str], cache: dict[str, str]) -> None:
    cache.update({f"{tool} {one}": _stamp(tool, one) for one in files})


def _stamp(tool: str, file: str) -> str:
    """Return what changes with a file, with the tool, and with what is told of it here."""
    told = BASELINE.read_bytes() if tool == "detect-secrets" and BASELINE.exists() else b""
    own = Path(__file__).read_bytes()
    content = (ROOT / file).read_bytes()
    return _digest(metadata.version(tool).encode() + _digest(told + own).encode() + content)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read_cache() -> dict[str, str]:
    try:
        found = json.loads(CACHE.read_text())
    except (OSError, ValueError):
        return {}
    return {str(key): str(value) for key, value in found.items()}


Secret = tuple[str, int, str, str]  # file, line, kind, digest


def _scan(files: Sequence[str]) -> list[Secret]:
    """Scan files in as many processes as there are cores."""
    batches = [files[at : at + _BATCH] for at in range(0, len(files), _BATCH)]
    if len(batches) < 2:
        return [one for batch in batches for one in _scan_some(batch)]
    with ProcessPoolExecutor() as pool:
        return [one for found in pool.map(_scan_some, batches) for one in found]


def _scan_some(files: Sequence[str]) -> list[Secret]:
    from detect_secrets.settings import default_settings

    released = [one for one in files if not one.startswith(("tests/", "bench/", "docs/"))]
    with chdir(ROOT):
        suspects = [one for one in files if not one.endswith(_PLAIN) or _may_hold_a_key(one)]
        with default_settings() as settings:
            settings.disable_plugins(*GUESSING)
            found = _scan_each(suspects)
        with default_settings() as settings:
            settings.disable_plugins(*(set(settings.plugins) - set(GUESSING)))
            # It would pass over what looks like a call, and take a third of the time.
            settings.disable_filters("detect_secrets.filters.heuristic.is_indirect_reference")
            return found + _scan_each(released)


def _scan_each(files: Sequence[str]) -> list[Secret]:
    """Scan with the detectors that are not disabled."""
    from detect_secrets import SecretsCollection

    secrets = SecretsCollection()
    for file in files:
        secrets.scan_file(file)
    return [(name, one.line_number, one.type, one.secret_hash) for name, one in secrets]


def _may_hold_a_key(file: str) -> bool:
    """Return whether a file has text in the form of a key, read as a whole.

    detect-secrets asks each of its detectors about each line, which takes ten times as long.
    """
    text = Path(file).read_text(errors="replace")
    return any(form.search(text) for form in _forms())


@functools.cache
def _forms() -> list[re.Pattern[str]]:
    from detect_secrets.core.scan import get_plugins
    from detect_secrets.plugins.base import RegexBasedDetector
    from detect_secrets.settings import default_settings

    with default_settings() as settings:
        settings.disable_plugins(*GUESSING)
        plugins = list(get_plugins())
    if others := [one for one in plugins if not isinstance(one, RegexBasedDetector)]:
        raise TypeError(f"these detectors have no forms: {others}")
    forms = [form for one in plugins for form in one.denylist]
    return [re.compile(form.pattern, form.flags | re.MULTILINE) for form in forms]


def _known() -> set[tuple[str, str, str]]:
    if not BASELINE.exists():
        return set()
    told = json.loads(BASELINE.read_text())["results"]
    return {
        (file, one["type"], one["hashed_secret"]) for file, found in told.items() for one in found
    }


def _accept() -> None:
    found = sorted(set(_scan(_files())))
    results: dict[str, list[dict[str, object]]] = {}
    for file, line, kind, digest in found:
        one = {"type": kind, "hashed_secret": digest, "line_number": line, "is_secret": False}
        results.setdefault(file, []).append(one)
    told = {"version": metadata.version("detect-secrets"), "results": results}
    BASELINE.write_text(json.dumps(told, indent=2) + "\n")
    print(f"{len(found)} places are known to hold no secret")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
