"""Settings of the brokers that `odradek serve --workers N` starts on one machine.

All have the settings of the first one, but for the node id and the ports, which count up. A
setting for one of them begins with its number: `odradek.worker.2.listeners`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from odradek.config.catalog import URL
from odradek.config.option import option, options
from odradek.config.resolution import Layer
from odradek.config.values import between, int32

WORKERS = "odradek.workers"
WORKERS_MAX = 64
CATALOG_NAME = "odradek-catalog.db"
"""The catalog of a machine's workers, in the first log directory, unless the settings name one."""
_OWN = re.compile(r"odradek\.worker\.(?P<number>[1-9][0-9]*)\.(?P<name>.+)")
_ADDRESSES = ("listeners", "advertised.listeners")
# The checkpoints of one worker (storage.shared_directory).
_LEFT = "recovery-point-offset-checkpoint.*"
_PORT = re.compile(r":(?P<port>[0-9]+)(?=\s*(?:,|$))")


def worker_layer(static: Layer, number: int, node_id: int, listeners: str) -> Layer:
    """Return the settings of a worker, numbered from 1.

    `node_id` and `listeners` are those of the first one.
    """
    values, origins = dict(without_own(static).values), dict(static.origins)
    values.setdefault("listeners", listeners)
    values["node.id"] = str(node_id + number - 1)
    values.pop("broker.id", None)
    for name in _ADDRESSES:
        if name in values:
            values[name] = _counted_up(values[name], number - 1)
    for name, value in static.values.items():
        own = _OWN.fullmatch(name)
        if own is not None and int(own["number"]) == number:
            values[own["name"]] = value
            origins[own["name"]] = static.origins.get(name, "")
    return replace(static, values=values, origins=origins)


def without_own(static: Layer) -> Layer:
    """Return the settings without those that are for one worker."""
    values = {name: one for name, one in static.values.items() if not _OWN.fullmatch(name)}
    return replace(static, values=values)


def with_catalog(static: Layer, directory: Path) -> Layer:
    """Return settings with a catalog: the workers' own one, unless they name another."""
    if static.values.get(URL):
        return static
    url = f"sqlite://{(directory / CATALOG_NAME).absolute()}"
    return replace(static, values={**static.values, URL: url})


def has_had_workers(directories: Iterable[str]) -> bool:
    """Return whether workers have used log directories, and have left files of their own there.

    A start without `--workers` is then one with a single worker.
    """
    paths = [Path(one) for one in directories]
    try:
        if (paths[0] / CATALOG_NAME).exists():
            return True
        return any(one.name[-1].isdecimal() for path in paths for one in path.glob(_LEFT))
    except OSError:  # the broker reports it with its remedy
        return False


def _counted_up(addresses: str, by: int) -> str:
    """Return a list of addresses with later ports; port 0 stays, the system chooses it."""

    def later(port: re.Match[str]) -> str:
        number = int(port["port"])
        return f":{number + by if number else 0}"

    return _PORT.sub(later, addresses)


@options
class WorkersConfig:
    """The effective setting of the number of workers."""

    odradek_workers: int32 = option(
        WORKERS,
        default=1,
        valid=between(1, WORKERS_MAX),
        doc="How many brokers `odradek serve` starts on the same log directories, each a process: "
        "one for each core that is to serve clients. They have consecutive node ids and ports, "
        "and share partitions and groups among them. `--workers` sets it, too.",
    )
