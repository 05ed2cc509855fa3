"""odradek cluster objects and fsck, as an operator gives them."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.catalog.engines import open_engine
from tests.broker.filled_bucket import PARTITIONS, SETTINGS, Place, fill
from tests.broker.live import on_uvloop
from tests.broker.test_shared_topics import cluster
from tests.cli.commands import Commands

COMMANDS = Commands("127.0.0.1:1")  # no broker is asked
HOURS = "--orphan-age"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a bucket and its catalog; its brokers have stopped."""
    path = tmp_path_factory.mktemp("filled")

    @on_uvloop
    async def run() -> None:
        async with cluster(path, f"sqlite://{path / 'catalog.db'}", 1, SETTINGS) as brokers:
            await fill(brokers)

    run()
    (path / "server.properties").write_text(
        f"odradek.catalog.url=sqlite://{path / 'catalog.db'}\n"
        f"odradek.object.store.url=file://{path / 'bucket'}\n"
    )
    return path


@pytest.fixture
def there(folder: Path) -> Iterator[Place]:
    made = Place(folder / "bucket", open_engine(f"sqlite://{folder / 'catalog.db'}"))
    yield made
    made.engine.close()


def given(folder: Path, *arguments: str) -> tuple[str, ...]:
    return ("cluster", *arguments, "--config", str(folder / "server.properties"))


def test_the_objects_are_summed(folder: Path, there: Place) -> None:
    document = COMMANDS.document(*given(folder, "objects", "--partitions"))
    rows = document["segments"]
    assert [(one["topic"], one["partition"]) for one in rows] == [("t", 0), ("t", 1)]
    ((sealed,),) = there.run("SELECT count(*) FROM segment WHERE is_open = 0 AND number = 0")
    assert rows[0]["sealed"]["count"] == sealed
    assert rows[1]["open"] == {"count": 1, "size_bytes": 346}
    assert document["wal"]["objects"]["count"] == 4
    oldest = document["wal"]["oldest"]
    assert (oldest["broker"], oldest["key"]) == (1, None)
    assert oldest["needed_by"] in (None, {"topic": "t", "partition": 0})
    (one,) = COMMANDS.document(*given(folder, "objects"))["segments"]
    assert one["sealed"]["count"] == sum(row["sealed"]["count"] for row in rows)
    shown = COMMANDS.shown(*given(folder, "objects", "--partitions"))
    assert re.search(r"^Topic +Partition +Sealed +Size +Open +Size$", shown, re.M)
    assert re.search(r"^t +1 +\d+ +[\d.]+ kB +1 +346 B$", shown, re.M)
    assert re.search(r"^WAL: 4 objects \([\d.]+ kB\), \d+ inline entries \(\d+ B\)", shown, re.M)
    assert re.search(r"^Topic +Sealed", COMMANDS.shown(*given(folder, "objects")), re.M)


def test_garbage_is_shown_with_the_time_of_its_end(folder: Path, there: Place) -> None:
    query = "SELECT key, number FROM segment ORDER BY key LIMIT 1"
    ((named, _),) = there.run(query)
    now_ms = there.engine.read(lambda connection: there.engine.clock(connection))[1]
    add = "INSERT INTO garbage (key, noted_ms, size_bytes) VALUES (?, ?, 5)"
    before = COMMANDS.document(*given(folder, "objects"))["garbage"]["count"]
    there.run(add, "nothing", now_ms)
    there.run(add, named, now_ms - 1)
    found = COMMANDS.document(*given(folder, "objects"))
    assert found["garbage_in_use"] == {"count": 1, "size_bytes": 5}
    assert found["garbage"]["count"] == before + 1
    assert found["garbage"]["deletable_in_ms"] <= 3_600_000
    delay = ("--set", "odradek.object.delete.delay.ms=0")
    assert "to be deleted now at the earliest" in COMMANDS.shown(
        *given(folder, "objects", *delay)
    )
    there.run("DELETE FROM garbage WHERE key IN (?, ?)", "nothing", named)


