"""Rehearses a start, by the code of the broker itself, on files that keep their changes in memory.

Addresses are bound and released, metadata is read, log directories are locked for an instant,
certificates are loaded, the catalog and the bucket are read. The logs themselves are left alone.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from odradek.broker.counters.metrics import Metrics
from odradek.broker.errors import MetadataError
from odradek.broker.hosts.addresses import AddressError
from odradek.broker.metadata.changes import Changes
from odradek.broker.metadata.configs import Configs
from odradek.broker.metadata.identity import new_cluster_id
from odradek.broker.security.tls.listeners import Tls
from odradek.broker.serve import reason_and_remedy
from odradek.broker.topics.directories import refuse_kafkas_in
from odradek.broker.web.certificate import read_certificate
from odradek.broker.workers.host import refuse_lost_metadata
from odradek.cli.check_data import holder_of
from odradek.cli.check_remote import Seen, check_bucket, see_catalog, see_files
from odradek.cli.finding import NO_START, PROBLEM, WARNING, Finding
from odradek.cli.rehearsal_files import RehearsalFiles
from odradek.config.acl import AclConfig
from odradek.config.catalog import CatalogConfig
from odradek.config.effective import resolve_apart, resolve_broker
from odradek.config.errors import ConfigError
from odradek.config.http import HttpConfig
from odradek.config.inter_broker import InterBrokerConfig, inter_broker_listener
from odradek.config.object_store import ObjectStoreConfig
from odradek.config.resolution import Layer
from odradek.config.tls import PROTOCOLS as TLS
from odradek.storage.directory import LOCK, LogDirectory, make_durable_directory
from odradek.storage.errors import DirectoryInUse, DiskFailure, StorageError

REFUSALS = (ConfigError, AddressError, MetadataError, StorageError)
_MS_PER_S = 1_000


def problems_of(subject: str, error: Exception) -> Iterator[Finding]:
    """Yield the findings for an error of a start, in the words of `odradek serve`."""
    if isinstance(error, ConfigError):
        yield from (Finding(PROBLEM, subject, one, "correct it there") for one in error.problems)
        return
    reason, remedy = reason_and_remedy(error)
    yield Finding(PROBLEM, subject, reason, remedy or NO_START)


class Rehearsal:
    """A start of the broker with the settings of one process."""

    def __init__(self, static: Layer, *, is_running: bool, has_workers: bool = False) -> None:
        """`is_running` means that the broker of these settings has the locks now.

        With `has_workers` the log directories are for several processes.
        """
        self._has_workers = has_workers
        self._static, self._config = static, resolve_broker([static]).config
        self._fs = RehearsalFiles(has_locks=is_running)
        self._paths = [Path(one) for one in self._config.data_directories]
        self._url = resolve_apart(CatalogConfig, [static]).odradek_catalog_url or ""
        self._seen: Seen | None = None
        # The log directories that the start would be refused, or would do without.
        self.failed: set[Path] = set()

    def check_data(self) -> Iterator[Finding]:
        """Yield the problems of the metadata and the log directories."""
        first = self._paths[0]
        with _reporting("data") as found:
            try:
                make_durable_directory(self._fs, first)
                self._fs.make_directory(first, is_private=True)
            except StorageError as error:
                self.failed.add(first)
                found += problems_of("data", error)
            else:
                found += self._check_metadata()
            found += self._check_directories()
        yield from found

    def check_services(self) -> Iterator[Finding]:
        """Yield the problems of the bucket, the stored settings, certificates, the audit log."""
        try:
            if self._config.metrics_address is not None:
                read_certificate(resolve_apart(HttpConfig, [self._static]))
        except ConfigError as error:
            yield from problems_of("http", error)
        bucket = resolve_apart(ObjectStoreConfig, [self._static])
        if bucket.odradek_object_store_url:
            yield from check_bucket(bucket)
        with _reporting("security") as found:
            try:
                asyncio.run(self._check_security())
            except REFUSALS as error:
                found += problems_of("security", error)
        yield from found

    def _check_metadata(self) -> Iterator[Finding]:
        try:
            self._seen = self._see()
        except REFUSALS as error:
            yield from problems_of("metadata", error)

    def _see(self) -> Seen:
        """Read the metadata. Raises MetadataError or StorageError."""
        fs, paths = self._fs, self._paths
        given, drawn = self._config.odradek_cluster_id, random.SystemRandom()
        cluster_id = new_cluster_id(fs, paths[0], given, drawn)
        if self._url:
            return see_catalog(self._url, fs, paths, self._config.node_id, cluster_id)
        return see_files(fs, paths, cluster_id)

    def _check_directories(self) -> Iterator[Finding]:
        """Yield the problems of log directories; a start does without one whose disk fails."""
        failures: dict[Path, DiskFailure] = {}
        for path in self._paths:
            if path in self.failed:
                continue
            try:
                self._open(path)
            except DiskFailure as error:
                failures[path] = error
            except DirectoryInUse as error:
                self.failed.add(path)
                yield Finding(PROBLEM, "data", str(error), f"it is {holder_of(path)}")
            except (MetadataError, StorageError) as error:
                self.failed.add(path)
                yield from problems_of("data", error)
        has_one = len(failures) + len(self.failed) < len(self._paths)
        for path, failure in failures.items():
            self.failed.add(path)
            for one in problems_of("data", failure):
                state = WARNING if has_one else PROBLEM
                text = f"{one.text}: its partitions are offline" if has_one else one.text
                yield Finding(state, one.subject, text, one.advice)

    def _open(self, path: Path) -> None:
        seen = self._seen
        if seen is None:  # whose directories they are is not known
            make_durable_directory(self._fs, path)
            self._fs.lock(path / LOCK)
            return
        if seen.is_new:
            refuse_kafkas_in(self._fs, path, self._paths)
        opened = LogDirectory(
            self._fs, path, cluster_id=seen.cluster_id, node_id=self._config.node_id
        )
        if seen.is_new and self._has_workers:
            refuse_lost_metadata([opened])

    async def _check_security(self) -> None:
        """Raise ConfigError for stored settings, certificates or a file that a start refuses."""
        stored = {} if self._seen is None else self._seen.configs
        store: Any = None  # nothing is changed
        configs = Configs(self._static, stored, store, Changes())
        listeners = configs.broker.bound_endpoints
        acl = configs.of(AclConfig)
        if acl.has_authorizer and acl.odradek_audit_log:
            self._check_audit_log(acl.odradek_audit_log)
        speakers = [(one.name, one.protocol) for one in listeners if one.protocol in TLS]
        if not speakers:
            return
        between = ""
        if self._url:
            config = configs.of(InterBrokerConfig)
            between = inter_broker_listener(config, configs.broker.advertised_endpoints).name
        Tls(speakers, configs.layers, Metrics(), lambda: int(time.time() * _MS_PER_S), between)

    def _check_audit_log(self, name: str) -> None:
        from odradek.broker.security.audit import refused_file

        try:
            self._fs.write_bytes(Path(name), b"")
        except DiskFailure as error:
            raise refused_file(name, error.cause) from error


class _Noting(logging.Handler):
    """Keeps the lines that a start would log, from warnings on."""

    def __init__(self, subject: str) -> None:
        super().__init__(logging.WARNING)
        self._subject = subject
        self.findings: list[Finding] = []

    def emit(self, record: logging.LogRecord) -> None:
        advice = "nothing to do for a start, which goes on and logs this"
        self.findings.append(Finding(WARNING, self._subject, record.getMessage(), advice))


@contextmanager
def _reporting(subject: str) -> Iterator[list[Finding]]:
    """Collect findings, and after them those that a start would log, which no screen shows."""
    found: list[Finding] = []
    logger, noting = logging.getLogger("odradek"), _Noting(subject)
    before = logger.propagate
    logger.propagate = False
    logger.addHandler(noting)
    try:
        yield found
    finally:
        logger.removeHandler(noting)
        logger.propagate = before
    found += noting.findings
