"""Run in the Java process of spark-submit, where it has started this Python.

Spark-submit reads its own options and the site's, fetches packages and starts Java, and only then
Python. So its options apply here, and it is too late for packages that it was not given.
"""

from collections.abc import Iterable, Mapping

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext

from odradek.pipeline.connector import Package
from odradek.pipeline.errors import PipelineError

# The variable in which Spark passes its Java's port to the Python that it starts.
_PORT = "PYSPARK_GATEWAY_PORT"


def is_submitted(environment: Mapping[str, str]) -> bool:
    """Return whether spark-submit has started this Python."""
    return _PORT in environment


def join_submitted() -> JavaGateway:
    """Connect to the Java process that spark-submit has started, for sessions to come."""
    SparkContext._ensure_initialized()
    return SparkContext._gateway


def submitted_settings(gateway: JavaGateway) -> dict[str, str]:
    """Return the Spark settings that spark-submit was given, and those it derived from them."""
    return dict(SparkConf(loadDefaults=True, _jvm=gateway.jvm).getAll())


def require_packages(gateway: JavaGateway, packages: Iterable[Package], version: str) -> None:
    """Refuse a Java process that lacks a package for this version of Spark.

    Raises PipelineError with the option for spark-submit.
    """
    loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    missing = []
    for package in packages:
        try:
            loader.loadClass(package.class_name)
        except Py4JJavaError:
            missing.append(package.coordinates(version))
    if missing:
        raise PipelineError(
            "spark-submit was started without packages that this job needs: give it "
            f"--packages {','.join(missing)} before the name of the script"
        )
