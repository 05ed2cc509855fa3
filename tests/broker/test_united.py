"""One HTTP port for two workers: it serves the partitions, groups and metrics of both."""

from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from tests.broker.test_workers import leaders
from tests.broker.workers import Workers, workers
from tests.support.forking import fork_server
from tests.support.waiting import wait_for_http, wait_until

pytestmark = pytest.mark.slow

PARTITIONS = 4
KEYS = 40
BOTH = {"1", "2"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Two workers with records in a compacted topic, and a group that has read a part of them."""
    settings = {"log.cleaner.backoff.ms": "600000", "internal.segment.bytes": "2000"}
    one = workers(tmp_path_factory.mktemp("workers"), 2, settings)
    one.start()
    wait_for_http(one, "/health/ready")
    admin = AdminClient({"bootstrap.servers": one.bootstrap})
    wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, "both have joined")
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
    wanted = NewTopic("prices", PARTITIONS, 1, config=config)
    admin.create_topics([wanted])["prices"].result(20)
    assert set(leaders(one, "prices").values()) == {1, 2}
    fill(one)
    yield one
    one.stop()
    assert "Traceback" not in one.log_text()


def fill(broker: Workers) -> None:
    settings = {
        "bootstrap.servers": broker.bootstrap, "linger.ms": 0, "batch.num.messages": 1,
        "enable.idempotence": True,  # a batch that is sent again stays in its place
    }  # fmt: skip
    producer = Producer(settings)
    for at in range(200):
        producer.produce("prices", f"value {at}", f"k{at % KEYS}", partition=at % PARTITIONS)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    places = [TopicPartition("prices", number, 20) for number in range(PARTITIONS)]
    wait_until(lambda: consumer.commit(offsets=places, asynchronous=False))
    consumer.close()


def token(broker: Workers) -> str:
    return (broker.data / "odradek-admin-token").read_text().strip()


def ask(
    broker: Workers, path: str, method: str = "GET", shown: str | None = None, **query: str | int
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, 60)
    try:
        headers = {"Authorization": f"Bearer {shown}"} if shown else {}
        connection.request(method, f"{path}?{urlencode(query)}", headers=headers)
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read()
    finally:
        connection.close()


def get(broker: Workers, path: str, **query: str | int) -> Any:
    status, _, body = ask(broker, path, **query)
    assert status == 200, body
    return json.loads(body)


def post(broker: Workers, path: str, **query: str | int) -> Any:
    status, _, body = ask(broker, path, "POST", token(broker), **query)
    assert status in (200, 202), body
    return json.loads(body)


def first_event(broker: Workers, shown: str = "") -> tuple[bytes, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, 60)
    connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {shown}"})
    response = connection.getresponse()
    name, data = response.readline(), response.readline()
    connection.close()
    return name, json.loads(data.removeprefix(b"data: "))


def of_all(rows: list[Any]) -> bool:
    return {row["partition"] for row in rows} == set(range(PARTITIONS))


def each(broker: Workers) -> Iterator[int]:
    """Iterate over the partitions, several times: each worker is reached about each of them."""
    for _ in range(6):
        yield from range(PARTITIONS)


def test_topics_are_those_of_both(broker: Workers) -> None:
    (row,) = [one for one in get(broker, "/api/topics")["topics"] if one["name"] == "prices"]
    assert row["partitions"] == PARTITIONS and row["offsets"] == 200
    assert row["remote_partitions"] == row["offline_partitions"] == 0
    shown = get(broker, "/api/topic", topic="prices")
    assert [one["partition"] for one in shown["partition_rows"]] == list(range(PARTITIONS))
    assert shown["offsets"] == 200 and shown["configs"]["cleanup.policy"] == "compact"
    assert sum(shown["bytes"].values()) == sum(
        sum(one["bytes"].values()) for one in shown["partition_rows"]
    )


def test_records_are_those_of_both(broker: Workers) -> None:
    seen: list[str] = []
    before = ""
    while True:
        query = {"before": before} if before else {}
        page = get(broker, "/api/records", topic="prices", limit=30, **query)
        times = [one["timestamp_ms"] for one in page["records"]]
        assert len(times) <= 30 and times == sorted(times, reverse=True)
        assert page["problems"] == []
        seen += [one["value"]["text"] for one in page["records"]]
        before = page["before"]
        if not before:
            break
    assert sorted(seen) == sorted(f"value {at}" for at in range(200))
    for number in each(broker):
        page = get(broker, "/api/records", topic="prices", partition=number, limit=1000)
        assert {one["partition"] for one in page["records"]} == {number}
        assert len(page["records"]) == 50
    latest = get(broker, "/api/latest", topic="prices", limit=1000)
    assert len(latest["records"]) == KEYS and of_all(latest["records"])


def test_the_latest_value_of_each_key_is_found(broker: Workers) -> None:
    for at in range(KEYS):
        found = get(broker, "/api/get", topic="prices", key=f"k{at}")
        assert found["value"]["text"] == f"value {160 + at}" and found["also_in"] == []
    absent = get(broker, "/api/get", topic="prices", key="none")
    assert absent["status"] == "absent" and absent["searched"] == list(range(PARTITIONS))


def test_groups_have_the_lag_of_both(broker: Workers) -> None:
    (row,) = get(broker, "/api/groups")["groups"]
    assert (row["group"], row["partitions"], row["lag"]) == ("readers", PARTITIONS, 120)
    for _ in range(6):
        group = get(broker, "/api/group", group="readers")
        assert group["lag"] == 120
        rows = [(one["partition"], one["end_offset"]) for one in group["partition_rows"]]
        assert rows == [(number, 50) for number in range(PARTITIONS)]
        assert group["partition_rows"][0].keys() == {
            "topic", "partition", "offset", "end_offset", "lag", "member"
        }  # fmt: skip
    assert ask(broker, "/api/group", group="nobody")[0] == 404


def test_the_cleaner_is_that_of_both(broker: Workers) -> None:
    for number in each(broker):
        why = get(broker, "/api/cleaner/why", topic="prices", partition=number)
        assert why["partition"] == number and why["log_end_offset"] == 50
    assert of_all(get(broker, "/api/cleaner/plan", topic="prices")["plans"])
    assert get(broker, "/api/cleaner")["threads"]["wanted"] == 2
    outcomes = post(broker, "/api/cleaner/run", topic="prices")["outcomes"]
    assert of_all(outcomes) and {one["outcome"] for one in outcomes} == {"CLEANED"}
    assert of_all(get(broker, "/api/cleaner/runs")["runs"])
    for number in each(broker):
        history = get(broker, "/api/cleaner/history", topic="prices", partition=number)
        assert history["runs"]
        assert ask(
            broker, "/api/cleaner/retry", "POST", token(broker), topic="prices", partition=number
        )[0] == 409
    asked = post(broker, "/api/cleaner/run", topic="prices", wait="false")["asked"]
    assert of_all(asked)
    verified = post(broker, "/api/cleaner/verify", topic="prices", dry_run="true")
    assert verified["is_proved"] and of_all(verified["partitions"])


COMMANDS = [
    (["cleaner", "run", "prices"], "prices-3"),
    (["cleaner", "why", "prices", "1"], "prices-1"),
    (["cleaner", "plan", "prices"], "prices"),
    (["cleaner", "history", "prices", "0"], "asked for"),
    (["cleaner", "verify", "prices", "--dry-run"], "prices-3"),
    (["get", "prices", "k7"], "value 167"),
]


def test_commands_need_nothing_new(broker: Workers) -> None:
    for command, shown in COMMANDS * 2:
        found = fork_server().run([*command, "--url", broker.http])
        found.check_returncode()
        assert shown in found.stdout


def test_metrics_have_a_label_with_the_broker(broker: Workers) -> None:
    status, headers, text = ask(broker, "/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=")
    families = list(text_string_to_metric_families(text.decode()))
    names = [one.name for one in families]
    assert len(names) == len(set(names))
    assert all("broker" in sample.labels for one in families for sample in one.samples)
    found = {
        (sample.labels["broker"], int(sample.labels["partition"]))
        for one in families
        for sample in one.samples
        if sample.name == "kafka_log_log_logendoffset" and sample.labels["topic"] == "prices"
    }
    assert {number for _, number in found} == set(range(PARTITIONS))
    assert {node_id for node_id, _ in found} == BOTH


def test_the_state_is_that_of_both(broker: Workers) -> None:
    shown = get(broker, "/api/broker")
    internal = sum(one["partitions"] for one in get(broker, "/api/topics")["topics"])
    assert shown["partitions"] == internal and len(shown["listeners"]) == 2
    assert get(broker, "/health") == {"status": "ok", "problems": []}
    samples = wait_until(
        lambda: (found := get(broker, "/api/samples"))["columns"]["at_ms"] and found,
        "there are samples",
    )
    assert {len(one) for one in samples["columns"].values()} == {len(samples["columns"]["at_ms"])}
    name, tick = first_event(broker)
    assert name == b"event: tick\n" and tick["partitions"] == internal


def test_a_wrong_token_is_refused(broker: Workers) -> None:
    for number in range(PARTITIONS):
        status, headers, body = ask(
            broker, "/api/cleaner/run", "POST", "wrong", topic="prices", partition=number
        )
        assert status == 401 and "WWW-Authenticate" in headers
        assert json.loads(body)["token_file"] == str(broker.data / "odradek-admin-token")
    status, _, body = ask(broker, "/api/cleaner/run", "POST", topic="prices")
    assert status == 401 and "token_file" in json.loads(body)


def test_a_head_has_no_body(broker: Workers) -> None:
    for path in ("/api/topics", "/metrics", "/health"):
        status, _, body = ask(broker, path, "HEAD")
        assert (status, body) == (200, b"")
    for number in range(PARTITIONS):
        query = {"topic": "prices", "partition": number}
        assert ask(broker, "/api/records", "HEAD", **query)[::2] == (200, b"")


def test_private_routes_are_private(broker: Workers) -> None:
    assert ask(broker, "/api/ends")[0] == 404
    assert ask(broker, "/api/records", topic="nothing")[0] == 404
    assert ask(broker, "/api/records", topic="prices", limit=0)[0] == 400
    assert ask(broker, "/api/topics", unknown="1")[0] == 400


def test_the_port_is_served_while_a_worker_is_away(broker: Workers) -> None:
    before = broker.pid_of(2)
    broker.send(2, signal.SIGSTOP)
    # It may have taken a connection, which ends with it: another one follows.
    wait_until(lambda: names_broker_2(broker), "the other worker reports it")
    wait_until(lambda: broker.pid_of(2) != before, "it is started again")
    wait_until(lambda: ask(broker, "/health")[0] == 200, "it answers again")
    wait_until(
        lambda: set(leaders(broker, "prices").values()) == {1, 2}, "it has its share again"
    )
    wait_until(lambda: get(broker, "/api/topic", topic="prices")["offsets"] == 200)
    latest = get(broker, "/api/latest", topic="prices", limit=1000)
    assert len(latest["records"]) == KEYS


def names_broker_2(broker: Workers) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, 15)
    try:
        connection.request("GET", "/health")
        response = connection.getresponse()
        problems = json.loads(response.read())["problems"]
    except OSError:
        return False
    finally:
        connection.close()
    return any(one.startswith("broker 2 does not answer over HTTP") for one in problems)


def test_no_answer_says_starting_once_the_port_was_served(tmp_path: Path) -> None:
    one = workers(tmp_path, 2)
    one.start()
    wait_until(lambda: ask(one, "/health/ready")[0] == 200, pause_max_s=0)
    answers = [ask(one, "/health/ready") for _ in range(200)]
    assert [body for status, _, body in answers if status != 200] == []
    one.stop()


def test_reading_takes_the_token_at_each_worker(tmp_path: Path) -> None:
    (tmp_path / "sockets").mkdir()
    one = workers(tmp_path / "workers", 2, {"odradek.http.read.token": "read-me-12"})
    one.environment = {"TMPDIR": str(tmp_path / "sockets")}
    one.start()
    wait_for_http(one)
    (folder,) = (tmp_path / "sockets").glob("odradek-*")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in folder.iterdir()} == BOTH
    for path in ("/api/topics", "/api/broker", "/metrics", "/api/events"):
        assert ask(one, path)[0] == ask(one, path, shown="wrong-one")[0] == 401
    assert ask(one, "/api/topics", shown="read-me-12")[0] == 200
    assert json.loads(ask(one, "/health", shown="read-me-12")[2])["problems"] == []
    _, tick = first_event(one, "read-me-12")
    assert tick["problems"] == []  # the other worker has answered this one
    one.stop()
    assert not folder.exists()


def test_the_folder_goes_with_a_killed_supervisor(tmp_path: Path) -> None:
    (tmp_path / "sockets").mkdir()
    one = workers(tmp_path / "workers", 2)
    one.environment = {"TMPDIR": str(tmp_path / "sockets")}
    one.start()
    wait_for_http(one, "/health/ready")
    assert one.process is not None
    one.process.kill()
    one.process.wait()
    wait_until(lambda: not list((tmp_path / "sockets").iterdir()), "the last worker removes it")
    pids = [one.pid_of(node_id) for node_id in one.ports]
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "they have ended")
