"""Runs the broker as a process: settings, logging, one broker or several."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import uvloop

from odradek.broker.process import logs
from odradek.broker.process.limits import raise_open_files_limit
from odradek.broker.process.service import ServiceSocket
from odradek.broker.serve import Reports, StartError, explaining, serve
from odradek.config.effective import resolve_apart, resolve_broker
from odradek.config.errors import ConfigError
from odradek.config.layers import static_layer
from odradek.config.secret_files import open_secret_files
from odradek.config.workers import WorkersConfig, has_had_workers, without_own
from odradek.storage.real_files import RealFileSystem

logger = logging.getLogger(__name__)


def run(
    config: Path | None,
    environment: Mapping[str, str],
    pairs: Iterable[str],
    log_level: str,
    version: str,
    log_format: str = logs.TEXT,
) -> None:
    """Run the broker until SIGTERM or SIGINT.

    Raises StartError when it cannot start, and StopError when it cannot stop cleanly.
    """
    logs.set_up(log_level, log_format)
    read = partial(static_layer, config, environment, tuple(pairs))
    try:
        static = read()
        resolved = resolve_broker([without_own(static)])
        for warning in (*resolved.warnings, *open_secret_files(static)):
            logger.warning("%s", warning)
    except ConfigError as error:
        raise StartError("; ".join(error.problems)) from error
    # Half of the descriptors are for files, the other half for connections.
    open_files_max = min(resolved.config.odradek_open_files_max, raise_open_files_limit() // 2)
    fs = RealFileSystem(open_files_max)
    reports = Reports(version, log_format, ServiceSocket(environment))
    again = None if config is None else read
    count = resolve_apart(WorkersConfig, [static]).odradek_workers
    if count > 1 or has_had_workers(resolved.config.data_directories):
        from odradek.broker.fleet import Fleet

        with explaining():
            Fleet(static, again, fs, reports, count).run()
    else:
        uvloop.run(serve(static, again, fs, reports))
