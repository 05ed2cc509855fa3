"""The leader's side of copies: how far they are, when cleaning pauses, and their rate."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.metadata.members import Leader
from odradek.broker.reassignment.followers import SILENCE_S, Followers, copy_number, move_of
from odradek.broker.reassignment.throttle import Throttle
from odradek.config.replication import is_throttled
from odradek.config.topic import TopicConfig
from odradek.storage.directory import LogDirectory
from odradek.storage.log import Log
from tests.broker.live import batch, on_uvloop
from tests.simulation.crashfs import CrashFileSystem

RETENTION_MS = 100_000
HALF_S = RETENTION_MS / 2_000
TARGET, MOVE = 2, 7
LEADER = Leader(1, 0, "host", 1, target=TARGET, move=MOVE)


@dataclass
class Scene:
    """A log that a broker copies, at times that the test sets."""

    compact: bool = True
    rate: int = 1 << 40
    now_s: float = 1_000.0
    pauses: int = 0
    near: int = 0
    log: Log = field(init=False)
    followers: Followers = field(init=False)

    def __post_init__(self) -> None:
        policy = frozenset({"compact"} if self.compact else {"delete"})
        config = TopicConfig(
            cleanup_policy=policy,
            delete_retention_ms=RETENTION_MS,
            leader_replication_throttled_replicas=("0:1",),
        )
        fs = CrashFileSystem()
        home = LogDirectory(fs, Path("/data"), cluster_id="4L6g3nShT-eMCtK--X86sw", node_id=1)
        self.log = home.create_log("t", 0, bytes(16), config, now_ms=1)
        configs: Any = SimpleNamespace(node_id=1)
        self.followers = Followers(self, configs)
        self.followers._now_s = lambda: self.now_s
        self.followers._throttle = Throttle(lambda: self.rate, lambda: self.now_s)
        self.followers.on_near = self._note_near

    def _note_near(self) -> None:
        self.near += 1

    def pause(self, topic: str, partition: int) -> None:
        self.pauses += 1

    def resume(self, topic: str, partition: int) -> None:
        self.pauses -= 1

    def append(self, count: int = 1, size_bytes: int = 10) -> None:
        for _ in range(count):
            self.log.append(batch(b"v" * size_bytes), now_ms=1)

    def note(self, offset: int, attempt: int = 1, move: int = MOVE) -> int | None:
        number = copy_number(move, attempt)
        return self.followers.note(self.log, TARGET, number, offset)

    def follow(self, time_s: float) -> None:
        """Let the copy ask for more for a time."""
        for _ in range(int(time_s)):
            self.now_s += 1.0
            self.note(0)


@on_uvloop
async def test_cleaning_pauses_in_the_second_half_of_the_retention_of_tombstones() -> None:
    scene = Scene()
    scene.append()
    scene.note(0)
    scene.follow(HALF_S - 1)
    assert scene.pauses == 0
    scene.follow(2)
    assert scene.pauses == 1
    scene.follow(HALF_S)
    assert scene.pauses == 1
    scene.now_s += SILENCE_S + 1
    scene.followers._look()  # its timer goes by the loop's time
    assert scene.pauses == 0


@on_uvloop
async def test_a_copy_that_was_silent_begins_its_time_again() -> None:
    scene = Scene()
    scene.append()
    scene.note(0)
    scene.follow(HALF_S - 5)
    scene.now_s += SILENCE_S + 1
    scene.note(0)
    scene.follow(HALF_S - 1)
    assert scene.pauses == 0


@on_uvloop
async def test_a_log_that_is_not_compacted_is_copied_for_any_time() -> None:
    scene = Scene(compact=False)
    scene.append()
    scene.note(0)
    scene.follow(4 * HALF_S)
    assert scene.pauses == 0


@on_uvloop
async def test_a_copy_is_near_once_it_lacks_little() -> None:
    scene = Scene()
    scene.append(30, 100_000)
    scene.note(30)  # it does not count: there may be no such copy any more
    assert not scene.near
    scene.note(-1)  # there is no copy yet
    scene.note(0)
    assert not scene.followers.is_near(scene.log, LEADER) and not scene.near
    scene.note(25)
    assert not scene.near, "it has not what was there at its last request"
    scene.append(5, 100_000)
    scene.note(30)
    assert scene.followers.is_near(scene.log, LEADER) and scene.near == 1
    assert not scene.followers.is_near(scene.log, replace(LEADER, target=3))
    # Cancelled, and begun again: the broker may have removed the copy meanwhile.
    assert not scene.followers.is_near(scene.log, replace(LEADER, move=MOVE + 2))
    scene.now_s += SILENCE_S + 1
    assert not scene.followers.is_near(scene.log, LEADER)
    scene.note(35)
    assert await scene.followers.until_copied({scene.log: LEADER}, 0.0) == []


@on_uvloop
async def test_a_request_of_an_earlier_copy_does_not_count() -> None:
    scene = Scene()
    scene.append(3)
    scene.note(3, attempt=1)
    scene.note(3, attempt=1)
    scene.note(-1, attempt=2)
    assert scene.note(3, attempt=1) is None
    assert await scene.followers.until_copied({scene.log: LEADER}, 0.0) == []


@on_uvloop
async def test_a_leader_waits_until_a_copy_is_complete() -> None:
    scene = Scene()
    scene.append(3)
    scene.note(2)
    scene.note(2)
    waiting = asyncio.create_task(scene.followers.until_copied({scene.log: LEADER}, 60.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    scene.note(3)
    assert await waiting == [scene.log]


@given(
    st.integers(1, 10_000),
    st.lists(st.tuples(st.floats(0, 2), st.integers(0, 5_000)), max_size=40),
)
def test_copies_keep_to_their_rate(rate: int, steps: list[tuple[float, int]]) -> None:
    now_s, taken, largest = 0.0, 0, 0
    throttle = Throttle(lambda: rate, lambda: now_s)
    for pause_s, size_bytes in steps:
        now_s += pause_s
        if throttle.wait_s() == 0:
            throttle.take(size_bytes)
            taken, largest = taken + size_bytes, max(largest, size_bytes)
    # A second's worth may be saved up, and the last batch may be larger than the budget.
    assert taken <= rate * (now_s + 1) + largest + 1


def test_a_copy_that_waits_as_long_as_it_should_goes_on() -> None:
    now_s = 0.0
    throttle = Throttle(lambda: 1_000, lambda: now_s)
    throttle.wait_s()
    throttle.take(3_000)
    for _ in range(10):
        wait_s = throttle.wait_s()
        if wait_s == 0:
            break
        now_s += wait_s
    assert 2.0 <= now_s <= 2.1


@on_uvloop
async def test_a_leader_gives_nothing_while_its_rate_is_used_up() -> None:
    scene = Scene(rate=1_000)
    scene.append(3)
    assert scene.note(0)
    scene.followers.spend(scene.log, 5_000)
    assert scene.note(1) == 0
    scene.now_s += 10
    assert scene.note(1)


@on_uvloop
async def test_a_copy_in_sync_keeps_to_no_rate() -> None:
    """Otherwise the partition would not be served for as long as its end takes."""
    scene = Scene(rate=1)
    scene.append(3)
    scene.note(0)
    scene.followers.spend(scene.log, 5_000)
    assert scene.note(0) == 0
    assert scene.note(3)


def test_throttled_replicas_are_named_by_partition_and_broker() -> None:
    assert is_throttled(("0:1", "3:2"), 3, 2) and is_throttled(("*",), 7, 9)
    assert not is_throttled(("0:1", "3:2"), 3, 1) and not is_throttled((), 0, 0)


@given(st.integers(0, 2**20), st.integers(0, 2**42 - 1))
def test_the_number_of_a_copy_has_its_move(move: int, now_ms: int) -> None:
    number = copy_number(move, now_ms)
    assert move_of(number) == move and 0 <= number < 2**63
    assert number < copy_number(move + 1, 0)
