"""Kafka's tools for the quorum, features and client metrics say of us what they say of Kafka."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.processes import KafkaProcess, OdradekProcess, kafka_libs, kafka_tool

TOOLS = "org.apache.kafka.tools."
FEATURES, METRICS = f"{TOOLS}FeatureCommand", f"{TOOLS}ClientMetricsCommand"
QUORUM, CONFIGS = f"{TOOLS}MetadataQuorumCommand", "kafka.admin.ConfigCommand"
LOGGERS = ["--entity-type", "broker-loggers", "--entity-name", "1"]
ELR = "eligible.leader.replicas.version"

SCRIPT = [
    [QUORUM, "describe", "--status"],
    [QUORUM, "describe", "--replication"],
    [FEATURES, "describe"],
    [FEATURES, "downgrade", "--feature", f"{ELR}=0"],
    [FEATURES, "upgrade", "--feature", f"{ELR}=1"],
    [FEATURES, "upgrade", "--feature", f"{ELR}=7"],
    [FEATURES, "disable", "--feature", ELR],
    [FEATURES, "upgrade", "--feature", "no.such=1"],
    [FEATURES, "downgrade", "--metadata", "3.9"],
    [FEATURES, "version-mapping"],
    [METRICS, "--alter", "--name", "one", "--metrics", "a.,b.", "--interval", "5000"],
    [METRICS, "--alter", "--name", "one", "--interval", "5"],
    [METRICS, "--describe", "--name", "one"],
    [METRICS, "--list"],
    [CONFIGS, "--describe", "--entity-type", "client-metrics", "--entity-name", "one"],
    [METRICS, "--delete", "--name", "one"],
    [CONFIGS, "--alter", "--entity-type", "groups", "--entity-name", "g", "--add-config",
     "consumer.session.timeout.ms=50000"],
    [CONFIGS, "--describe", "--entity-type", "groups", "--entity-name", "g"],
    [CONFIGS, "--alter", "--entity-type", "groups", "--entity-name", "g", "--delete-config",
     "consumer.session.timeout.ms"],
    [CONFIGS, "--alter", *LOGGERS, "--add-config", "root=ERROR"],
    [CONFIGS, "--alter", *LOGGERS, "--add-config", "root=LOUD"],
]  # fmt: skip

# What differs on purpose, or by nature: numbers of the metadata, times, ids, addresses, and the
# levels of features whose code is not here.
NORMAL = (
    (r"\d{13}", "TIME"),
    (r"(Epoch|HighWatermark|ClusterId):\s+\S+", r"\1"),
    (r"(?m)^(1\s+A+\s+)\d+", r"\1END"),
    (r"\w+://[\w.]+:\d+", "ENDPOINT"),
    (r"(?m)^Feature: (group|kraft|share|streams|transaction)\.version.*\n", ""),
    (r"(?m)^\tat .*\n?|^\t\.\.\. \d+ more\n?", ""),
    (r"[ \t]+", " "),
)


def normal(text: str) -> list[str]:
    for pattern, replacement in NORMAL:
        text = re.sub(pattern, replacement, text)
    return sorted(line.strip() for line in text.splitlines() if line.strip())


@pytest.mark.kafka
@pytest.mark.interop
@pytest.mark.timeout(900)
def test_the_tools_say_the_same(tmp_path: Path) -> None:
    if kafka_libs() is None:
        pytest.skip("Kafka's jars are not there: `make kafka` fetches them")
    ours = OdradekProcess(tmp_path / "ours", {"node.id": "1"})
    theirs = KafkaProcess(tmp_path / "theirs", {"node.id": "1"})
    differences = []
    try:
        ours.start()
        theirs.start()
        for tool, *arguments in SCRIPT:
            outputs = []
            for bootstrap in (ours.bootstrap, theirs.bootstrap):
                done = kafka_tool(
                    [tool, "--bootstrap-server", bootstrap, *arguments], check=False
                )
                outputs.append((done.returncode, normal(done.stdout), normal(done.stderr)))
            if outputs[0] != outputs[1]:
                differences.append(f"{tool} {arguments}\n  {outputs[0]}\n  {outputs[1]}")
    finally:
        ours.stop()
        theirs.stop()
    assert not differences, "\n".join(differences)
