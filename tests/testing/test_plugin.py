"""pytest's plugin in a project of its own, as somebody who has installed odradek has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.project import run

pytestmark = pytest.mark.slow

ORDERS = '''
from kafka import KafkaConsumer, KafkaProducer


def test_produced_records_are_consumed(odradek_broker, odradek_topic):
    topic = odradek_topic("orders", partitions=2)
    at = odradek_broker.bootstrap_servers
    with KafkaProducer(bootstrap_servers=at) as producer:
        producer.send(topic, b"1").get(60)
    consumer = KafkaConsumer(
        topic, bootstrap_servers=at, auto_offset_reset="earliest", consumer_timeout_ms=60_000,
        metadata_max_age_ms=1_000,  # kafka-python 3.0 may miss the topic at its start
    )
    assert next(consumer).value == b"1"
    assert consumer.partitions_for_topic(topic) == {0, 1}
    consumer.close()
    print("at", at, "with", topic)


def test_the_broker_is_the_same_without_the_topics_of_the_test_before(odradek_broker):
    with KafkaProducer(bootstrap_servers=odradek_broker.bootstrap_servers) as producer:
        assert producer.partitions_for("other") == {0, 1, 2, 3}
    consumer = KafkaConsumer(bootstrap_servers=odradek_broker.bootstrap_servers)
    assert not [name for name in consumer.topics() if name.startswith("orders-")]
    consumer.close()
    print("then", odradek_broker.bootstrap_servers)
'''
SETTINGS = "[pytest]\nodradek_settings =\n  num.partitions = 4\n  message.max.bytes=1000000\n"


def test_tests_share_a_broker_and_have_topics_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    (tmp_path / "test_orders.py").write_text(ORDERS)
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    _, at, _, topic = done.stdout.split("at ", 1)[1].join(("at ", "")).split()[:4]
    assert topic.startswith("orders-")
    assert f"then {at}" in done.stdout


def test_a_fixture_of_the_project_may_give_the_settings(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n\n@pytest.fixture(scope='session')\ndef odradek_settings():\n"
        "    return {'num.partitions': '4'}\n"
    )
    (tmp_path / "test_orders.py").write_text(ORDERS)
    done = run(tmp_path, "-k", "the_same")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_broker_that_cannot_start_shows_its_log_and_no_trace(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nodradek_settings = num.partitions=many\n")
    (tmp_path / "test_orders.py").write_text(ORDERS)
    done = run(tmp_path)
    assert done.returncode == 1
    assert "many for configuration num.partitions" in done.stdout
    assert "Traceback" not in done.stdout and "broker.start()" not in done.stdout
    assert "2 errors" in done.stdout


def test_a_line_that_is_no_setting_is_named(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nodradek_settings = num.partitions\n")
    (tmp_path / "test_orders.py").write_text(ORDERS)
    done = run(tmp_path)
    assert "odradek_settings: write 'num.partitions' as NAME=VALUE" in done.stdout


def test_a_topic_that_a_test_has_deleted_and_a_stopped_broker_are_no_errors(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_orders.py").write_text(
        "def test_deletes(odradek_broker, odradek_topic):\n"
        "    odradek_broker.delete_topic(odradek_topic())\n\n\n"
        "def test_stops(odradek_broker, odradek_topic):\n"
        "    odradek_topic()\n    odradek_broker.stop()\n"
    )
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_run_without_the_fixtures_starts_and_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_sums.py").write_text(
        "import sys\n\n\ndef test_sum():\n"
        "    assert 'odradek.testing.plugin' in sys.modules\n"
        "    ours = {one for one in sys.modules if one.split('.')[0] == 'odradek'}\n"
        "    assert ours == {'odradek', 'odradek.testing', 'odradek.testing.plugin'}\n"
    )
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_fixtures_are_listed_with_their_purpose(tmp_path: Path) -> None:
    done = run(tmp_path, "--fixtures")
    for name in ("odradek_broker", "odradek_settings", "odradek_topic"):
        line = next(one for one in done.stdout.splitlines() if one.startswith(name))
        assert "odradek.testing.plugin" in line or "testing/plugin.py" in line, line
