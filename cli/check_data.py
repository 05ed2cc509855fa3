"""Checks log directories that can be used: their lock, free space, the last shutdown."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from odradek.cli.finding import OK, PROBLEM, WARNING, Finding
from odradek.cli.words import count, size
from odradek.config.broker import BrokerConfig
from odradek.storage.directory import CLEAN_MARKER, LOCK
from odradek.storage.errors import StorageError
from odradek.storage.partition_directories import list_partitions
from odradek.storage.real_files import RealFileSystem

_DATA = "data"
_FREE_SHARE_MIN, _FREE_BYTES_MIN = 0.05, 1_000_000_000
# More than the clocks of one network differ.
_AHEAD_MAX_S = 300
_LOCK_HOLDER = re.compile(r"\d+: (?:FLOCK|POSIX) +\w+ +\w+ +(\d+) \S+:(\d+) ")


def check_directories(
    config: BrokerConfig, failed: Collection[Path], *, is_running: bool
) -> Iterator[Finding]:
    """Yield findings on each log directory that a start can use, so all but the failed ones.

    `is_running` means that its broker uses it now.
    """
    for path in map(Path, config.data_directories):
        if path in failed:
            continue
        try:
            yield from _check(path, is_running)
        except (OSError, StorageError) as error:
            yield Finding(PROBLEM, _DATA, f"cannot read {error}", _let_in(path))


def is_held(config: BrokerConfig) -> bool:
    """Return whether a process has locked one of the log directories."""
    return any(holder_of(Path(name)) is not None for name in config.data_directories)


def holder_of(path: Path) -> str | None:
    """Return the process that holds a directory's lock, or None; this takes it for an instant."""
    with suppress(OSError), (path / LOCK).open("r+b") as file:
        for take in (fcntl.flock, fcntl.lockf):  # as RealFileSystem.lock
            try:
                take(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return _process_of(os.fstat(file.fileno()).st_ino)
    return None


def _check(path: Path, is_running: bool) -> Iterator[Finding]:
    if not path.exists():
        yield Finding(OK, _DATA, f"{path} does not exist yet: a start creates it")
        return
    partitions = list_partitions(RealFileSystem(), path)
    held = count(len(partitions), "partition")
    if is_running:
        yield Finding(OK, _DATA, f"{path} is in use by the running broker, {held}")
    elif partitions and not (path / CLEAN_MARKER).exists():
        advice = "nothing to do, but the next start takes longer: it reads unflushed data again"
        yield Finding(WARNING, _DATA, f"{path} was not stopped cleanly, {held}", advice)
    else:
        yield Finding(OK, _DATA, f"{path} is free and writable, {held}")
    yield _check_room(path)
    yield from _check_times(path)


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


def _process_of(inode: int) -> str:
    locks = Path("/proc/locks")
    text = locks.read_text() if locks.exists() else ""
    for found in _LOCK_HOLDER.finditer(text):
        if int(found[2]) == inode:
            return f"process {found[1]}"
    return "which one is not known"
