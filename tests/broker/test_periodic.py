"""What the broker does now and then, each at the interval that its option sets."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from odradek.storage import checkpoints
from tests.broker.live import append, batch, create, live, on_uvloop, until

NEVER = str(2**31 - 1)


@on_uvloop
async def test_log_start_offsets_are_written_down_at_their_own_interval(tmp_path: Path) -> None:
    settings = {
        "log.flush.start.offset.checkpoint.interval.ms": "10",
        "log.flush.offset.checkpoint.interval.ms": NEVER,
    }
    async with live(tmp_path, settings) as broker:
        (log,) = (await create(broker, "orders")).logs
        append(log, batch(b"a"))
        append(log, batch(b"b"))
        await broker.group_commit.flush([log])
        log.advance_start_offset(1)
        file = tmp_path / "data" / checkpoints.LOG_START_OFFSETS
        await until(lambda: file.exists() and "orders 0 1" in file.read_text())


@on_uvloop
async def test_as_many_threads_work_in_the_background_as_asked_for(tmp_path: Path) -> None:
    def name() -> str:
        return threading.current_thread().name

    async with live(tmp_path, {"background.threads": "1"}) as broker:
        loop = asyncio.get_running_loop()
        names = {await loop.run_in_executor(None, name) for _ in range(9)}
        assert names == {"background_0"}
        assert broker.config.background_threads == 1
