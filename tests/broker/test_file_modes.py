"""Who but the broker's own user may read its files: nobody, where they hold anything."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.broker.live import create, live, on_uvloop
from tests.broker.web import serving

SECRETS = ("odradek.db", "odradek.db.copy")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def found(folder: Path, pattern: str) -> list[Path]:
    return list(folder.glob(pattern))


@on_uvloop
async def test_new_files_and_directories_are_for_the_brokers_user_alone(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir(mode=0o755)
    dirs = f"{tmp_path}/a/data,{tmp_path}/b,{tmp_path}/c"
    async with serving(tmp_path, {"log.dirs": dirs}) as broker:
        await create(broker, "prices", partitions=4)
        assert mode(tmp_path / "a" / "data") == mode(tmp_path / "c") == 0o700
        assert mode(tmp_path / "b") == 0o755  # somebody else has made it so
        assert mode(tmp_path / "a" / "data" / "odradek-admin-token") == 0o600
        databases = found(tmp_path, "**/odradek.db*")
        assert len(databases) == 4 and {mode(path) for path in databases} == {0o600}


@on_uvloop
async def test_files_that_others_could_read_are_closed_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    async with live(tmp_path) as broker:
        await create(broker, "prices")
    for name in SECRETS:
        (data / name).chmod(0o644)
    caplog.clear()
    async with live(tmp_path):
        assert [mode(data / name) for name in SECRETS] == [0o600, 0o600]
    told = [one for one in caplog.messages if "closed a file" in one]
    assert len(told) == 2 and "former_mode=644" in told[0] and str(data) in told[0]
    caplog.clear()
    async with live(tmp_path) as broker:
        await create(broker, "clicks")
        assert [mode(data / name) for name in SECRETS] == [0o600, 0o600]
    assert not [one for one in caplog.messages if "closed a file" in one]


@on_uvloop
async def test_a_file_that_a_crash_left_half_written_is_closed_too(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with live(tmp_path):
        left = data / "odradek.db.tmp"
        left.touch(mode=0o666)
        left.chmod(0o666)
    async with live(tmp_path) as broker:
        await create(broker, "prices")
        assert mode(data / "odradek.db") == 0o600
