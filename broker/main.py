"""Starts and stops the broker as a process: settings, logging, signals, the event loop."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import uvloop

from broker import logs
from broker.addresses import AddressError
from broker.clock import SystemClock
from broker.composition import Broker
from broker.metadata import MetadataError
from config.effective import resolve_broker
from config.errors import ConfigError
from config.layers import static_layer
from config.resolution import Layer
from storage.errors import DiskFailure, StorageError
from storage.files import RealFileSystem, raise_open_files_limit

logger = logging.getLogger(__name__)


class StartError(Exception):
    """The broker cannot start; the message is one line for a person."""


class StopError(Exception):
    """The broker could not stop cleanly; the message is one line for a person."""


def run(
    config: Path | None,
    environment: Mapping[str, str],
    pairs: Iterable[str],
    log_level: str,
    version: str,
    log_format: str = logs.TEXT,
) -> None:
    """Run the broker until SIGTERM or SIGINT.

    Raises StartError when it cannot start, StopError when it could not stop cleanly.
    """
    logs.set_up(log_level, log_format)
    try:
        static = static_layer(config, environment, pairs)
        resolved = resolve_broker([static])
        for warning in resolved.warnings:
            logger.warning("%s", warning)
    except ConfigError as error:
        raise StartError("; ".join(error.problems)) from error
    # The other half is for connections.
    open_files_max = min(resolved.config.odradek_open_files_max, raise_open_files_limit() // 2)
    uvloop.run(_serve(static, version, RealFileSystem(open_files_max), log_format))


def tell(error: StartError | StopError, log_format: str) -> None:
    """Say on standard error why the broker has ended."""
    if log_format == logs.JSON:
        logger.error("%s", error)
    else:
        print(f"odradek: {error}", file=sys.stderr)


def _collect_garbage_from_now_on() -> None:
    # What lives as long as the broker need not be looked at by each full collection, which would
    # hold up every client for a tenth of a second.
    gc.freeze()
    gc.enable()


def _announce(broker: Broker, version: str, log_format: str) -> None:
    """Print the one line that says where the broker is."""
    where = [str(one) for one in broker.server.listeners]
    data = [str(directory.path) for directory in broker.directories]
    line = f"odradek {version} accepts connections on {', '.join(where)}"
    line += f", data in {', '.join(data)}"
    if log_format == logs.JSON:
        line = logs.as_json(line, listeners=where, data=data)
    print(line, flush=True)
    if broker.web is None:
        return
    # One that somebody has set need not go into the log.
    is_set = broker.config.odradek_admin_token is not None
    token = "that of odradek.admin.token" if is_set else broker.web.access.token
    page = f"web page on {broker.web.url} (admin token: {token})"
    print(logs.as_json(page) if log_format == logs.JSON else page, flush=True)


def _advice(cause: OSError) -> str:
    if cause.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"let user {os.geteuid()} read and write there, or choose another log.dirs"
    if cause.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room there, or choose another log.dirs"
    return "choose another log.dirs, or have a look at the disk"


async def _serve(static: Layer, version: str, fs: RealFileSystem, log_format: str) -> None:
    # A million offsets of groups make no garbage while they are loaded, but looks for it.
    gc.disable()
    broker = Broker(static, fs, SystemClock())
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    try:
        await broker.start()
    except ConfigError as error:
        raise StartError("; ".join(error.problems)) from error
    except AddressError as error:
        raise StartError(
            f"{error}; choose other listeners or metrics.listener, or stop what uses it"
        ) from error
    except DiskFailure as error:
        raise StartError(f"cannot use {error}; {_advice(error.cause)}") from error
    except (MetadataError, StorageError) as error:
        raise StartError(str(error)) from error
    broker.loading.add_done_callback(lambda _: _collect_garbage_from_now_on())
    _announce(broker, version, log_format)
    await stopping.wait()
    logger.info("stopping")
    try:
        await broker.stop()
    except StorageError as error:
        raise StopError(f"not all was made durable, the next start recovers: {error}") from error
