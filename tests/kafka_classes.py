"""Writes an archive of the classes that Kafka loads: `python -m tests.kafka_classes`.

Java maps it into memory in place of reading and checking the classes, which halves the start of a
broker or a tool (application class data sharing, JEP 350). Benchmarks do without.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from bench.processes import ROOT, KafkaProcess, kafka_libs

ARCHIVE = ROOT / ".kafka" / "classes.jsa"


def main() -> None:
    """Start a broker, stop it, and have Java archive its classes."""
    if kafka_libs() is None or ARCHIVE.exists():
        return
    os.environ["KAFKA_OPTS"] = "-XX:TieredStopAtLevel=1"
    partial = ARCHIVE.with_suffix(".partial")
    with tempfile.TemporaryDirectory() as folder:
        broker = KafkaProcess(Path(folder), flags=[f"-XX:ArchiveClassesAtExit={partial}"])
        broker.start()
        broker.stop()
    partial.replace(ARCHIVE)


if __name__ == "__main__":
    main()
