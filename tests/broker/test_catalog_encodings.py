"""The catalog in databases of PostgreSQL that were created with other encodings."""

from __future__ import annotations

import pytest

from bench.servers.postgresql import Postgresql
from odradek.broker.catalog.engines import open_engine
from odradek.broker.errors import MetadataError
from tests.broker.catalogs import postgresql as postgresql

TEXT = "Łukasz, 日本, ✓"


def _create(server: Postgresql, name: str, encoding: str) -> str:
    template = "TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    server.execute(f"CREATE DATABASE \"{name}\" {template} ENCODING '{encoding}'")
    return server.url_of(name)


@pytest.mark.parametrize("encoding", ["UTF8", "SQL_ASCII"])
def test_text_is_kept(postgresql: Postgresql, encoding: str) -> None:
    engine = open_engine(_create(postgresql, f"text-{encoding}", encoding))
    try:
        engine.transact(lambda db: db.execute("CREATE TABLE kept (text TEXT)"))
        engine.transact(lambda db: db.execute("INSERT INTO kept VALUES (?)", (TEXT,)))
        assert engine.read(lambda db: db.execute("SELECT text FROM kept")) == [(TEXT,)]
    finally:
        engine.close()


def test_a_database_that_cannot_hold_all_text_is_refused(postgresql: Postgresql) -> None:
    engine = open_engine(_create(postgresql, "latin", "LATIN1"))
    with pytest.raises(MetadataError, match="the encoding LATIN1: create it with ENCODING 'UTF8'"):
        engine.read(lambda db: db.execute("SELECT 1"))
    engine.close()
