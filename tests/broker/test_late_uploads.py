"""Uploads that take so long that their partition goes to another broker meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.composition import Broker
from odradek.broker.shared import uploads
from odradek.broker.shared.building import Builder
from odradek.broker.shared.row_changes import RowChanges
from tests.broker.live import PATIENCE_S, create, on_uvloop, until
from tests.broker.test_cluster import known_everywhere
from tests.broker.test_shared_segments import (
    EAGER,
    begin,
    keyed,
    log_of,
    records,
    rows,
    stored,
    url_of,
)
from tests.broker.test_shared_topics import cluster, leader_of, produce

ROWS = "SELECT base_offset, next_offset, key, is_open FROM segment ORDER BY base_offset"

LEADER = "SELECT leader FROM partition"


async def move(brokers: Sequence[Broker], to: Broker) -> None:
    """Let another broker lead the partition."""
    leader = leader_of(brokers)
    assert leader is not None
    await leader.handovers.assign({(log_of(leader).topic_id, 0): to.node_id})
    await until(lambda: leader_of(brokers) is to)


@on_uvloop
async def test_an_upload_from_before_a_handover_changes_no_rows_when_the_partition_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, gate, keys = uploads.pack, threading.Event(), list[str]()

    def pack(store: Any, files: Any, key: str, *rest: Any) -> Any:
        packed = really(store, files, key, *rest)
        keys.append(key)
        if len(keys) == 1:
            assert gate.wait(PATIENCE_S)
        return packed

    drop, dropped = RowChanges.drop, list[str]()

    async def note_dropped(self: RowChanges, refused: Any) -> None:
        dropped.extend(one.key for one in refused)
        await drop(self, refused)

    monkeypatch.setattr(uploads, "pack", pack)
    monkeypatch.setattr(RowChanges, "drop", note_dropped)
    async with cluster(tmp_path, url_of(tmp_path), 2, EAGER) as brokers:
        one = await begin(brokers)
        (other,) = [broker for broker in brokers if broker is not one]
        for at in range(10):
            await produce(one, keyed(b"k", b"%d" % at))
        await until(lambda: bool(keys))
        await move(brokers, other)
        await stored(other)
        log_of(other).roll(0)
        await until(lambda: any(not is_open for *_, is_open in rows(tmp_path, ROWS)))
        before = rows(tmp_path, ROWS)
        await other.handovers.assign({(log_of(other).topic_id, 0): one.node_id})
        await until(lambda: rows(tmp_path, LEADER) == [(one.node_id,)])
        gate.set()
        await until(lambda: keys[0] in [*dropped, *(key for _, _, key, _ in rows(tmp_path, ROWS))])
        assert rows(tmp_path, ROWS)[0] == before[0]
        await until(lambda: leader_of(brokers) is one)
        await produce(one, keyed(b"k", b"next"))
        await move(brokers, other)
        assert [offset for offset, _, _ in await records(other)] == list(range(11))


@on_uvloop
async def test_a_log_that_cannot_be_opened_by_a_bug_keeps_no_other_one_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    really = Builder._begin

    def fail(self: Builder, wanted: Any, *rest: Any) -> Any:
        if wanted.record.name == "t":
            raise RuntimeError("a bug")
        return really(self, wanted, *rest)

    async with cluster(tmp_path, url_of(tmp_path), 2, EAGER) as brokers:
        one = await begin(brokers)
        (other,) = [broker for broker in brokers if broker is not one]
        monkeypatch.setattr(Builder, "_begin", fail)
        await one.handovers.assign({(log_of(one).topic_id, 0): other.node_id})
        await until(lambda: any("t-0" in problem for problem in other.problems()))
        await create(other, "u", 2)
        await known_everywhere(brokers, "u")
        assert all(leader_of(brokers, number, "u") is not None for number in range(2))
        monkeypatch.setattr(Builder, "_begin", really)
        await until(lambda: leader_of(brokers) is other)
    assert "cannot open log=t-0" in caplog.text
