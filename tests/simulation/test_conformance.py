"""The bucket and the catalog of the simulation behave as real ones, where they are well.

The same drawn steps run on both: on the simulated bucket and a server of S3, on the simulated
catalog, a file of SQLite and PostgreSQL.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.broker.catalog.engines import CatalogAway, Engine, open_engine
from odradek.broker.metadata.statements import Connection
from odradek.storage.objects.opening import open_store
from odradek.storage.objects.store import ObjectStore, ObjectStoreError, StoreUnavailable
from tests.broker.catalogs import new_database, postgresql
from tests.histories.history import History
from tests.simulation.cluster.catalog import SimulatedCatalog
from tests.simulation.cluster.loop import Process, SimulatedLoop
from tests.simulation.shared.bucket import SimulatedBucket
from tests.simulation.shared.threads import ThreadedNetwork
from tests.storage.object_stores import bucket, s3_server

__all__ = ["bucket", "new_database", "postgresql", "s3_server"]

_NUMBERS = itertools.count()
_SMALL = settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)

# --- the bucket --------------------------------------------------------------------------------

_keys = st.sampled_from(["a", "a/b", "a/c", "b", "B", "a-"])
_data = st.binary(max_size=6)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("create"), _keys, _data),
        st.tuples(st.just("delete"), st.lists(_keys, max_size=3)),
        st.tuples(st.just("read"), _keys),
        st.tuples(st.just("read_range"), _keys, st.integers(0, 7), st.integers(0, 7)),
        st.tuples(st.just("size"), _keys),
        st.tuples(st.just("list_objects"), st.sampled_from(["", "a", "a/", "c"])),
    ),
    max_size=25,
)


class ThreadedBucket:
    """A simulated bucket, each of whose requests is made by a thread."""

    def __init__(self, path: Path, seed: int = 0) -> None:
        self.loop = ThreadedNetwork(seed)
        catalog = SimulatedCatalog(path / f"{next(_NUMBERS)}.db", self.loop, seed, History())
        catalog.read = lambda work: set()  # type: ignore[method-assign, assignment]
        self.bucket = SimulatedBucket(self.loop, seed, catalog, History())

    def ask(self, name: str, *args: Any) -> Any:
        """Make a request; return its result, or raise its error."""
        found: list[Any] = []

        def body() -> None:
            try:
                found.append((getattr(self.bucket, name)(*args), None))
            except ObjectStoreError as error:
                found.append((None, error))

        self.loop.clients.context().run(self.loop.start_thread, body)
        while not found:
            self.loop._run_once()
        result, error = found[0]
        if error is not None:
            raise error
        return result

    def let_time_pass(self, seconds: float) -> None:
        """Let requests that are late have their effects."""
        end_s = self.loop.time() + seconds
        self.loop.call_at(end_s, lambda: None, context=self.loop.clients.context())
        while self.loop.time() < end_s:
            self.loop._run_once()


def outcome(ask: Callable[[], Any]) -> Any:
    """Return what a request gave: bytes, sizes, keys, or the kind of its error."""
    try:
        found = ask()
        if isinstance(found, Iterator):
            return [(one.key, one.size_bytes) for one in found]
        return bytes(found) if isinstance(found, memoryview) else found
    except ObjectStoreError as error:
        return type(error).__name__


@_SMALL
@given(steps=_steps)
def test_the_bucket_answers_as_a_server_of_s3(
    steps: Sequence[tuple[Any, ...]], s3_server: Any, bucket: str, tmp_path: Path
) -> None:
    simulated = ThreadedBucket(tmp_path)
    real: ObjectStore = open_store(f"{bucket}/{next(_NUMBERS)}", s3_server.options())
    try:
        for name, *args in steps:
            ours = outcome(lambda name=name, args=args: simulated.ask(name, *args))  # type: ignore[misc]
            theirs = outcome(
                lambda name=name, args=args: getattr(real, name)(*args)  # type: ignore[misc]
            )
            assert ours == theirs, (name, *args)
    finally:
        real.close()


@pytest.mark.parametrize("seed", range(8))
def test_troubles_of_the_bucket_have_their_effects(seed: int, tmp_path: Path) -> None:
    """A request that is refused has none, one whose answer is lost its own, at once or later."""
    made = ThreadedBucket(tmp_path, seed)
    made.bucket.refused_share = 1.0
    with pytest.raises(StoreUnavailable):
        made.ask("create", "refused", b"1")
    made.let_time_pass(60.0)
    assert made.bucket.objects == {}
    made.bucket.refused_share, made.bucket.lost_share = 0.0, 1.0
    with pytest.raises(StoreUnavailable):
        made.ask("create", "lost", b"2")
    assert made.bucket.objects in ({}, {"lost": b"2"})
    made.let_time_pass(60.0)
    assert made.bucket.objects == {"lost": b"2"}
    made.bucket.heal()
    made.bucket.duplicate_share = 1.0
    made.ask("delete", ["lost"])
    made.ask("create", "twice", b"3")
    made.let_time_pass(60.0)
    assert made.bucket.objects == {"twice": b"3"}


# --- the catalog -------------------------------------------------------------------------------

_TABLE = "CREATE TABLE pair (name TEXT PRIMARY KEY, value INTEGER NOT NULL, data BLOB)"
_works = st.lists(
    st.tuples(
        st.integers(0, 1),  # the connection
        st.sampled_from(["transact", "touch", "read"]),
        st.lists(
            st.tuples(
                st.sampled_from(["insert", "replace", "raise", "delete"]),
                st.sampled_from("abc"),
                st.integers(0, 1 << 40),
            ),
            max_size=3,
        ),
        st.booleans(),  # whether it fails in the end
    ),
    max_size=12,
)


class Failed(Exception):
    """Some work fails after it has changed something."""


@pytest.fixture(params=["simulated", "sqlite", "postgresql"])
def engines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Engine]]:
    """Two connections to an empty catalog of each kind."""
    path = tmp_path / "catalog.db"
    if request.param == "simulated":
        catalog = simulated_catalog(path)
        made: list[Engine] = [catalog.engine(""), catalog.engine("")]
    else:
        url = f"sqlite://{path}"
        if request.param == "postgresql":
            url = request.getfixturevalue("new_database")
        made = [open_engine(url), open_engine(url)]
    made[0].transact(lambda connection: made[0].create_tables(connection, _TABLE))
    yield made
    for one in made:
        one.close()


def simulated_catalog(path: Path) -> SimulatedCatalog:
    """Return a simulated catalog without troubles."""
    loop = SimulatedLoop(0)
    loop.current = Process("broker-1", 1)
    return SimulatedCatalog(path, loop, 0, History())


def rows(connection: Connection) -> dict[str, tuple[int, bytes]]:
    """Return all rows."""
    found = connection.execute("SELECT name, value, data FROM pair ORDER BY name")
    return {name: (value, bytes(data)) for name, value, data in found}


def change(connection: Connection, kind: str, name: str, value: int) -> None:
    """Change a row."""
    data = value.to_bytes(6, "big")
    if kind == "insert":
        connection.execute(
            "INSERT INTO pair (name, value, data) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (name, value, data),
        )
    elif kind == "replace":
        connection.execute_many(
            "INSERT INTO pair (name, value, data) VALUES (?, ?, ?) ON CONFLICT (name)"
            " DO UPDATE SET value = excluded.value, data = excluded.data",
            [(name, value, data)],
        )
    elif kind == "raise":
        connection.execute(
            "UPDATE pair SET value = CASE WHEN value < ? THEN ? ELSE value END WHERE name = ?",
            (value, value, name),
        )
    else:
        connection.execute("DELETE FROM pair WHERE name = ?", (name,))


def change_model(model: dict[str, tuple[int, bytes]], kind: str, name: str, value: int) -> None:
    """Change the model as `change` does a table."""
    row = value, value.to_bytes(6, "big")
    if kind == "replace" or (kind == "insert" and name not in model):
        model[name] = row
    elif kind == "raise" and name in model:
        model[name] = max(value, model[name][0]), model[name][1]
    elif kind == "delete":
        model.pop(name, None)


@_SMALL
@given(works=_works)
def test_the_catalog_keeps_what_is_committed_and_nothing_else(
    works: Sequence[Any], engines: list[Engine]
) -> None:
    engines[0].transact(lambda connection: connection.execute("DELETE FROM pair"))
    model: dict[str, tuple[int, bytes]] = {}
    for number, kind, changes, fails in works:
        engine, tried = engines[number], dict(model)
        if kind == "read":
            assert engine.read(rows) == model
            continue

        def work(connection: Connection) -> dict[str, tuple[int, bytes]]:
            if kind == "touch":  # noqa: B023
                engine.exclude_changes(connection)  # noqa: B023
            for one in changes:  # noqa: B023
                change(connection, *one)
            found = rows(connection)
            if fails:  # noqa: B023
                raise Failed
            return found

        for one in changes:
            change_model(tried, *one)
        try:
            assert getattr(engine, kind)(work) == tried
        except Failed:
            continue
        model = tried
        assert engines[1 - number].read(rows) == model


def test_an_engine_names_its_tables_and_its_clock(engines: list[Engine]) -> None:
    one, other = engines
    assert one.read(lambda connection: one.has_table(connection, "pair"))
    assert not one.read(lambda connection: one.has_table(connection, "nothing"))
    (name, first_ms), (same, last_ms) = one.read(one.clock), other.read(other.clock)
    assert name == same
    assert last_ms >= first_ms


@pytest.mark.parametrize("seed", range(8))
def test_troubles_of_the_catalog_have_their_effects(seed: int, tmp_path: Path) -> None:
    """A change that is refused has none; one whose answer is lost is there before the next."""
    loop = SimulatedLoop(seed)
    loop.current = Process("broker-1", 1)
    catalog = SimulatedCatalog(tmp_path / "catalog.db", loop, seed, History())
    engine, other = catalog.engine(""), catalog.engine("")
    engine.transact(lambda connection: engine.create_tables(connection, _TABLE))
    catalog.refused_share = 1.0
    with pytest.raises(CatalogAway):
        engine.transact(lambda connection: change(connection, "insert", "refused", 1))
    catalog.refused_share, catalog.lost_share = 0.0, 1.0
    with pytest.raises(CatalogAway):
        engine.touch(lambda connection: change(connection, "insert", "lost", 2))
    catalog.lost_share = 0.0
    assert set(other.read(rows)) in (set(), {"lost"})
    assert set(other.transact(rows)) == {"lost"}
    catalog.away_until_s = loop.time() + 1
    with pytest.raises(CatalogAway):
        engine.read(rows)
    catalog.heal()
    assert set(engine.read(rows)) == {"lost"}
    catalog.close()
