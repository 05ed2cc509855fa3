"""Runs the broker as a process: settings, logging, signals, the event loop."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from odradek.broker.clock import SystemClock
from odradek.broker.composition import Broker
from odradek.broker.errors import MetadataError
from odradek.broker.hosts.addresses import AddressError
from odradek.broker.loop.tasks import start_task
from odradek.broker.process import logs
from odradek.broker.process.code_memory import give_code_back
from odradek.broker.process.service import ServiceSocket
from odradek.broker.process.signals import Signals
from odradek.config.effective import resolve_broker
from odradek.config.errors import ConfigError
from odradek.config.layers import static_layer
from odradek.config.resolution import Layer
from odradek.config.secret_files import open_secret_files
from odradek.storage.errors import DiskFailure, StorageError
from odradek.storage.real_files import RealFileSystem, raise_open_files_limit

if TYPE_CHECKING:
    from odradek.broker.web.server import HttpServer

logger = logging.getLogger(__name__)


class StartError(Exception):
    """The broker cannot start; the message is one line for a person."""


class StopError(Exception):
    """The broker could not stop cleanly; the message is one line for a person."""


@dataclass(frozen=True, slots=True)
class Reports:
    """The messages of the process to a person and to systemd, and their format."""

    version: str
    log_format: str
    service: ServiceSocket

    def ready(self, broker: Broker) -> None:
        """Print the line with the broker's addresses, and the line with its web page."""
        where = [str(one) for one in broker.server.listeners]
        data = [str(directory.path) for directory in broker.directories]
        line = f"odradek {self.version} accepts connections on {', '.join(where)}"
        line += f", data in {', '.join(data)}"
        self.service.ready(line)
        self._print(line, listeners=where, data=data)
        if broker.web is not None:
            self._print(f"web page on {broker.web.url} (admin token: {self._token(broker.web)})")

    def _token(self, web: HttpServer) -> str:
        """Return the token if a person reads it; for a log, the name of the file that has it."""
        if web.access.path is None:
            return "that of odradek.admin.token"
        if self.log_format != logs.JSON and sys.stdout.isatty():
            return web.access.token
        return f"in {web.access.path}"

    def _print(self, line: str, **fields: object) -> None:
        is_json = self.log_format == logs.JSON
        print(logs.as_json(line, **fields) if is_json else line, flush=True)


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
        resolved = resolve_broker([static])
        for warning in (*resolved.warnings, *open_secret_files(static)):
            logger.warning("%s", warning)
    except ConfigError as error:
        raise StartError("; ".join(error.problems)) from error
    # Half of the descriptors are for files, the other half for connections.
    open_files_max = min(resolved.config.odradek_open_files_max, raise_open_files_limit() // 2)
    fs = RealFileSystem(open_files_max)
    reports = Reports(version, log_format, ServiceSocket(environment))
    uvloop.run(_serve(static, None if config is None else read, fs, reports))


def say(line: str, log_format: str) -> None:
    """Write to standard error why the broker has ended."""
    if log_format == logs.JSON:
        logger.error("%s", line)
    else:
        print(f"odradek: {line}", file=sys.stderr, flush=True)


def _collect_garbage_from_now_on() -> None:
    # Full collections need not search objects that live as long as the broker: that would hold up
    # every client for a tenth of a second.
    gc.freeze()
    gc.enable()


def _advice(cause: OSError) -> str:
    if cause.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"let user {os.geteuid()} read and write there, or choose another log.dirs"
    if cause.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room there, or choose another log.dirs"
    return "choose another log.dirs, or check the disk"


async def _serve(
    static: Layer, read: Callable[[], Layer] | None, fs: RealFileSystem, reports: Reports
) -> None:
    # Loading a million offsets of groups makes no garbage, but would make Python search for it.
    gc.disable()
    signals = Signals(partial(say, log_format=reports.log_format))
    broker = Broker(static, fs, SystemClock())
    await _start(broker)
    broker.loading.add_done_callback(lambda _: _collect_garbage_from_now_on())
    reports.ready(broker)
    leaving = start_task("give code back", asyncio.to_thread(give_code_back))
    reloading = start_task("reload", _reload_when_asked(broker, read, signals, reports.service))
    await signals.stop.wait()
    reloading.cancel()
    leaving.cancel()
    logger.info("stopping")
    reports.service.stopping()
    try:
        await broker.stop()
    except StorageError as error:
        raise StopError(f"not all was made durable, the next start recovers: {error}") from error


async def _start(broker: Broker) -> None:
    try:
        await broker.start()
    except ConfigError as error:
        raise StartError("; ".join(error.problems)) from error
    except AddressError as error:
        raise StartError(
            f"{error}; choose other listeners or metrics.listener, "
            "or stop the process that uses it"
        ) from error
    except DiskFailure as error:
        raise StartError(f"cannot use {error}; {_advice(error.cause)}") from error
    except (MetadataError, StorageError) as error:
        raise StartError(str(error)) from error


async def _reload_when_asked(
    broker: Broker, read: Callable[[], Layer] | None, signals: Signals, service: ServiceSocket
) -> None:
    while await signals.reload.wait():
        signals.reload.clear()
        if read is None:
            logger.warning("left the settings unchanged: there is no --config to read again")
            continue
        service.reloading()
        try:
            layer = read()
            for warning in resolve_broker([layer]).warnings:
                logger.warning("%s", warning)
            await broker.reload(layer)
        except (ConfigError, StorageError) as error:
            logger.error("left the settings unchanged: %s", error)
        else:
            logger.info("read the settings again")
        service.ready("accepts connections")
