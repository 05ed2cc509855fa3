"""A database whose disk takes long."""

from __future__ import annotations

import pytest

from bench.servers.postgresql import Postgresql
from odradek.broker.catalog.engines import CatalogAway, open_engine, transact_once
from odradek.broker.catalog.postgresql import _TIMEOUT_MS
from odradek.broker.catalog.schema import migrate, require_current
from tests.broker.catalogs import postgresql as postgresql

pytestmark = pytest.mark.slow

_LONG = f"pg_sleep({_TIMEOUT_MS / 1000 + 0.3})"
# The first table, and no other, takes longer than an answer may.
_SLOW = f"""
    CREATE FUNCTION wait() RETURNS event_trigger LANGUAGE plpgsql AS $$
    DECLARE
        made text;
    BEGIN
        SELECT object_identity INTO made FROM pg_event_trigger_ddl_commands() LIMIT 1;
        IF made LIKE '%.schema_version' THEN
            PERFORM {_LONG};
        END IF;
    END $$
"""


def test_tables_are_made_on_a_slow_disk(postgresql: Postgresql) -> None:
    url = postgresql.create_database("slow")
    trigger = "CREATE EVENT TRIGGER slow ON ddl_command_end EXECUTE FUNCTION wait()"
    postgresql.execute(_SLOW, trigger, database="slow")
    transact_once(url, lambda engine, connection: migrate(engine, connection))
    engine = open_engine(url)
    try:
        engine.read(lambda connection: require_current(engine, connection))
        # All that is not the making of tables is given up as before.
        with pytest.raises(CatalogAway, match="statement timeout"):
            engine.read(lambda connection: connection.execute(f"SELECT {_LONG}"))
    finally:
        engine.close()
