"""Databases for catalogs: SQLite's files, and databases of a PostgreSQL of the tests' own."""

from __future__ import annotations

import itertools
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bench.servers.postgresql import Postgresql
from odradek.broker.catalog.engines import Engine
from tests.support.servers import running_postgresql

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Postgresql]:
    """Run a server for all tests of a worker."""
    with running_postgresql() as server:
        yield server


@pytest.fixture
def new_database(postgresql: Postgresql) -> str:
    """Return the address of an empty database of PostgreSQL."""
    return postgresql.create_database(f"catalog{next(_NUMBERS)}")


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty catalog, of each engine in turn."""
    if request.param == "sqlite":
        return f"sqlite://{tmp_path / 'catalog.db'}"
    found: str = request.getfixturevalue("new_database")
    return found


def copy_catalog(url: str, name: str, server: Postgresql | None) -> str:
    """Copy a catalog that is in use, as an operator does; return the address of the copy."""
    if server is None:
        path = Path(urlsplit(url).path)
        made = path.with_name(f"{name}.db")
        with closing(sqlite3.connect(path)) as database:
            database.execute("VACUUM INTO ?", (str(made),))
        return f"sqlite://{made}"
    made_url = server.create_database(name)
    dumped = subprocess.run(
        [server.programs / "pg_dump", "--dbname", url], check=True, capture_output=True, timeout=60
    )
    subprocess.run(
        [server.programs / "psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", made_url],
        input=dumped.stdout,
        check=True,
        capture_output=True,
        timeout=60,
    )
    return made_url


def let_leases_end(engine: Engine) -> None:
    """Let the leases of all sessions have ended, as some time after a copy."""
    engine.transact(lambda connection: connection.execute("UPDATE session SET expires_at_ms = 0"))
