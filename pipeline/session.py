"""Start a Spark session that can read Kafka, or explain in one line why it did not start.

`open_session` chooses the packages for the installed PySpark, gives Ivy settings and a cache of
its own (see `pipeline.connector`), and without ``--debug`` keeps Java's log out of the terminal.
"""

import collections
import logging
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from os import environ
from pathlib import Path

import pyspark
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from odradek.dataclass import dataclass
from odradek.pipeline.connector import KAFKA, Package, package_settings, prepare, spark_version
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.java import require_java
from odradek.pipeline.submitted import (
    is_submitted,
    join_submitted,
    require_packages,
    submitted_settings,
)

# The number of the last lines of Java's output that are kept to explain a failed start.
_KEPT_LINES = 500

# The type is declared here because PySpark does not annotate this function.
_launch: Callable[[SparkConf, dict[str, socket.socket]], JavaGateway] = launch_gateway

_MASTER, _JARS, _PACKAGES = "spark.master", "spark.jars", "spark.jars.packages"

_DEFAULTS = {
    _MASTER: "local[2]",
    "spark.driver.memory": "1g",
    # A snapshot has a Parquet file per shuffle partition. Spark's default of 200 suits a cluster.
    "spark.sql.shuffle.partitions": "4",
    # The rows of a persisted DataFrame that Spark puts together in memory. Its default is 10,000:
    # with records of 100 kB these would take the whole heap.
    "spark.sql.inMemoryColumnarStorage.batchSize": "500",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# The driver listens on loopback: a local session needs no network, a cluster whose master listens
# on loopback has all its processes here, and a container's host name need not resolve.
# Delta Lake reads a table's log with 50 tasks by default, which suits a cluster.
_LOCAL_DEFAULTS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.databricks.delta.snapshotPartitions": "2",
}


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The options of a session: the master, Spark's settings, and the folder for fetched jars.

    The default ``master`` is spark-submit's, or else this machine. ``packages`` are those that the
    job needs in addition to Spark's own.
    """

    cache: Path
    app_name: str = "odradek"
    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    debug: bool = False
    packages: Sequence[Package] = (KAFKA,)


def session_settings(
    options: SessionOptions,
    jar_names: frozenset[str],
    version: str,
    submitted: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return all Spark settings of a session; the user's win, and an empty value unsets one.

    ``submitted`` are the settings of spark-submit, for a session in its Java process: they win
    over all settings except those that the user gave to the command itself.
    """
    given = {**(submitted or {}), **({_MASTER: options.master} if options.master else {})}
    given.update(options.settings)
    settings = {**_DEFAULTS, "spark.app.name": options.app_name}
    if _is_here(given.get(_MASTER, settings[_MASTER])):
        settings.update(_LOCAL_DEFAULTS)
    if submitted is None:
        folder = jars_folder(options.cache, version)
        settings.update(package_settings(options.packages, jar_names, version, folder))
    else:
        for package in options.packages:
            settings.update(package.settings)
    wanted = settings.get(_PACKAGES, "")
    settings.update(given)
    if wanted and settings.get(_PACKAGES):
        settings[_PACKAGES] = _with_missing(settings[_PACKAGES], wanted)
    return {name: value for name, value in settings.items() if value}


def _is_here(master: str) -> bool:
    """Return whether a master runs everything on this machine."""
    return re.match(r"local\b|spark://(localhost|127\.[\d.]+|\[::1\]):", master) is not None


def _with_missing(given: str, wanted: str) -> str:
    """Add a job's packages to the user's, except those of which the user names a version."""
    names = {one.rpartition(":")[0] for one in given.split(",")}
    missing = [one for one in wanted.split(",") if one and one.rpartition(":")[0] not in names]
    return ",".join([given, *missing])


def jars_folder(cache: Path, version: str) -> Path:
    """Return the folder for the jars of one Spark version; versions never share jars."""
    return cache / f"spark-{version}"


def named_jars(jars: str) -> frozenset[str]:
    """Return the names of the jars that a setting lists; it may contain wildcards."""
    names: set[str] = set()
    for entry in filter(None, map(str.strip, jars.split(","))):
        path = Path(re.sub("^file:(?://)?", "", entry))
        names.update(jar.name for jar in path.parent.glob(path.name))
        names.add(path.name)  # it may be on a file system that only Spark reads, such as s3a://
    return frozenset(names)