def test_an_intact_bucket_is_proved(folder: Path) -> None:
    shown = COMMANDS.shown(*given(folder, "fsck"))
    assert shown.startswith(f"No problem in {PARTITIONS} partitions, ")
    assert len(shown.splitlines()) == 1
    assert COMMANDS.shown(*given(folder, "fsck", "--quick")).startswith("No problem in ")


def test_each_problem_is_a_line(folder: Path, there: Place) -> None:
    ((key, number, base, end),) = there.run(
        "SELECT key, number, base_offset, next_offset FROM segment WHERE number = 0"
        " ORDER BY base_offset LIMIT 1"
    )
    with there.changed(key, None):
        found = COMMANDS.run(*given(folder, "fsck"))
    assert found.exit_code == 1
    assert found.stdout == (
        f"t-{number}, offsets {base} to {end - 1}, {key}: the object is missing; lost: these "
        "records\n"
    )
    assert found.stderr == "odradek: 1 problem\n"


def test_orphans_are_deleted_on_demand_only(folder: Path, there: Place) -> None:
    orphan = "segments/0000000001/000000009999"
    lost = next(key for key in there.objects() if key.startswith("wal/"))
    with there.changed(orphan, b"abc"):
        assert "Too young to be deleted: 1 orphan (3 B)." in COMMANDS.shown(*given(folder, "fsck"))
        found = COMMANDS.run(*given(folder, "fsck", HOURS, "0"))
        assert (found.exit_code, orphan in found.stdout) == (1, True)
        assert found.stderr == "odradek: 1 orphan (3 B): --delete-orphans deletes them\n"
        with there.changed(lost, None):
            found = COMMANDS.run(*given(folder, "fsck", HOURS, "0", "--delete-orphans"))
            assert (found.exit_code, "may have lost records" in found.stderr) == (1, True)
        COMMANDS.shown(*given(folder, "fsck", "--delete-orphans"))
        assert orphan in there.objects()
        shown = COMMANDS.shown(*given(folder, "fsck", HOURS, "0", "--delete-orphans"))
        assert shown.startswith("Deleted 1 orphan (3 B).\nNo problem in ")
        assert orphan not in there.objects()
        (there.path / orphan).touch()


def test_a_terminal_shows_how_far_the_check_is(folder: Path) -> None:
    ours, theirs = pty.openpty()
    with COMMANDS.start(*given(folder, "fsck"), stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        output, _ = process.communicate()
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert output.startswith(b"No problem in ")
    assert re.search(r"\rchecked 0 B of [\d.]+ kB\x1b\[K", shown)
    assert shown.endswith("\r\x1b[K")


def test_wrong_settings_are_explained(folder: Path, tmp_path: Path) -> None:
    catalog = f"sqlite://{folder / 'catalog.db'}"
    refused = COMMANDS.refusal("cluster", "fsck", "--catalog", catalog)
    assert "odradek.object.store.url" in refused
    missing = f"sqlite://{tmp_path / 'none.db'}"
    assert "there is no catalog" in COMMANDS.refusal("cluster", "objects", "--catalog", missing)
    assert not (tmp_path / "none.db").exists()
    assert "sqlite:///path" in COMMANDS.refusal("cluster", "objects", "--catalog", "x")
    (tmp_path / "data").mkdir()
    here = ("--set", f"log.dirs={tmp_path / 'data'}")
    assert "odradek.catalog.url" in COMMANDS.refusal("cluster", "objects", *here)
    (tmp_path / "data" / "odradek-catalog.db").write_bytes(b"")
    assert "has schema version 0" in COMMANDS.refusal("cluster", "objects", *here)
    gone = ("--set", f"odradek.object.store.url=file://{tmp_path / 'gone'}")
    refused = COMMANDS.refusal("cluster", "fsck", "--catalog", catalog, *gone)
    assert "check the folder" in refused
