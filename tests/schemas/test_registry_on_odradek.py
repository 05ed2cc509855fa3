"""A schema registry whose schemas are in topics of Odradek keeps them when both are restarted.

The registry of all other tests keeps its schemas there, too (tests/support/registry.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.processes import free_port
from odradek.schemas.errors import SchemaError
from odradek.schemas.registry import Registry
from tests.support.forking import ForkedOdradek
from tests.support.registry import require_registry, running_registry

pytestmark = pytest.mark.slow

TEXT = {"type": "string"}
NUMBER = {"type": "long"}


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_schemas_outlive_the_registry_and_the_broker(tmp_path: Path, is_killed: bool) -> None:
    require_registry()
    broker, port = ForkedOdradek(tmp_path), free_port()
    broker.start()
    try:
        with running_registry(tmp_path, broker.bootstrap, port) as running:
            ids = [running.add("texts-value", TEXT), running.add("numbers-value", NUMBER)]
            written = [Registry(running.url).by_id(one) for one in ids]
        if is_killed:
            broker.kill()
        else:
            broker.stop()
        broker.start()
        with running_registry(tmp_path, broker.bootstrap, port) as running:
            again = Registry(running.url)
            assert [again.by_id(one) for one in ids] == written
            assert again.version("numbers-value", "latest") == (ids[1], written[1])
            assert running.add("texts-value", TEXT) == ids[0]
            with pytest.raises(SchemaError, match="does not know"):
                again.by_id(max(ids) + 1)
    finally:
        broker.stop()