@contextmanager
def open_session(options: SessionOptions) -> Iterator[SparkSession]:
    """Start a Spark session with the requested packages, and stop it at the end.

    The first start on a machine fetches their jars; later ones need no network.
    Raises PipelineError when there is no suitable Java, the jars cannot be fetched, or Spark
    refuses a setting.
    """
    major = require_java(environ)
    home = Path(environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    jar_names = frozenset(path.name for path in (home / "jars").glob("*.jar"))
    version = spark_version(jar_names) or pyspark.__version__
    if is_submitted(environ):
        gateway = join_submitted()
        require_packages(gateway, options.packages, version)
        settings = session_settings(options, jar_names, version, submitted_settings(gateway))
    else:
        jar_names |= named_jars(options.settings.get(_JARS, ""))
        settings = session_settings(options, jar_names, version)
        prepare(jars_folder(options.cache, version))
        _choose_python(settings.get(_MASTER, ""))
    log = _JavaLog()
    try:
        spark = _start(settings, None if options.debug else log)
    except (PySparkException, Py4JError, OSError) as error:
        if options.debug:
            raise
        reason = explain_start(f"{log.text()}\n{error}", settings, major)
        raise PipelineError(reason) from error
    spark.sparkContext.setLogLevel("WARN" if options.debug else "ERROR")
    if not options.debug:
        _silence_traces()
    try:
        yield spark
    finally:
        spark.stop()


def _silence_traces() -> None:
    """Stop PySpark from printing the trace of a failed query, which is reported in one line."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def explain_start(report: str, settings: Mapping[str, str], java_major: int) -> str:
    """Return the reason why Spark did not start, in one line, from the output of Java."""
    packages = settings.get(_PACKAGES, "")
    folder = settings.get("spark.jars.ivy", "Ivy's cache folder")
    if "unresolved dependency" in report or "download failed" in report:
        # Ivy reports a host it cannot reach as a warning, and then the module as "not found".
        unreachable = re.search(r"Host (\S+) not found|Server access error|timed out", report)
        if unreachable:
            return (
                f"the jars of {packages} could not be fetched from Maven Central: connect to the "
                "network once (python -m odradek.pipeline.fetch gets them), or name your mirror "
                "with --conf spark.jars.ivySettings=FILE"
            )
        missing = re.search(r"(?:unresolved dependency|download failed): ([^\],]+)", report)
        name = missing[1] if missing else packages
        return (
            f"Maven Central lacks {name}: run pip install pyspark==4.0.0, whose jars are all "
            f"there, and delete {folder}"
        )
    if "Could not reserve enough space" in report or "Invalid maximum heap size" in report:
        memory = settings.get("spark.driver.memory", "that size")
        return f"Java refused a heap of {memory}: try --conf spark.driver.memory=1g"
    if "getSubject is" in report or "UnsupportedClassVersionError" in report:
        return f"this Spark does not run on Java {java_major}: install Java 17 or 21"
    lines = [line.strip() for line in report.splitlines()]
    errors = [line for line in lines if "Exception" in line or "Error" in line]
    if not errors:
        return "Spark did not start, and Java gave no reason (--debug shows its output)"
    first = errors[0]
    reason = re.sub(r"^Exception in thread \S+ |(?:\w+\.)+(?=\w+(?:Exception|Error))", "", first)
    return f"Spark did not start: {reason[:300]} (--debug shows Java's output)"


def _choose_python(master: str) -> None:
    """Make Spark's Python processes use this Python, which has the packages that they need.

    Spark's default is the first python3 on PATH. The workers of other machines have their own.
    """
    environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if _is_here(master):
        environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _start(settings: Mapping[str, str], log: "_JavaLog | None") -> SparkSession:
    """Start Spark; Java's output goes to the log, or to the terminal if there is none."""
    previous = SparkContext._gateway
    if previous is not None and previous.proc is not None and not _serves(previous, settings):
        end_java(previous)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    if log is None:
        SparkContext(conf=conf)
        return SparkSession.builder.getOrCreate()
    gateway = SparkContext._gateway
    if gateway is None:
        with log.writing_end() as end:
            gateway = _launch(conf, {"stdout": end, "stderr": end})
    SparkContext(conf=conf, gateway=gateway)
    return SparkSession.builder.getOrCreate()


def _serves(gateway: JavaGateway, settings: Mapping[str, str]) -> bool:
    """Return whether the Java process of an earlier session was started with these settings.

    Packages and memory, among other settings, take effect only when Java starts.
    """
    properties = gateway.jvm.System.getProperties()
    return all(properties.getProperty(name) == value for name, value in settings.items())


def end_java(gateway: JavaGateway) -> None:
    """End this process's Java, so that another can start: PySpark allows one per process."""
    gateway.shutdown()
    gateway.proc.stdin.close()  # Java ends with its input
    gateway.proc.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None


class _JavaLog:
    """The last lines that Java printed.

    Java writes to a socket pair, not to a file, so that a session of months does not fill the
    disk. A thread empties it, so that Java never waits for a reader.
    """

    def __init__(self) -> None:
        self._lines: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
        self._reader: threading.Thread | None = None

    @contextmanager
    def writing_end(self) -> Iterator[socket.socket]:
        """Yield the end that a child process writes to; the child's copy stays open."""
        ours, theirs = socket.socketpair()
        self._reader = threading.Thread(
            target=self._read, args=(ours,), name="spark-java-log", daemon=True
        )
        self._reader.start()
        with theirs:
            yield theirs

    def text(self) -> str:
        """Return the kept lines; once Java has ended, they include its last one."""
        if self._reader is not None:
            self._reader.join(timeout=2)
        return "\n".join(self._lines)

    def _read(self, end: socket.socket) -> None:
        with end, end.makefile("r", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self._lines.append(line.rstrip())
