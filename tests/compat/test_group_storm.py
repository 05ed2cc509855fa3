"""Members that come, leave and die while records flow and the broker restarts: every record is
processed, no partition has two owners at once, no commit is lost.

`make test` rages for some seconds with four members, `make interop` for minutes with twenty.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.processes import OdradekProcess, kafka_libs
from tests.compat.storm import Command, Event, Storm, check
from tests.interop.programs import BUILDS

MEMBERS = Path(__file__).parent / "members"
PARTITIONS = 12


def confluent(protocol: str) -> Sequence[str]:
    """Run confluent-kafka's."""
    return [sys.executable, str(MEMBERS / "confluent_member.py")]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Run the Java client's, compiled once."""
    libs = kafka_libs()
    assert libs is not None, "Kafka's jars are not there: run `make kafka`"
    made = tmp_path_factory.mktemp("member")
    source = MEMBERS / "Member.java"
    subprocess.run(["javac", "-cp", f"{libs}/*", "-d", str(made), str(source)], check=True)
    flags = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return lambda protocol: ["java", *flags, "-cp", f"{made}:{libs}/*", "Member"]


def rage(
    path: Path,
    command: Command,
    protocol: str = "classic",
    *,
    seed: int,
    members: int,
    duration_s: float,
) -> None:
    broker = OdradekProcess(path)
    broker.start()
    storm = Storm(
        broker, command, protocol, seed=seed, members_max=members, partitions=PARTITIONS
    )
    try:
        storm.rage(duration_s)
    finally:
        storm.end()
        broker.stop()
    assert "Traceback" not in broker.log_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_few_members_and_restarts(tmp_path: Path) -> None:
    rage(tmp_path, confluent, seed=1, members=4, duration_s=12)


@pytest.mark.interop
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_twenty_members_of_confluent_kafka(tmp_path: Path, protocol: str) -> None:
    rage(tmp_path, confluent, protocol, seed=1, members=20, duration_s=120)


@pytest.mark.interop
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_twenty_members_of_franz_go(tmp_path: Path, protocol: str) -> None:
    program = BUILDS / "member"
    if not program.exists():
        pytest.skip("franz-go's member is not built: run `make interop`")
    rage(tmp_path, lambda _: [str(program)], protocol, seed=1, members=20, duration_s=120)


@pytest.mark.interop
@pytest.mark.kafka
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_twenty_members_of_the_java_client(tmp_path: Path, java: Command, protocol: str) -> None:
    rage(tmp_path, java, protocol, seed=1, members=20, duration_s=120)


class TestWhatIsFound:
    """The check itself: what must not be is found."""

    GOOD = (
        Event(1, 0, "own", 0, (0,)),
        Event(2, 0, "read", 0, (0, 5)),
        Event(3, 0, "done", 0, (5,)),
        Event(4, 0, "lost", 0, ()),
        Event(5, 1, "own", 0, (5,)),
        Event(6, 1, "read", 0, (5, 9)),
    )
    ENDED = {0: 10, 1: 10}

    def test_nothing_where_all_is_well(self) -> None:
        check(self.GOOD, self.ENDED, {0: 9})

    def test_a_second_owner(self) -> None:
        without_end = [event for event in self.GOOD if event.what != "lost"]
        with pytest.raises(AssertionError, match="0 has partition 0"):
            check(without_end, self.ENDED, {0: 9})
        check(without_end, {0: 4, 1: 10}, {0: 9})  # it has died meanwhile

    def test_a_lost_commit(self) -> None:
        events = [*self.GOOD[:4], Event(5, 1, "own", 0, (4,)), self.GOOD[5]]
        with pytest.raises(AssertionError, match="commit is lost"):
            check(events, self.ENDED, {0: 9})

    def test_a_record_that_nobody_has_read(self) -> None:
        with pytest.raises(AssertionError, match="read to 9 of 10"):
            check(self.GOOD, self.ENDED, {0: 10})
        events = [event for event in self.GOOD if event.time != 2]
        with pytest.raises(AssertionError, match="nobody has read from 0"):
            check(events, self.ENDED, {0: 9})
