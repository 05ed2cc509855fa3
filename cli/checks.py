"""The checks of doctor: this machine, the settings, and the resources that settings name."""

from __future__ import annotations

import re
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from odradek.broker.metadata.identity import with_node_id
from odradek.broker.workers.layers import layers_of_workers
from odradek.cli.check_broker import Health, ask_health, check_broker
from odradek.cli.check_data import check_directories, is_held
from odradek.cli.check_ports import Address, check_ports
from odradek.cli.check_start import Rehearsal, problems_of
from odradek.cli.finding import OK, PROBLEM, WARNING, Finding
from odradek.cli.rehearsal_files import RehearsalFiles
from odradek.config.broker import BrokerConfig
from odradek.config.effective import resolve_apart, resolve_broker
from odradek.config.errors import ConfigError
from odradek.config.http import HttpConfig
from odradek.config.layers import static_layer
from odradek.config.resolution import Layer, Resolved, Source
from odradek.config.secret_files import open_secret_files
from odradek.config.workers import WorkersConfig, has_had_workers, without_own
from odradek.dataclass import dataclass
from odradek.storage.errors import StorageError
from odradek.storage.meta_properties import META

__all__ = ["PROBLEM", "check_all"]

_PYTHON_MIN = (3, 11)
# Kafka's own advice for a broker with many partitions is 100,000; with fewer than this many
# even a small broker has too few for its segments and clients.
_OPEN_FILES_MIN = 10_000
# The time when this was written: a correct clock never shows an earlier time.
_NOW_MIN_S = 1_790_000_000
_REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:>=\s*([\d.]+))?")
_ROOT = Path(__file__).resolve().parent.parent


def check_all(
    config: Path | None, environment: Mapping[str, str], pairs: Sequence[str], url: str | None
) -> Iterator[Finding]:
    """Yield findings in the order in which a start would meet them."""
    yield _check_python()
    yield _check_dependencies()
    yield _check_kernels(environment)
    yield _check_open_files()
    yield _check_clock()
    try:
        starts = _read_settings(config, environment, pairs)
    except (ConfigError, StorageError) as error:
        yield from problems_of("settings", error)
        if url is not None:
            yield from check_broker(url, ask_health(url))
        return
    yield from _check_settings(starts)
    where = url or _own_url(starts.config, resolve_apart(HttpConfig, [starts.static]))
    health = ask_health(where) if where else Health()
    is_running = health.is_odradek and is_held(starts.config)
    rehearsals = [
        Rehearsal(one, is_running=is_running, has_workers=len(starts.layers) > 1)
        for one in starts.layers
    ]
    # The log directories are the same for all workers.
    yield from rehearsals[0].check_data()
    failed = rehearsals[0].failed
    yield from check_directories(starts.config, failed, is_running=is_running)
    yield from check_ports(starts.addresses(), is_running=is_running)
    # Workers have most problems in common.
    yield from dict.fromkeys(one for start in rehearsals for one in start.check_services())
    if is_running or url is not None:
        yield from check_broker(where, health)


@dataclass(frozen=True, slots=True)
class _Starts:
    """The settings of the processes that `odradek serve` starts: of one broker, or of workers."""

    static: Layer
    resolved: Resolved[BrokerConfig]
    layers: Sequence[Layer]

    @property
    def config(self) -> BrokerConfig:
        """The settings that are the same for all of them."""
        return self.resolved.config

    def addresses(self) -> Iterator[Address]:
        """Yield the addresses to listen at."""
        for layer in self.layers:
            for one in resolve_broker([layer]).config.bound_endpoints:
                yield Address(one.name, one.host, one.port)
        if self.config.metrics_address is not None:
            yield Address("metrics", *self.config.metrics_address)


def _read_settings(
    config: Path | None, environment: Mapping[str, str], pairs: Sequence[str]
) -> _Starts:
    """Read the settings as broker/main.py does. Raises ConfigError or StorageError."""
    static = static_layer(config, environment, pairs)
    directories = resolve_broker([without_own(static)]).config.data_directories
    with suppress(StorageError):  # a directory that cannot be read is a finding of its own
        static = with_node_id(RehearsalFiles(), Path(directories[0]) / META, static)
    resolved = resolve_broker([without_own(static)])
    count = resolve_apart(WorkersConfig, [static]).odradek_workers
    layers = [static]
    if count > 1 or has_had_workers(directories):
        layers = layers_of_workers(static, count)
    return _Starts(static, resolved, layers)


