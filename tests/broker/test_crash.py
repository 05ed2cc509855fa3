"""kill -9 under load: what was acknowledged is there after the restart, exactly once."""

from __future__ import annotations

import pytest

from bench.processes import kafka_libs
from tests.broker.siege import SETTINGS, Siege
from tests.conftest import StartBroker
from tests.storage.dump import check_data

KILLS = 4

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_acknowledged_records_survive_kill_9(start_broker: StartBroker) -> None:
    broker = start_broker(SETTINGS)
    siege = Siege(broker)
    siege.run(KILLS, seed=5, time_max_s=120)
    siege.check()
    assert siege.kills == KILLS
    broker.stop()
    if kafka_libs() is not None:
        check_data(broker.data, with_gaps=["table"])
