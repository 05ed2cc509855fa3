"""The queue of changes: one at a time, each to its end."""

import asyncio
from functools import partial

import pytest

from odradek.broker.metadata.changes import Changes


def test_changes_do_not_overlap() -> None:
    async def main() -> None:
        changes = Changes()
        events: list[str] = []

        async def change(name: str) -> str:
            events.append(f"{name} began")
            await asyncio.sleep(0)
            events.append(f"{name} ended")
            return name

        results = await asyncio.gather(*(changes.run(partial(change, n)) for n in "abc"))
        assert results == ["a", "b", "c"]
        assert events == [f"{n} {what}" for n in "abc" for what in ("began", "ended")]

    asyncio.run(main())


def test_a_change_that_began_ends_though_its_caller_is_cancelled() -> None:
    async def main() -> None:
        changes = Changes()
        begun, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def change() -> None:
            begun.set()
            await may_end.wait()
            ended.set()

        caller = asyncio.create_task(changes.run(change))
        await begun.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        may_end.set()
        await changes.close()
        assert ended.is_set()

    asyncio.run(main())


def test_a_failed_change_lets_the_next_one_in() -> None:
    async def main() -> None:
        changes = Changes()

        async def fail() -> None:
            raise ValueError("refused")

        async def succeed() -> int:
            return 7

        with pytest.raises(ValueError, match="refused"):
            await changes.run(fail)
        assert await changes.run(succeed) == 7

    asyncio.run(main())


def test_a_change_that_fails_after_its_caller_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reports: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
        changes = Changes()
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def change() -> None:
            begun.set()
            await may_end.wait()
            raise ValueError("no more room")

        caller = asyncio.create_task(changes.run(change))
        await begun.wait()
        caller.cancel()
        await asyncio.wait([caller])
        may_end.set()
        await changes.close()

    asyncio.run(main())
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == [
        "a change failed after its client had gone: no more room"
    ]
    assert not reports
