"""Runs several brokers on this machine, by their settings, until a signal asks them to stop."""

from __future__ import annotations

import gc
import importlib
import logging
import select
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import uvloop

from odradek.broker.errors import MetadataError
from odradek.broker.hosts.addresses import bind
from odradek.broker.metadata.identity import with_node_id
from odradek.broker.process import logs
from odradek.broker.process.service import ServiceSocket
from odradek.broker.serve import Reports, StartError, StopError, say, serve
from odradek.broker.web.admin_token import AdminToken, create_admin_token
from odradek.broker.web.united.port import Opening, SharedPort
from odradek.broker.workers.host import Host
from odradek.broker.workers.layers import layers_of_workers
from odradek.broker.workers.role import Role
from odradek.broker.workers.supervisor import Beats, Supervisor
from odradek.config.catalog import CatalogConfig
from odradek.config.effective import resolve_apart, resolve_broker
from odradek.config.resolution import Layer
from odradek.config.workers import with_catalog, without_own, worker_layer
from odradek.storage.meta_properties import META
from odradek.storage.real_files import RealFileSystem

logger = logging.getLogger(__name__)

# Modules that every worker needs soon: those that a single broker imports once it serves.
_IMPORTED = (
    "odradek.broker.composition",
    "odradek.broker.catalog.membership",
    "odradek.broker.web.server",
    "odradek.broker.web.united.answering",
)
_MS_PER_S = 1_000


class Fleet:
    """The settings of the workers, and the parts that they share."""

    def __init__(
        self,
        static: Layer,
        read: Callable[[], Layer] | None,
        fs: RealFileSystem,
        reports: Reports,
        count: int,
    ) -> None:
        """Check the settings. Raises ConfigError or AddressError."""
        self._read, self._fs, self._reports = read, fs, reports
        config = resolve_broker([without_own(static)]).config
        paths = [Path(name) for name in config.data_directories]
        static = with_node_id(fs, paths[0] / META, static)
        config = resolve_broker([without_own(static)]).config
        self._node_id, self._directory = config.node_id, paths[0]
        self._listeners = ",".join(config.listeners)
        self._layers = layers_of_workers(static, count)
        self._node_ids = [resolve_broker([one]).config.node_id for one in self._layers]
        self._http = bind(*config.metrics_address) if config.metrics_address else []
        self._given_token = config.odradek_admin_token
        # Set before the workers start, if HTTP is served.
        self._token: AdminToken | None = None
        self._folder: Path | None = None
        self._have_served = False
        self._opening = Opening()
        catalog = resolve_apart(CatalogConfig, [self._layers[0]])
        self._silence_s = catalog.broker_session_timeout_ms / _MS_PER_S
        url = catalog.odradek_catalog_url or ""
        self._host = Host(fs, paths, url, config.odradek_cluster_id)

    def run(self) -> None:
        """Start the workers, and wait for their end.

        Raises MetadataError or StorageError when none is started, and StopError when not all of
        them have stopped cleanly.
        """
        self._host.prepare(self._node_ids)
        for name in _IMPORTED:
            importlib.import_module(name)
        if self._http:
            self._share_port()
        gc.collect()
        gc.freeze()  # so that a search for garbage leaves the shared memory alone
        supervisor = Supervisor(
            self._host,
            self._node_ids,
            self._serve,
            self._silence_s,
            self._ready,
            self._reports.service.reloading,
            self._reports.service.stopping,
        )
        try:
            status = supervisor.run()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
        if status:
            raise StopError("not all workers stopped cleanly, the next start recovers")

    def _layer(self, static: Layer, number: int) -> Layer:
        layer = worker_layer(static, number, self._node_id, self._listeners)
        return with_catalog(layer, self._directory)

    def _serve(self, at: int, beats: Beats, stop_fd: int) -> int:
        """Run one worker in this process, to its end; return its exit status."""
        logs.name_worker(self._node_ids[at])
        port = self._port(at, beats, stop_fd)
        role = Role(at + 1, port, partial(beats.beat, at), partial(beats.rest, at), stop_fd)
        read = self._read
        again = None if read is None else lambda: self._layer(read(), at + 1)
        status = 0
        try:
            # The service manager hears from the supervisor only.
            reports = replace(self._reports, service=ServiceSocket({}))
            uvloop.run(serve(self._layers[at], again, self._fs, reports, role))
        except (StartError, StopError) as error:
            say(str(error), self._reports.log_format)
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        return status

    def _share_port(self) -> None:
        """Create the admin token, and the folder of the workers' private sockets."""
        self._token = create_admin_token(self._fs, self._directory, self._given_token)
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="odradek-"))
        except OSError as error:
            raise MetadataError(
                f"no folder for sockets between workers: {error}; set TMPDIR to one"
            ) from error

    def _port(self, at: int, beats: Beats, stop_fd: int) -> SharedPort | None:
        """Return a worker's part of the HTTP port."""
        if self._token is None or self._folder is None:
            return None
        is_first_start, is_first = not self._have_served, at == 0
        stop = select.poll()
        stop.register(stop_fd, select.POLLIN)

        def may_open() -> bool:
            if not is_first_start:
                return True
            if not is_first:
                return self._opening.is_noted()
            return all(map(beats.count, range(len(self._node_ids))))

        return SharedPort(
            self._http,
            self._token,
            {one: self._folder / str(one) for one in self._node_ids},
            answers_first=is_first_start and is_first,
            may_open=may_open,
            opened=self._opening.note,
            all_stop=lambda: bool(stop.poll(0)),
        )

    def _ready(self) -> None:
        self._have_served = True
        self._reports.service.ready(f"{len(self._layers)} workers accept connections")
