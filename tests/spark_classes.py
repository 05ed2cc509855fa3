"""Writes an archive of the classes that Spark loads: `python -m tests.spark_classes`.

Java maps it into memory, as that of Kafka's classes (tests/kafka_classes.py). It holds no class of
a jar that Spark itself loads: with the archive the packages' jars are on Java's own class path,
too, and come first there. A start and a first table of Delta Lake take half as much.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING

from bench.processes import ROOT, OdradekProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek.pipeline.session import SessionOptions

CACHE = Path(environ.get("ODRADEK_CACHE", "~/.cache/odradek")).expanduser()
ARCHIVE = ROOT / ".kafka" / "spark.jsa"
# The versions of the packages in the archive, and its class path.
CONTENTS = ARCHIVE.with_suffix(".txt")
# Most queries read some records only: compiling much for them would take longer.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.sql.codegen.wholeStage": "false"}


def session_options() -> SessionOptions:
    """Return the options of the tests' sessions, with the archive unless it is out of date."""
    contents = CONTENTS.read_text() if ARCHIVE.exists() else ""
    versions, _, class_path = contents.partition("\n")
    if versions == _versions():
        return _options(class_path, f'"-XX:SharedArchiveFile={ARCHIVE}"', "-Xlog:cds=off")
    return _options("")


def _options(class_path: str, *flags: str) -> SessionOptions:
    from odradek.pipeline.connector import AVRO, DELTA, ICEBERG, KAFKA
    from odradek.pipeline.session import SessionOptions
    from tests.pipeline.tables import SQLITE

    settings = {
        **_SETTINGS,
        "spark.driver.extraJavaOptions": " ".join((JAVA_OPTIONS, *flags)),
        "spark.driver.extraClassPath": class_path,
    }
    packages = (KAFKA, DELTA, AVRO, ICEBERG, SQLITE)
    return SessionOptions(CACHE, settings=settings, packages=packages)


def _versions() -> str:
    import pyspark

    version = pyspark.__version__
    return ",".join(one.coordinates(version) for one in _options("").packages)


def main() -> None:
    """Have Java archive the classes of a session that keeps a table of each format."""
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        return
    from odradek.pipeline.session import open_session

    if session_options() != _options(""):
        return
    with open_session(_options("")) as spark:
        jars = spark.conf.get("spark.jars", "")
    class_path = ":".join(sorted((jars or "").replace("file://", "").split(",")))
    ARCHIVE.parent.mkdir(exist_ok=True)
    partial = ARCHIVE.with_suffix(".partial")
    options = _options(class_path, f'"-XX:ArchiveClassesAtExit={partial}"')
    with tempfile.TemporaryDirectory() as folder, open_session(options) as spark:
        _keep_tables(spark, Path(folder))
    _end_java()
    if partial.exists():
        CONTENTS.write_text(f"{_versions()}\n{class_path}")
        partial.replace(ARCHIVE)


def _keep_tables(spark: SparkSession, folder: Path) -> None:
    """Keep a topic as a table of either format."""
    from odradek.pipeline.materializing import MaterializeJob, start
    from odradek.pipeline.source import TopicSource
    from tests.pipeline.tables import kept_table

    broker = OdradekProcess(folder / "broker")
    broker.start()
    try:
        rows = spark.createDataFrame([(b"a", b"1"), (b"b", None)], "key BINARY, value BINARY")
        address = {"kafka.bootstrap.servers": broker.bootstrap}
        source = TopicSource(broker.bootstrap, topic="prices")
        for kind in ("delta", "hadoop"):
            table = kept_table(kind, folder / kind)
            job = MaterializeJob(source, table, f"{folder}/{kind}-read", available_now=True)
            for _ in range(2):
                rows.write.format("kafka").options(topic="prices", **address).save()
                start(spark, job, lambda *_: None).awaitTermination()
            table.read(spark).collect()
    finally:
        broker.stop()


def _end_java() -> None:
    """End this process's Java, which then writes the archive."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main()
