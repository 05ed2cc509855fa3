"""The shape of the code: which package imports which, and how large a piece may get."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.parsing import outline

ROOT = Path(__file__).parent.parent
# An installation has this one name: here, a folder of links to the packages.
NAME = "odradek"
MODULE_LINES_MAX = 400
# The two directions of TLS share ten fields: apart, each write would cost one more call.
LONGER = {"broker/security/tls/transport.py": 446}
FUNCTION_LINES_MAX = 70
LINE_COLUMNS_MAX = 99
# Sleeps of tests, for time that has to pass: a load that runs, a random moment of a kill. A wait
# for something has a condition (tests/support/waiting.py). The number only goes down.
SLEEPS_MAX = 8

# Modules beside the packages, which all may import.
SHARED = {"dataclass", "deadline_http"}
# What each package may import of ours.
MAY_IMPORT = {
    "protocol": {"protocol"},
    "config": {"config"},
    "schemas": {"schemas", "config"},
    "storage": {"storage", "protocol", "config"},
    "cleaner": {"cleaner", "storage", "protocol", "config"},
    "broker": {"broker", "cleaner", "storage", "schemas", "protocol", "config"},
    "cli": {
        "cli", "broker", "cleaner", "storage", "schemas", "protocol", "config", "pipeline"
    },
    "pipeline": {"pipeline", "protocol", "config", "storage", "cleaner", "broker"},
    "testing": {"testing", "cli"},
}
# The pipeline runs on machines without a broker: it knows shared logs, and cleans them, by these.
PIPELINE_MAY_IMPORT = {
    "broker.ids",
    "broker.shared.leased",
    "broker.shared.leased_parts",
    "broker.shared.leased_terms",
    "broker.shared.snapshot",
    "cleaner.passes.hashing",
    "cleaner.passes.key_filter",
    "cleaner.passes.parts",
    "storage.errors",
    "storage.files",
    "storage.objects.store",
    "storage.producer_snapshots",
}
# The rooms of a package, lowest first: a module imports from its own room and from lower rows.
# Modules at a package's root are rooms by themselves; those of the last row may import all.
ROOMS = {
    "broker": (
        {"errors", "clock", "ids", "version", "api_table"},
        {"orders", "hosts", "loop", "durability", "counters"},
        {"process", "metadata", "wal"},
        {"topics"},
        {"security"},
        {"catalog", "peers"},
        {"shared"},
        {"reassignment"},
        {"context"},
        {"coordination", "fetch", "telemetry"},
        {"shares", "transactions"},
        {"groups"},
        {"produce"},
        {"services"},
        {"handlers", "answers"},
        {"apis"},
        {"network", "adoption"},
        {"observability"},
        {"web"},
        {"workers"},
        {
            "clustering", "composition", "coordinators", "fleet", "http", "main", "periodic",
            "reference", "serve",
        },
    ),
    "cleaner": ({"errors", "rules"}, {"proof"}, {"passes", "reading"}, {"runtime"}),
}
SOURCES = sorted(path for package in MAY_IMPORT for path in (ROOT / package).rglob("*.py"))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _imports(path: Path) -> Iterator[str]:
    """Iterate over the modules that a module imports, with full names."""
    for node in outline(path).imports:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            assert node.level == 0, f"{_name(path)}: relative import"
            yield node.module or ""


def test_imports_point_one_way() -> None:
    for path in SOURCES:
        package = path.relative_to(ROOT).parts[0]
        ours = {module.split(".")[1] for module in _imports(path) if module.startswith(f"{NAME}.")}
        assert ours <= MAY_IMPORT[package] | SHARED, _name(path)


def test_dataclasses_are_those_that_cost_little_at_the_start() -> None:
    pythons = re.compile(r"^from dataclasses import .*\bdataclass\b", re.M)
    assert not {_name(path) for path in SOURCES if pythons.search(path.read_text())}


def test_the_pipeline_knows_few_modules_of_the_brokers() -> None:
    theirs = ("broker", "cleaner", "storage")
    for path in (ROOT / "pipeline").rglob("*.py"):
        found = {one for one in _imported_modules(path) if one.startswith(theirs)}
        assert found <= PIPELINE_MAY_IMPORT, _name(path)


def test_no_module_has_a_name_of_its_own() -> None:
    """A user's own module `config` is never taken for ours, nor ours for the user's."""
    bare = re.compile(rf"^ *(?:from|import) (?:{'|'.join(MAY_IMPORT)})\b", re.M)
    users = [*SOURCES, *(ROOT / "bench").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    assert not {path for path in users if bare.search(path.read_text())}


def test_each_package_has_a_link() -> None:
    links = {path.name: path.readlink() for path in (ROOT / NAME).iterdir() if path.is_symlink()}
    assert links == {package: Path("..") / package for package in MAY_IMPORT}


def _imported_modules(path: Path) -> Iterator[str]:
    """Iterate over the modules of ours that a module imports, for their types as well."""
    for node in outline(path).imports:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{NAME}."):
            parent = (node.module or "").removeprefix(f"{NAME}.")
            for alias in node.names:
                module = f"{parent}.{alias.name}"
                place = ROOT / module.replace(".", "/")
                is_module = place.is_dir() or place.with_suffix(".py").exists()
                yield module if is_module else parent


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_import_from_lower_rooms(package: str) -> None:
    level_of = {room: level for level, row in enumerate(ROOMS[package]) for room in row}
    against = set()
    for path in SOURCES:
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] != package or parts[1] == "__init__":
            continue
        for module in _imported_modules(path):
            other = module.split(".")
            if other[0] != package or len(other) < 2 or other[1] == parts[1]:
                continue
            is_lower = level_of[other[1]] < level_of[parts[1]]
            if not is_lower and level_of[parts[1]] < len(ROOMS[package]) - 1:
                against.add(f"{'.'.join(parts[1:])} -> {'.'.join(other[1:])}")
    assert not against


def test_only_real_files_touch_the_operating_system_from_storage_down() -> None:
    for path in SOURCES:
        is_below = path.relative_to(ROOT).parts[0] in ("storage", "cleaner")
        if is_below and _name(path) != "storage/real_files.py":
            assert not {"os", "shutil", "fcntl", "mmap"} & set(_imports(path)), _name(path)


@pytest.mark.parametrize("package", sorted({path.relative_to(ROOT).parts[0] for path in SOURCES}))
def test_pieces_are_of_a_size_to_be_read(package: str) -> None:
    too_large = []
    for path in SOURCES:
        if path.relative_to(ROOT).parts[0] != package:
            continue
        name, lines = _name(path), path.read_text().splitlines()
        if len(lines) > LONGER.get(name, MODULE_LINES_MAX):
            too_large.append(f"{name}: split it where a reader would look for the pieces")
        too_large += [
            f"{name}: line {number} is too long"
            for number, line in enumerate(lines, 1)
            if len(line) > LINE_COLUMNS_MAX
        ]
        too_large += [
            f"{name}: {function.name} is too long"
            for function in outline(path).functions
            if function.line_count >= FUNCTION_LINES_MAX
        ]
    assert not too_large, "\n".join(too_large)


def test_a_module_says_what_it_is() -> None:
    for path in SOURCES:
        assert outline(path).is_empty or outline(path).docstring, _name(path)


# Names that only tests use: states and sums that they look at.
FOR_TESTS = {
    "Access.held_count",
    "LogDirectory.delete_log",
    "Metrics.request_count",
    "Slices.standing_count",
    "all_families",
    "check_retention",
    "read_object_index",  # for readers that have the bucket without the catalog
    "values_of",
}
# Libraries call these: logging, urllib, importlib, Click, pytest and avro.
CALLED_BY_OTHERS = {
    "Decoder.read_decimal_from_fixed",
    "LazyGroup.format_commands",
    "Reader.read_array",
    "Reader.read_map",
    "SegmentsDataSource.streamReader",
    "SegmentsStreamReader.initialOffset",
    "TextFormatter.formatTime",
    "_Collected.addInPlace",
    "pytest_addoption",
    "_StandIns.create_module",
}


def _public_names(path: Path) -> Iterator[str]:
    """Iterate over the functions, classes and methods of a module without an underscore."""
    is_command = path.relative_to(ROOT).parts[0] == "cli"  # decorators register these
    for one in outline(path).definitions:
        if not one.name.startswith("_") and not (is_command and one.is_decorated):
            yield one.name
        yield from (f"{one.name}.{name}" for name in one.members if not name.startswith("_"))


def test_the_product_uses_each_public_name() -> None:
    users = [*SOURCES, *(ROOT / "bench").rglob("*.py"), *(ROOT / "docs").glob("*.md")]
    users += [ROOT / "Makefile", ROOT / "pyproject.toml"]
    counts = Counter(
        word for path in users for word in re.findall(r"\w+", path.read_text())
    )
    unused = {
        name
        for path in SOURCES
        for name in _public_names(path)
        if counts[name.rsplit(".", 1)[-1]] == 1
    }
    assert unused == FOR_TESTS | CALLED_BY_OTHERS


def test_the_rules_reach_every_package() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages - {"tests", "bench", NAME} == set(MAY_IMPORT)
    assert len(SOURCES) > len(MAY_IMPORT)


def test_tests_wait_for_conditions_and_not_for_time() -> None:
    sleep = re.compile(r"\bsleep\((?!0\))")
    found = [
        f"{_name(path)}: {line.strip()}"
        for path in (ROOT / "tests").rglob("*.py")
        if "support" not in path.parts and "simulation" not in path.parts  # in virtual time
        for line in path.read_text().splitlines()
        if sleep.search(line)
    ]
    assert len(found) == SLEEPS_MAX, "lower the number with each one that goes"
