"""Databases for catalogs: SQLite's files, and databases of a PostgreSQL of the tests' own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgresql import Postgresql, running

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Postgresql]:
    """Run a server for all tests of a worker."""
    with running() as server:
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
