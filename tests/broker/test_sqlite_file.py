"""A catalog's file that several brokers create at once."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.catalog.engines import CatalogAway
from odradek.broker.catalog.sqlite_file import SqliteEngine
from odradek.broker.metadata.statements import Connection


class Refusing(sqlite3.Connection):
    """Refuses to set the mode of the file, as SQLite does at times while others set it."""

    refusals = 0
    code = sqlite3.SQLITE_BUSY

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if "journal_mode" in sql and Refusing.refusals:
            Refusing.refusals -= 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = Refusing.code
            raise error
        return super().execute(sql, *parameters)


@pytest.fixture(autouse=True)
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each connection refuse."""
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Refusing))
    monkeypatch.setattr(Refusing, "refusals", 3)


def _read_mode(connection: Connection) -> Any:
    return connection.execute("PRAGMA journal_mode")[0][0]


def test_a_broker_waits_while_others_set_the_mode_of_a_new_file(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path / "catalog.db")
    try:
        assert engine.read(_read_mode) == "wal"
    finally:
        engine.close()
    assert not Refusing.refusals


def test_a_broker_does_not_wait_for_what_does_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Refusing, "code", sqlite3.SQLITE_CANTOPEN)
    with pytest.raises(CatalogAway):
        SqliteEngine(tmp_path / "catalog.db").read(_read_mode)
    assert Refusing.refusals == 2