def _check_settings(starts: _Starts) -> Iterator[Finding]:
    for warning in starts.resolved.warnings:
        yield Finding(WARNING, "settings", warning, "correct it, or remove it")
    for warning in open_secret_files(starts.static):
        problem, _, advice = warning.rpartition(": ")
        yield Finding(WARNING, "secrets", problem, advice)
    entries = starts.resolved.entries.values()
    count = sum(one.source is Source.STATIC_BROKER for one in entries)
    yield Finding(OK, "settings", f"{count} are set, the others have their defaults")


def _own_url(config: BrokerConfig, http: HttpConfig) -> str:
    """Return the HTTP address of a broker with these settings, or "" if it has none."""
    if config.metrics_address is None or config.metrics_address[1] == 0:
        return ""
    host, port = config.metrics_address
    # These addresses are not bound here.
    local = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared only
    host = local.get(host, host)
    scheme = "http" if http.tls_files is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _check_python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _PYTHON_MIN:
        wanted = ".".join(map(str, _PYTHON_MIN))
        return Finding(PROBLEM, "python", version, f"install Python {wanted} or newer")
    return Finding(OK, "python", version)


def _check_dependencies() -> Finding:
    try:
        wanted = [one for one in metadata.requires("odradek") or () if "extra ==" not in one]
    except metadata.PackageNotFoundError:
        advice = "install it: pipx install odradek, or pip install -e . in its sources"
        return Finding(WARNING, "packages", "odradek runs without being installed", advice)
    wrong = []
    for one in wanted:
        found = _REQUIREMENT.match(one)
        assert found is not None, "a requirement begins with a name"
        try:
            version = metadata.version(found[1])
        except metadata.PackageNotFoundError:
            wrong.append(f"{found[1]} is missing")
            continue
        if found[2] and _numbers(version) < _numbers(found[2]):
            wrong.append(f"{found[1]} is {version}, {found[2]} is needed")
    if wrong:
        advice = "install odradek again, into an environment of its own"
        return Finding(PROBLEM, "packages", "; ".join(wrong), advice)
    return Finding(OK, "packages", f"all {len(wanted)} are installed")


def _numbers(version: str) -> list[int]:
    return [int(one) for one in re.findall(r"\d+", version)]


def _check_kernels(environment: Mapping[str, str]) -> Finding:
    # Numba's places: beside the modules, or in the folder that the environment names.
    folder = environment.get("NUMBA_CACHE_DIR")
    where = [Path(folder)] if folder else [_ROOT / "protocol", _ROOT / "cleaner"]
    count = sum(1 for one in where for _ in one.rglob("*.nbi"))
    if count:
        return Finding(OK, "kernels", f"{count} are compiled")
    return Finding(
        WARNING,
        "kernels",
        "none is compiled",
        "a start compiles them in the background, and the broker is slower meanwhile; to compile "
        f"them before, run {sys.executable} -m odradek.broker.process.warm_up",
    )


def _check_open_files() -> Finding:
    # A broker raises the soft limit by itself.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return Finding(OK, "open files", "without a limit")
    if hard < _OPEN_FILES_MIN:
        advice = f"raise it to {10 * _OPEN_FILES_MIN:,}: ulimit -Hn, LimitNOFILE= in a unit"
        return Finding(WARNING, "open files", f"at most {hard:,} of segments and clients", advice)
    return Finding(OK, "open files", f"at most {hard:,}")


def _check_clock() -> Finding:
    now_s = time.time()
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s))
    if now_s < _NOW_MIN_S:
        advice = "set it, and synchronize it by NTP: retention depends on it"
        return Finding(PROBLEM, "clock", f"says {shown}, which is in the past", advice)
    return Finding(OK, "clock", f"says {shown}")
