"""Checks log directories: existence, owner, access, lock, free space, clean shutdown."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from odradek.broker.metadata.images import DATABASE_NAME
from odradek.cli.finding import OK, PROBLEM, WARNING, Finding
from odradek.cli.words import count, size
from odradek.config.broker import BrokerConfig
from odradek.storage.directory import CLEAN_MARKER, LOCK, METADATA_DIRECTORY
from odradek.storage.errors import StorageError
from odradek.storage.meta_properties import META, read_properties
from odradek.storage.partition_directories import list_partitions
from odradek.storage.real_files import RealFileSystem

_DATA = "data"
_FREE_SHARE_MIN, _FREE_BYTES_MIN = 0.05, 1_000_000_000
# More than the clocks of one network differ.
_AHEAD_MAX_S = 300
_LOCK_HOLDER = re.compile(r"\d+: (?:FLOCK|POSIX) +\w+ +\w+ +(\d+) \S+:(\d+) ")


def check_directories(config: BrokerConfig, *, is_running: bool) -> Iterator[Finding]:
    """Yield findings on each log directory; `is_running` means that its broker uses it now."""
    for name in config.data_directories:
        path = Path(name)
        try:
            yield from _check(path, config, is_running)
        except (OSError, StorageError) as error:
            yield Finding(PROBLEM, _DATA, f"cannot read {error}", _let_in(path))


def _check(path: Path, config: BrokerConfig, is_running: bool) -> Iterator[Finding]:
    if not path.exists():
        yield _check_parent(path)
        return
    if not path.is_dir():
        yield Finding(PROBLEM, _DATA, f"{path} is not a directory", "choose another log.dirs")
        return
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield Finding(PROBLEM, _DATA, f"{path} may not be read and written", _let_in(path))
        return
    holder = _holder(path / LOCK)
    partitions = list_partitions(RealFileSystem(), path)
    held = count(len(partitions), "partition")
    if holder is None:
        yield from _check_left(path, config, held, has_partitions=bool(partitions))
    elif is_running:
        yield Finding(OK, _DATA, f"{path} is in use by the running broker, {held}")
    else:
        yield Finding(
            PROBLEM,
            _DATA,
            f"{path} is in use by another process ({holder})",
            "stop that process, or choose another log.dirs",
        )
    yield _check_room(path)
    yield from _check_times(path)


def _check_parent(path: Path) -> Finding:
    parent = next(one for one in path.absolute().parents if one.exists())
    if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
        return Finding(OK, _DATA, f"{path} does not exist yet: a start creates it")
    advice = f"let user {os.geteuid()} write to {parent}, or choose another log.dirs"
    return Finding(PROBLEM, _DATA, f"{path} does not exist and cannot be created", advice)


def _check_left(
    path: Path, config: BrokerConfig, held: str, *, has_partitions: bool
) -> Iterator[Finding]:
    """Yield findings on the data that the directory's last user left in it."""
    if (path / METADATA_DIRECTORY).exists() and not (path / DATABASE_NAME).exists():
        advice = f"stop Kafka, and run `odradek adopt {path}`; or choose another log.dirs"
        yield Finding(PROBLEM, _DATA, f"{path} holds data of Apache Kafka", advice)
        return
    if (path / META).exists():
        node_id = read_properties(RealFileSystem(), path / META).get("node.id")
        # Where no setting gives the node's id, its data give it.
        is_named = config.node_id != BrokerConfig().node_id
        if is_named and node_id not in (None, str(config.node_id)):
            advice = f"set node.id={node_id}, or choose another log.dirs"
            yield Finding(PROBLEM, _DATA, f"{path} belongs to node {node_id}", advice)
            return
    if has_partitions and not (path / CLEAN_MARKER).exists():
        advice = "nothing to do, but the next start takes longer: it reads unflushed data again"
        yield Finding(WARNING, _DATA, f"{path} was not stopped cleanly, {held}", advice)
        return
    yield Finding(OK, _DATA, f"{path} is free and writable, {held}")


def _check_room(path: Path) -> Finding:
    usage = shutil.disk_usage(path)
    space = f"{path} has {size(usage.free)} of {size(usage.total)} left"
    if usage.free < _FREE_BYTES_MIN or usage.free < usage.total * _FREE_SHARE_MIN:
        state = PROBLEM if usage.free < _FREE_BYTES_MIN / 10 else WARNING
        advice = "make room, or let topics keep less (retention.bytes)"
        return Finding(state, "disk", space, advice)
    return Finding(OK, "disk", space)


def _check_times(path: Path) -> Iterator[Finding]:
    ahead_s = max((one.stat().st_mtime for one in path.iterdir()), default=0.0) - time.time()
    if ahead_s > _AHEAD_MAX_S:
        finding = f"{path} was written {ahead_s / 60:,.0f} minutes in the future"
        advice = "the clock was set back: synchronize it by NTP, retention depends on it"
        yield Finding(WARNING, "clock", finding, advice)


def _let_in(path: Path) -> str:
    return f"let user {os.geteuid()} read and write {path}, or choose another log.dirs"


def _holder(lock: Path) -> str | None:
    """Return the process that holds a directory's lock, or None; this takes it for an instant."""
    if not lock.exists():
        return None
    with lock.open("r+b") as file:
        for take in (fcntl.flock, fcntl.lockf):  # as RealFileSystem.lock
            try:
                take(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return _process_of(os.fstat(file.fileno()).st_ino)
    return None


def _process_of(inode: int) -> str:
    locks = Path("/proc/locks")
    text = locks.read_text() if locks.exists() else ""
    for found in _LOCK_HOLDER.finditer(text):
        if int(found[2]) == inode:
            return f"process {found[1]}"
    return "which one is not known"
