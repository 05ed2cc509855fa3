"""A loaded broker that is killed at fifty random moments.

It ends after so many kills, or after ten minutes, whichever comes first; fewer than half the
kills in that time would be a broker too slow to start, and fail.
"""

from __future__ import annotations

import pytest

from bench.processes import kafka_libs
from tests.broker.siege import SETTINGS, Siege
from tests.conftest import StartBroker
from tests.fuzz.seeds import FIRST_SEED, KILLS
from tests.storage.dump import check_data

TIME_MAX_S = 600

pytestmark = [pytest.mark.fuzz, pytest.mark.timeout(1200)]


def test_acknowledged_records_survive_kill_9(start_broker: StartBroker) -> None:
    broker = start_broker(SETTINGS)
    siege = Siege(broker)
    siege.run(KILLS, seed=FIRST_SEED, time_max_s=TIME_MAX_S)
    print(f"{siege.kills} kills, {sum(sender.number for sender in siege.senders)} records")
    siege.check()
    assert siege.kills >= KILLS // 2
    broker.stop()
    if kafka_libs() is not None:
        check_data(broker.data, with_gaps=["table"])
