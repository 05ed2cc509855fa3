"""The dashboard and the alerts ask for metrics and labels that a broker at work tells.

With Prometheus at hand, one scrapes the broker and answers each query of the dashboard.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from bench.processes import OdradekProcess, end, free_port
from docs.grafana.dashboard import dashboard
from odradek.broker.observability.exposition.logins import LOGINS
from odradek.broker.observability.metrics_reference import all_families
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.kafka_peer import Peer
from tests.broker.live import batch
from tests.broker.promql import ADDED, grouping_labels, selectors
from tests.support.asking import create_topics
from tests.support.forking import ForkedOdradek
from tests.support.requests import committing, creatable, fetching, producing
from tests.support.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent
DASHBOARD = ROOT / "docs" / "grafana" / "odradek.json"
ALERTS = ROOT / "docs" / "alerts" / "odradek.yml"
ALERT_TESTS = Path(__file__).parent / "alerts" / "odradek_test.yml"
PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")
# Prometheus' own.
UP = "up"
# Where all is well there is nothing to show.
EMPTY = {"In quarantine", "Trouble with the bucket"}
VARIABLES = {"$instance": ".+", "$topic": ".+", "$group": ".+", "$__rate_interval": "1m"}
SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "200",
    "offsets.topic.num.partitions": "1",
}
SHARED = {"odradek.storage": "object", "internal.segment.bytes": "1000"}
COMPACT = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
ACTION = re.compile(
    r"\b(look|see|ask|raise|lower|mount|put|replace|report|enlarge)\b|/health|`odradek \w", re.I
)


def panels() -> list[dict[str, Any]]:
    found = json.loads(DASHBOARD.read_text())["panels"]
    return [one for one in found if one["type"] != "row"]


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def queries() -> Iterator[tuple[str, str, str]]:
    """Yield where a query is from, what it asks, and the text that names its labels."""
    for panel in panels():
        for one in panel["targets"]:
            yield panel["title"], one["expr"], one["legendFormat"].replace("{{", "$labels.")
    for rule in rules():
        yield rule["alert"], rule["expr"], " ".join(rule["annotations"].values())


@pytest.fixture(scope="module")
def at_work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OdradekProcess, Peer]]:
    """A broker that has appended, served, failed to, and cleaned."""
    folder = tmp_path_factory.mktemp("broker")
    # With a catalog and an object store, a broker has all the metrics.
    (folder / "bucket").mkdir()
    stores = {
        "odradek.catalog.url": f"sqlite://{folder / 'catalog.db'}",
        "odradek.object.store.url": f"file://{folder / 'bucket'}",
        "odradek.wal.checkpoint.ms": "1",
    }
    broker = ForkedOdradek(folder, {**SETTINGS, **stores})
    broker.start()
    try:
        with Peer(broker.port) as peer:
            create_topics(peer, creatable("orders", configs=COMPACT))
            create_topics(peer, creatable("shared", configs=SHARED))
            # In a cluster it creates __consumer_offsets.
            peer.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["readers"]), 4)

            def is_cleaned() -> bool:
                work(peer)
                try:
                    runs = families(broker)["odradek_cleaner_runs"]
                except OSError:  # it listens for clients first
                    return False
                return any(one.labels["topic"] == "orders" and one.value for one in runs)

            wait_until(is_cleaned, "the log is cleaned")
            yield broker, peer
    finally:
        broker.stop()


def work(peer: Peer) -> None:
    """Append, read, commit, and ask for what is not there."""
    peer.ask(producing("orders", batch(b"a", timestamp=int(time.time() * 1000))), 9)
    peer.ask(fetching("orders"), 11)
    peer.ask(producing("shared", batch(b"a" * 900, timestamp=int(time.time() * 1000))), 9)
    peer.ask(fetching("shared"), 11)
    peer.ask(fetching("nowhere"), 11)
    peer.ask(committing("readers", {"orders": {0: 1}}), 8)


def families(broker: OdradekProcess) -> Mapping[str, list[Any]]:
    return {one.name: one.samples for one in text_string_to_metric_families(broker.metrics())}


def test_the_dashboard_is_fresh() -> None:
    assert json.loads(DASHBOARD.read_text()) == dashboard(), "run `make docs`"


def test_panels_do_not_overlap_and_say_what_they_show() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y)
            for x in range(place["w"])
            for y in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        assert panel["description"].endswith("."), panel["title"]
        taken |= cells


def test_an_alerts_metrics_say_what_to_do() -> None:
    texts = {one.name: one.text for one in all_families()}
    for rule in rules():
        for one in selectors(rule["expr"]):
            if one.metric != UP:
                assert ACTION.search(texts[one.metric]), one.metric
        assert {"summary", "description"} <= rule["annotations"].keys()


@pytest.mark.slow
def test_every_metric_and_label_in_a_query_exists(at_work: tuple[OdradekProcess, Peer]) -> None:
    labels: dict[str, set[str]] = defaultdict(set)
    # There after a failure, and where clients log in or speak TLS.
    absent = {
        "odradek_cleaner_uncleanable",
        "odradek_tls_certificate_end_seconds",
        "odradek_object_store_failures_total",
        LOGINS["failed_authentication"].name,
    }
    for family in all_families():
        if family.name in absent:
            labels[family.name] |= set(family.labels)
    for samples in families(at_work[0]).values():
        for sample in samples:
            labels[sample.name] |= set(sample.labels)
            labels[sample.name].add("")  # it is there, with labels or without
    for where, expression, text in queries():
        there = set(ADDED)
        for one in selectors(expression):
            if one.metric != UP:
                assert one.metric in labels, (where, one.metric)
                there |= labels[one.metric]
                assert one.labels <= labels[one.metric] | ADDED, (where, one)
        shown = set(re.findall(r"\$labels\.(\w+)", text))
        assert grouping_labels(expression) | shown <= there, where


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: it judges the alerts")
def test_each_alert_fires_when_it_should_and_else_not() -> None:
    assert PROMTOOL is not None
    for command in (["check", "rules", ALERTS], ["test", "rules", ALERT_TESTS]):
        done = subprocess.run(
            [PROMTOOL, *command], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    for rule in rules():
        assert f'alertname="{rule["alert"]}"' in ALERT_TESTS.read_text()


@pytest.mark.slow
@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed: it answers queries")
def test_prometheus_answers_each_query(
    at_work: tuple[OdradekProcess, Peer], tmp_path: Path
) -> None:
    broker, peer = at_work
    port = free_port()
    targets = [{"targets": [f"127.0.0.1:{broker.http_port}"]}]
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [{"job_name": "odradek", "static_configs": targets}],
    }
    file = tmp_path / "prometheus.yml"
    file.write_text(yaml.safe_dump(settings))
    assert PROMETHEUS is not None
    arguments = [f"--config.file={file}", f"--storage.tsdb.path={tmp_path}/data"]
    with (tmp_path / "log").open("wb") as output:
        process = subprocess.Popen(
            [PROMETHEUS, *arguments, f"--web.listen-address=127.0.0.1:{port}"],
            stdout=output,
            stderr=output,
        )
    try:

        def has_scraped() -> bool:
            work(peer)
            try:
                samples = ask(port, f'count_over_time({UP}{{job="odradek"}}[1m])')
            except OSError:
                return False
            return bool(samples) and float(samples[0]["value"][1]) >= 4

        wait_until(has_scraped, "Prometheus has scraped")
        for panel in panels():
            for one in panel["targets"]:
                answered = ask(port, one["expr"])
                values = [sample["value"][1] for sample in answered]
                if panel["title"] not in EMPTY:
                    assert values and set(values) != {"NaN"}, (panel["title"], one["expr"])
        assert not [one for one in ask(port, "ALERTS") if one["metric"]["alertstate"] == "firing"]
    finally:
        process.terminate()
        end(process)


def ask(port: int, expression: str) -> list[Any]:
    """Ask Prometheus; raises OSError for a query that it cannot parse, and before it is ready."""
    for name, value in {**VARIABLES, "$__range": "5m"}.items():
        expression = expression.replace(name, value)
    query = urllib.parse.urlencode({"query": expression})
    url = f"http://127.0.0.1:{port}/api/v1/query?{query}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        found: list[Any] = json.load(answer)["data"]["result"]
        return found
