"""Kafka reads the meta.properties that we write: its comment is none of Kafka's business."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.processes import kafka_tool
from odradek.storage.directory import LogDirectory
from odradek.storage.meta_properties import META, read_cluster_id
from odradek.storage.real_files import RealFileSystem

pytestmark = pytest.mark.kafka

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def test_kafka_reads_what_we_wrote_and_we_what_kafka_wrote(tmp_path: Path) -> None:
    data = tmp_path / "data"
    LogDirectory(RealFileSystem(), data, cluster_id=CLUSTER_ID, node_id=1)
    assert "#crc32c=" in (data / META).read_text()
    config = tmp_path / "server.properties"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
    }
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    tool = "kafka.tools.StorageTool"
    output = kafka_tool([tool, "info", "-c", str(config)], check=False).stdout
    for value in (f"cluster.id={CLUSTER_ID}", "node.id=1", "version=1", "directory.id="):
        assert value in output, output
    (data / META).unlink()
    kafka_tool([tool, "format", "-t", CLUSTER_ID, "-c", str(config)])
    assert read_cluster_id(RealFileSystem(), data) == CLUSTER_ID
