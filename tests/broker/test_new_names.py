"""The names of new logs' files become durable soon after the first append, and not on the loop."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.durability import new_names
from odradek.broker.durability.new_names import NewNames
from odradek.config.topic import TopicConfig
from odradek.storage.directory import LogDirectory
from odradek.storage.errors import DiskFailure
from odradek.storage.log import Log
from odradek.storage.real_files import RealFileSystem
from tests.broker.live import append, batch, on_uvloop, until


class Directories:
    """A real file system that notes the threads which sync directories, and may refuse them."""

    def __init__(self) -> None:
        self._real = RealFileSystem()
        self.synced: list[tuple[str, int]] = []
        self.is_refused = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def sync_directory(self, path: Path) -> None:
        self.synced.append((path.name, threading.get_ident()))
        if self.is_refused:
            raise DiskFailure(path, OSError(5, "Input/output error"))
        self._real.sync_directory(path)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Directories:
    monkeypatch.setattr(new_names, "WAIT_S", 0.0)
    return Directories()


def _followed(home: LogDirectory, number: int = 0) -> Log:
    """Make a log and follow it as a broker does."""
    log = home.create_log("a", number, bytes(16), TopicConfig(), now_ms=0)
    log.on_append = NewNames(asyncio.get_running_loop()).follow(log, lambda *_: None)
    return log


def _home(disk: Any, path: Path) -> LogDirectory:
    return LogDirectory(disk, path, cluster_id="a-cluster", node_id=1)


def _of_log(disk: Directories) -> list[int]:
    return [thread for name, thread in disk.synced if name == "a-0"]


@on_uvloop
async def test_a_new_log_is_synced_by_a_thread_after_its_first_append(
    tmp_path: Path, disk: Directories
) -> None:
    log = _followed(_home(disk, tmp_path))
    assert not log.has_durable_names
    assert _of_log(disk) == []
    append(log, batch(b"1"))
    await until(lambda: log.has_durable_names)
    log.roll(0)
    append(log, batch(b"2"))
    log.roll(0)
    (thread,) = _of_log(disk)
    assert thread != threading.get_ident()


@on_uvloop
async def test_a_roll_that_comes_sooner_syncs_first(tmp_path: Path, disk: Directories) -> None:
    log = _followed(_home(disk, tmp_path))
    append(log, batch(b"1"))
    log.roll(0)
    assert _of_log(disk) == [threading.get_ident()]
    assert log.has_durable_names


@on_uvloop
async def test_a_flushed_log_is_not_synced_again(tmp_path: Path, disk: Directories) -> None:
    home = _home(disk, tmp_path)
    log, other = _followed(home), _followed(home, 1)
    append(log, batch(b"1"))
    part = log.unflushed()
    part.sync()
    log.flushed(part.end_offset)
    append(other, batch(b"1"))
    await until(lambda: other.has_durable_names)
    assert len(_of_log(disk)) == 1


@on_uvloop
async def test_a_failure_is_logged_and_the_first_roll_reports_it(
    tmp_path: Path, disk: Directories, caplog: pytest.LogCaptureFixture
) -> None:
    log = _followed(_home(disk, tmp_path))
    disk.is_refused = True
    append(log, batch(b"1"))
    await until(lambda: "its first roll tries again" in caplog.text)
    with pytest.raises(DiskFailure):
        log.roll(0)
    disk.is_refused = False
    log.roll(0)
    assert len(log.segments) == 2


@on_uvloop
async def test_a_log_that_is_deleted_meanwhile_is_left_alone(
    tmp_path: Path, disk: Directories, caplog: pytest.LogCaptureFixture
) -> None:
    home = _home(disk, tmp_path)
    log, other = _followed(home), _followed(home, 1)
    append(log, batch(b"1"))
    home.delete_log(log, 0)
    append(other, batch(b"1"))
    await until(lambda: other.has_durable_names)
    assert _of_log(disk) == []
    assert not caplog.records
