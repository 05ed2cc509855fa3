"""Runs one broker in this process until a signal asks it to stop."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

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
from odradek.config.resolution import Layer
from odradek.dataclass import dataclass
from odradek.storage.cache_directory import CacheDirectory
from odradek.storage.errors import DiskFailure, StorageError
from odradek.storage.real_files import RealFileSystem

if TYPE_CHECKING:
    from odradek.broker.web.admin_token import AdminToken
    from odradek.broker.workers.role import Role

logger = logging.getLogger(__name__)

_BEAT_S = 0.25


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

    def ready(self, broker: Broker, role: Role | None) -> None:
        """Print the line with the broker's addresses, and the line with its web page.

        Workers have one web page, and one process that reports to systemd.
        """
        where = [str(one) for one in broker.server.listeners]
        data = [str(one.path) for one in broker.directories if not isinstance(one, CacheDirectory)]
        line = f"odradek {self.version} accepts connections on {', '.join(where)}"
        line += f", data in {', '.join(data)}"
        self.service.ready(line)
        self._print(line, listeners=where, data=data)
        token = broker.http.token
        if token is not None and (role is None or role.number == 1):
            self._print(f"web page on {broker.http.url} (admin token: {self._token(token)})")

    def _token(self, token: AdminToken) -> str:
        """Return the token if a person reads it; for a log, the name of the file that has it."""
        if token.path is None:
            return "that of odradek.admin.token"
        if self.log_format != logs.JSON and sys.stdout.isatty():
            return token.text
        return f"in {token.path}"

    def _print(self, line: str, **fields: object) -> None:
        is_json = self.log_format == logs.JSON
        print(logs.as_json(line, **fields) if is_json else line, flush=True)


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


async def serve(
    static: Layer,
    read: Callable[[], Layer] | None,
    fs: RealFileSystem,
    reports: Reports,
    role: Role | None = None,
) -> None:
    """Run a broker until it is asked to stop; with a role it is one of several workers.

    `read` reads the settings again. Raises StartError and StopError.
    """
    # Loading a million offsets of groups makes no garbage, but would make Python search for it.
    gc.disable()
    stop_fd = None if role is None else role.stop_fd
    signals = Signals(partial(say, log_format=reports.log_format), stop_fd)
    broker = Broker(static, fs, SystemClock(), role)
    tasks = [start_task("open no more", open_no_more(broker, signals))]
    with explaining():
        await broker.start()
    broker.loading.add_done_callback(lambda _: _collect_garbage_from_now_on())
    reports.ready(broker, role)
    tasks += [
        start_task("give code back", asyncio.to_thread(give_code_back)),
        start_task("reload", _reload_when_asked(broker, read, signals, reports.service)),
    ]
    if role is not None:
        tasks.append(start_task("beat", _beat(role)))
    await signals.stop.wait()
    logger.info("stopping")
    reports.service.stopping()
    await broker.hand_over(signals.all_stop.is_set)
    if role is not None:
        role.rest()
    for task in tasks:
        task.cancel()
    try:
        await broker.stop()
    except StorageError as error:
        raise StopError(f"not all was made durable, the next start recovers: {error}") from error


async def open_no_more(broker: Broker, signals: Signals) -> None:
    """Leave the logs that are not open yet to other brokers, once this one is to stop."""
    await signals.stop.wait()
    if broker.sharing is not None:
        broker.sharing.logs.open_no_more()


async def _beat(role: Role) -> None:
    """Show the supervisor that the event loop works."""
    while True:
        role.beat()
        await asyncio.sleep(_BEAT_S)


@contextmanager
def explaining() -> Iterator[None]:
    """Raise the errors of a start as StartError: one line for a person, with the remedy."""
    try:
        yield
    except (ConfigError, AddressError, MetadataError, StorageError) as error:
        raise StartError("; ".join(filter(None, reason_and_remedy(error)))) from error


def reason_and_remedy(error: Exception) -> tuple[str, str]:
    """Return why an error prevents a start, and the remedy, "" where the reason names it."""
    if isinstance(error, ConfigError):
        return "; ".join(error.problems), ""
    if isinstance(error, AddressError):
        remedy = "choose other listeners or metrics.listener, or stop the process that uses it"
        return str(error), remedy
    if isinstance(error, DiskFailure):
        return f"cannot use {error}", _advice(error.cause)
    return str(error), ""


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
