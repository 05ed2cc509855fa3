"""The settings of each of the workers of one machine."""

from __future__ import annotations

from pathlib import Path

from odradek.config.effective import resolve_broker
from odradek.config.errors import ConfigError
from odradek.config.resolution import Layer
from odradek.config.workers import with_catalog, without_own, worker_layer


def layers_of_workers(static: Layer, count: int) -> list[Layer]:
    """Return the settings of workers, which `static` has for all of them.

    Raises ConfigError for settings of one of them that are bad, or for a node id that two have.
    """
    config = resolve_broker([without_own(static)]).config
    directory, listeners = Path(config.data_directories[0]), ",".join(config.listeners)
    layers = [
        with_catalog(worker_layer(static, number, config.node_id, listeners), directory)
        for number in range(1, count + 1)
    ]
    if len({resolve_broker([one]).config.node_id for one in layers}) < count:
        raise ConfigError("two workers have one node.id: change odradek.worker.N.node.id")
    return layers
