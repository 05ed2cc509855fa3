"""Group commit: who waits is told when its own logs are on the disk, and shares the way there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.durability.group_commit import GroupCommit
from odradek.config.topic import TopicConfig
from odradek.storage.directory import LogDirectory
from odradek.storage.errors import DiskFailure
from odradek.storage.files import File, FileSystem
from odradek.storage.log import Log
from odradek.storage.real_files import RealFileSystem
from tests.broker.live import append, batch, until


class Disk:
    """A real file system whose syncs of `.log` files can be held up, and refused by name."""

    def __init__(self) -> None:
        self._real = RealFileSystem()
        self.is_open = threading.Event()
        self.is_open.set()
        self.waiting = 0
        self.refused: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def open(self, path: Path, *, write: bool = False) -> File:
        opened = self._real.open(path, write=write)
        return SyncedFile(self, opened) if path.suffix == ".log" else opened

    def passing(self, path: Path) -> None:
        """Wait until syncs may pass; fail for a partition that is refused."""
        self.waiting += 1
        assert self.is_open.wait(20)
        self.waiting -= 1
        if path.parent.name in self.refused:
            raise DiskFailure(path, OSError(5, "Input/output error"))


class SyncedFile:
    """A file whose sync() asks the disk first."""

    def __init__(self, disk: Disk, opened: File) -> None:
        self._disk, self._opened = disk, opened

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    def sync(self) -> None:
        self._disk.passing(self._opened.path)
        self._opened.sync()

    def opened(self) -> None:
        """Let nobody sync it but by sync()."""


def make_logs(path: Path, fs: FileSystem, count: int) -> tuple[LogDirectory, list[Log]]:
    """Make the partitions of a topic, with a batch in each."""
    home = LogDirectory(fs, path, cluster_id="a-cluster", node_id=1)
    made = [home.create_log("a", n, bytes(16), TopicConfig(), now_ms=0) for n in range(count)]
    for log in made:
        append(log, batch(b"1"))
    return home, made


@contextmanager
def logs(path: Path, disk: Disk, count: int) -> Iterator[tuple[LogDirectory, list[Log]]]:
    """Make the partitions of a topic; let the disk go on in the end."""
    yield make_logs(path, disk, count)
    disk.is_open.set()


@pytest.fixture
def disk() -> Disk:
    return Disk()


async def test_it_is_done_once_the_disk_has_it_and_not_before(tmp_path: Path, disk: Disk) -> None:
    with logs(tmp_path, disk, 1) as (_, (log,)):
        commit = GroupCommit(asyncio.get_running_loop())
        disk.is_open.clear()
        done = commit.flush([log])
        await until(lambda: disk.waiting)
        assert not done.done()
        assert log.recovery_point == 0
        disk.is_open.set()
        await done
        assert log.recovery_point == log.log_end_offset == 1
        await commit.close()


async def test_all_that_ask_in_one_step_of_the_loop_share_a_flush(
    tmp_path: Path, disk: Disk
) -> None:
    with logs(tmp_path, disk, 3) as (_, all_logs):
        commit = GroupCommit(asyncio.get_running_loop())
        await asyncio.gather(*[commit.flush([log]) for log in all_logs])
        assert commit.flushes == 1
        await commit.close()


async def test_all_that_ask_during_a_flush_share_the_next(tmp_path: Path, disk: Disk) -> None:
    with logs(tmp_path, disk, 3) as (_, all_logs):
        commit = GroupCommit(asyncio.get_running_loop())
        disk.is_open.clear()
        first = commit.flush([all_logs[0]])
        await until(lambda: disk.waiting)
        others = [commit.flush([log]) for log in all_logs * 5]
        assert commit.flushes == 0
        disk.is_open.set()
        await asyncio.gather(first, *others)
        assert commit.flushes == 2
        await commit.close()


async def test_records_that_are_appended_during_a_flush_need_another(
    tmp_path: Path, disk: Disk
) -> None:
    with logs(tmp_path, disk, 1) as (_, (log,)):
        commit = GroupCommit(asyncio.get_running_loop())
        disk.is_open.clear()
        first = commit.flush([log])
        await until(lambda: disk.waiting)
        append(log, batch(b"2"))
        second = commit.flush([log])
        disk.is_open.set()
        await first
        assert (log.recovery_point, second.done()) == (1, False)
        await second
        assert log.recovery_point == 2
        await commit.close()


async def test_a_disk_that_fails_for_one_log_fails_nobody_else(tmp_path: Path, disk: Disk) -> None:
    with logs(tmp_path, disk, 3) as (_, (first, second, third)):
        commit = GroupCommit(asyncio.get_running_loop())
        failed: list[Log] = []
        commit.on_failed = lambda log, error: failed.append(log)
        disk.is_open.clear()
        commit.flush([third])
        await until(lambda: disk.waiting)
        disk.refused = {second.name}
        good, bad, both = (
            commit.flush(asked) for asked in ([first], [second], [first, second, third])
        )
        disk.is_open.set()
        await good
        for failing in (bad, both):
            with pytest.raises(DiskFailure, match="Input/output error"):
                await failing
        assert [log.recovery_point for log in (first, second, third)] == [1, 0, 1]
        assert failed == [second]
        # The system has reported the failure, and would say that all is well from now on.
        disk.refused = set()
        with pytest.raises(DiskFailure, match="Input/output error"):
            await commit.flush([second])
        assert (second.recovery_point, failed) == (0, [second])
        await commit.close()


async def test_a_log_that_is_deleted_during_its_flush_fails_nobody(
    tmp_path: Path, disk: Disk
) -> None:
    with logs(tmp_path, disk, 2) as (home, (first, second)):
        commit = GroupCommit(asyncio.get_running_loop())
        disk.is_open.clear()
        both, alone = commit.flush([first, second]), commit.flush([first])
        await until(lambda: disk.waiting)
        home.delete_log(first, 0)
        disk.refused = {first.name}
        disk.is_open.set()
        await both
        await alone
        await commit.flush([first])
        assert second.recovery_point == 1
        await commit.close()


async def test_a_cancelled_flush_holds_up_nobody(tmp_path: Path, disk: Disk) -> None:
    with logs(tmp_path, disk, 1) as (_, (log,)):
        commit = GroupCommit(asyncio.get_running_loop())
        disk.is_open.clear()
        gone, here = commit.flush([log]), commit.flush([log])
        await until(lambda: disk.waiting)
        gone.cancel()
        here.cancel()
        again = commit.flush([log])
        disk.is_open.set()
        await again
        await commit.close()


async def test_a_flush_that_nobody_waits_for_says_why_it_failed(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    with logs(tmp_path, disk, 1) as (_, (log,)):
        commit = GroupCommit(asyncio.get_running_loop())
        disk.refused = {log.name}
        commit.flush_in_background(log)
        await until(lambda: "failed to flush log=a-0" in caplog.text)
        await commit.close()


async def test_a_close_finishes_what_was_asked_for(tmp_path: Path, disk: Disk) -> None:
    with logs(tmp_path, disk, 2) as (_, (first, second)):
        commit = GroupCommit(asyncio.get_running_loop())
        disk.is_open.clear()
        asked = [commit.flush([first])]
        await until(lambda: disk.waiting)
        asked.append(commit.flush([second]))
        closing = asyncio.ensure_future(commit.close())
        await asyncio.sleep(0)
        disk.is_open.set()
        await closing
        assert all(one.done() for one in asked)
        assert [log.recovery_point for log in (first, second)] == [1, 1]
