"""The thread that makes files durable without the interpreter's lock; group commit with it."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.durability import sync_thread
from odradek.broker.durability.group_commit import SYNC_THREADS_MAX, GroupCommit
from odradek.broker.durability.sync_thread import SyncThread
from odradek.storage.errors import DiskFailure
from odradek.storage.files import File
from odradek.storage.log import Log
from odradek.storage.real_files import RealFileSystem
from tests.broker.live import append, batch, on_uvloop
from tests.broker.test_group_commit import make_logs


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have such threads in these tests alone."""
    for name in ("_serve", "files_max"):
        monkeypatch.setattr(sync_thread, name, getattr(sync_thread, name))
    sync_thread.use_kernel()


@pytest.fixture
def pipe() -> Iterator[int]:
    """A descriptor that can not be synced."""
    ends = os.pipe()
    yield ends[0]
    for end in ends:
        os.close(end)


async def answer(thread: SyncThread, descriptors: list[int]) -> list[int]:
    """Return the error numbers of files, 0 where there is none."""
    done: asyncio.Future[list[OSError | None]] = asyncio.get_running_loop().create_future()
    thread.sync(descriptors, done.set_result)
    return [0 if one is None else one.errno or 0 for one in await asyncio.wait_for(done, 60)]


def descriptors_and_threads() -> tuple[int, int]:
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


@on_uvloop
async def test_each_file_has_its_answer(tmp_path: Path, pipe: int) -> None:
    thread = SyncThread(asyncio.get_running_loop())
    with (tmp_path / "one").open("wb") as one, (tmp_path / "two").open("wb") as two:
        one.write(b"1")
        good = [one.fileno(), two.fileno()]
        assert await answer(thread, good) == [0, 0]
        assert await answer(thread, [pipe, one.fileno()]) == [errno.EINVAL, 0]
        assert await answer(thread, good[:1]) == [0], "errors are those of one call"
        many = good * (sync_thread.files_max // 2)
        assert await answer(thread, many) == [0] * len(many)
    thread.close()
    thread.close()


@on_uvloop
async def test_it_leaves_nothing_open() -> None:
    before = descriptors_and_threads()
    thread = SyncThread(asyncio.get_running_loop())
    assert descriptors_and_threads() > before
    thread.close()
    assert descriptors_and_threads() == before


@on_uvloop
async def test_without_descriptors_it_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    pipe2 = os.pipe2

    def few(flags: int) -> tuple[int, int]:
        if made:
            raise OSError(errno.EMFILE, "Too many open files")
        made.append(pipe2(flags))
        return made[0]

    monkeypatch.setattr(os, "pipe2", few)
    with pytest.raises(OSError, match="Too many"):
        SyncThread(asyncio.get_running_loop())
    for end in made[0]:
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(end)


def _refuse(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@on_uvloop
async def test_without_a_thread_it_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", _refuse)
    before = descriptors_and_threads()
    with pytest.raises(OSError, match="can't start new thread"):
        SyncThread(asyncio.get_running_loop())
    assert descriptors_and_threads() == before


@on_uvloop
async def test_a_flush_without_a_thread_fails_and_a_later_one_does_not(
    logs: list[Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = GroupCommit(asyncio.get_running_loop())
    with monkeypatch.context() as refusing:
        refusing.setattr(threading.Thread, "start", _refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await asyncio.wait_for(commit.flush(logs), 60)
        assert [log.recovery_point for log in logs] == [0, 0, 0]
    await asyncio.wait_for(commit.flush(logs), 60)
    assert [log.recovery_point for log in logs] == [1, 1, 1]
    await commit.close()


@on_uvloop
async def test_a_thread_that_has_ended_fails_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_thread, "_serve", lambda *_: None)
    thread = SyncThread(asyncio.get_running_loop())
    thread._thread.join()
    for _ in range(2):
        assert await answer(thread, [1, 2]) == [errno.EIO] * 2
    thread.close()


@dataclass
class Opened:
    fd: int


class BadFile:
    """A file of a disk that refuses to sync it."""

    def __init__(self, real: File, fd: int) -> None:
        self._real, self._fd = real, fd

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def opened(self) -> Opened:
        return Opened(self._fd)


@pytest.fixture
def logs(tmp_path: Path) -> list[Log]:
    return make_logs(tmp_path, RealFileSystem(), 3)[1]


@on_uvloop
async def test_group_commit_syncs_by_it_what_is_one_file_of_a_log(logs: list[Log]) -> None:
    commit = GroupCommit(asyncio.get_running_loop())
    await commit.flush(logs)
    assert not commit._sync_threads, "new logs have a directory to sync"
    for log in logs:
        append(log, batch(b"2"))
    await commit.flush(logs)
    assert len(commit._sync_threads) == len(logs)
    assert [log.recovery_point for log in logs] == [2, 2, 2]
    await commit.close()


@on_uvloop
async def test_a_file_that_cannot_be_synced_fails_its_log_alone(
    logs: list[Log], pipe: int
) -> None:
    commit = GroupCommit(asyncio.get_running_loop())
    failed: list[Log] = []
    commit.on_failed = lambda log, error: failed.append(log)
    await commit.flush(logs)
    good, bad, _ = logs
    for log in logs:
        append(log, batch(b"2"))
    bad.active.log = BadFile(bad.active.log, pipe)
    of_good, of_bad = commit.flush([good]), commit.flush([bad])
    await of_good
    with pytest.raises(DiskFailure, match="Invalid argument"):
        await of_bad
    assert failed == [bad]
    assert (good.recovery_point, bad.recovery_point) == (2, 1)
    assert bad.active.sync_failure is not None, "no later sync is proof"
    await commit.close()


@on_uvloop
async def test_threads_share_many_files(tmp_path: Path, pipe: int) -> None:
    commit = GroupCommit(asyncio.get_running_loop())
    failed: set[Log] = set()
    commit.on_failed = lambda log, error: failed.add(log)
    many = make_logs(tmp_path, RealFileSystem(), 3 * SYNC_THREADS_MAX + 1)[1]
    await commit.flush(many)
    bad = set(many[1::5])
    for log in many:
        append(log, batch(b"2"))
        if log in bad:
            log.active.log = BadFile(log.active.log, pipe)
    answers = [commit.flush([many[0]])]
    await asyncio.sleep(0)  # in which it begins
    answers += [commit.flush([log]) for log in many[1:]]
    await asyncio.wait(answers, timeout=60)
    assert {log for log, one in zip(many, answers, strict=True) if one.exception()} == bad
    assert failed == bad
    assert {log for log in many if log.recovery_point < 2} == bad
    assert len(commit._sync_threads) == SYNC_THREADS_MAX
    assert commit.flushes == 3, "what is asked for meanwhile gathers"
    await commit.close()


@on_uvloop
async def test_without_it_what_is_synced_is_counted(logs: list[Log]) -> None:
    counts: list[int] = []
    commit = GroupCommit(asyncio.get_running_loop(), counts.append)
    await commit.flush(logs)
    for log in logs:
        append(log, batch(b"2"))
    await commit.flush(logs)
    assert counts == [len(logs)], "the second time it was there"
    await commit.close()
