"""The news of a catalog: the rows that others changed, read in few statements."""

from __future__ import annotations

from typing import Any

from odradek.broker.catalog import changes
from odradek.broker.metadata.statements import Connection
from odradek.broker.metadata.store import Resource, ResourceType, SecurityKind
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.test_catalog import Catalog, run
from tests.broker.test_catalog import catalog as catalog

OWNERS = [Resource(ResourceType.TOPIC, f"t/{one}") for one in range(300)]


class Counting:
    """A connection that counts its statements."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.count = 0

    def execute(self, *arguments: Any) -> Any:
        self.count += 1
        return self._connection.execute(*arguments)


def _read(catalog: Catalog) -> tuple[int, changes.News]:
    """Return the number of statements that read all news, and the news."""

    def read(connection: Connection) -> tuple[int, changes.News]:
        counting = Counting(connection)
        news = changes.read(counting, 0)  # type: ignore[arg-type]
        return counting.count, news

    engine = catalog.engine()
    try:
        return engine.read(read)
    finally:
        engine.close()


def test_changes_of_many_owners_are_read_in_few_statements(catalog: Catalog) -> None:
    rows: dict[str, str | None] = {f"x/{number}": str(number) for number in range(300)}

    async def use() -> None:
        async with catalog.joined() as one:
            await one.replace_configs({OWNERS[0]: {"a.b": "1", "a.c": "2"}})
            await one.change_security(SecurityKind.ACL, {"x/0": "0"})
            few, news = _read(catalog)
            assert news.configs == {OWNERS[0]: {"a.b": "1", "a.c": "2"}}
            assert news.security == {SecurityKind.ACL: {"x/0": "0"}}
            await one.replace_configs({owner: {"retention.ms": owner.name} for owner in OWNERS})
            await one.replace_configs({OWNERS[1]: {}})
            await one.change_security(SecurityKind.ACL, rows)
            await one.change_security(SecurityKind.ACL, {"x/7": None})
            many, news = _read(catalog)
            assert news.configs == {
                owner: {} if owner is OWNERS[1] else {"retention.ms": owner.name}
                for owner in OWNERS
            }
            assert news.security == {SecurityKind.ACL: rows | {"x/7": None}}
            assert many == few

    run(use)
