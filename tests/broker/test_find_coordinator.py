"""A client that looks for a coordinator while there is none."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from odradek.broker.metadata.members import Address
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.live import client, live, on_uvloop

GROUP, TRANSACTION = 0, 1


@pytest.mark.parametrize("kind", [GROUP, TRANSACTION])
@on_uvloop
async def test_the_next_coordinator_is_named_where_there_is_none_at_first(
    tmp_path: Path, kind: int
) -> None:
    settings = {"odradek.catalog.url": f"sqlite://{tmp_path / 'catalog.db'}"}
    async with live(tmp_path, settings) as broker, client(broker) as one:
        asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"])
        (there,) = (await one.ask(asked, version=4)).coordinators
        found = Address(there.node_id, there.host, there.port, "")
        answers = mock.Mock(side_effect=[None, None, found])
        with mock.patch.object(type(broker.brokers), "address", answers):
            (later,) = (await one.ask(asked, version=4)).coordinators
        assert (later.error_code, later.port) == (0, there.port)


@on_uvloop
async def test_a_coordinator_that_stays_away_is_reported(tmp_path: Path) -> None:
    settings = {"odradek.catalog.url": f"sqlite://{tmp_path / 'catalog.db'}"}
    async with live(tmp_path, settings) as broker, client(broker) as one:
        asked = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=["g"])
        await one.ask(asked, version=4)
        with mock.patch.object(type(broker.brokers), "address", return_value=None):
            (missing,) = (await one.ask(asked, version=4)).coordinators
        assert missing.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
