"""Choose Spark's Kafka connector, and where its jars come from.

Spark's Kafka source is not part of PySpark: it is a jar on Maven Central that Spark fetches, with
what it needs, through Ivy when a session starts (``spark.jars.packages``). Left alone, Ivy asks
the user's local Maven repository (``~/.m2``) first. Where that holds a POM without its jar, as
Maven leaves behind whenever it only needed the POM, Ivy settles on it and then fails with
"download failed". So Ivy gets settings of our own, which name Maven Central alone, and a cache
folder of our own, which nothing but Maven Central has filled.

Two more things can fail and are settled here:

- PySpark releases appear for which the connector does not: `connector_version`.
- Connectors later than 4.0.0 ask for a token provider of their own version, which Maven Central
  may lack. The settings then take 4.0.0's jar in its place. It serves only Kafka delegation
  tokens, and connectors 4.1.2 and 4.2.0 were seen to read through it.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from pipeline.errors import PipelineError

# The last connector of each line of Spark releases that Maven Central listed in November 2026.
# A PySpark that is later than its line's last connector takes that one, and a later line takes
# the last line's: PySpark 4.3.0 was seen to read with connector 4.2.0.
LAST_CONNECTORS = {(4, 0): 4, (4, 1): 3, (4, 2): 0}

# Every Spark 4 is built with Scala 2.13.
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"

# What the connector depends on and a Spark distribution already holds: organisation -> jar names.
# Leaving these out fetches 10 MB instead of 63 MB, and never a second version of the same class.
_OFTEN_PRESENT = (
    ("com.google.code.findbugs", "jsr305"),
    ("org.apache.hadoop", "hadoop-client-api"),
    ("org.apache.hadoop", "hadoop-client-runtime"),
    ("org.lz4", "lz4-java"),
    ("at.yawk.lz4", "lz4-java"),  # the same classes under the name that Spark 4.2 took
    ("org.scala-lang.modules", "scala-parallel-collections_2.13"),
    ("org.slf4j", "slf4j-api"),
    ("org.xerial.snappy", "snappy-java"),
)

# An ibiblio resolver with m2compatible and no root is Maven Central, by Ivy's own default.
# usepoms=false: a POM of another version would be refused as inconsistent. The connector itself
# names all that the token provider needs. The lock lets two sessions start with one cache.
IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <caches lockStrategy="artifact-lock-nio"/>
  <resolvers>
    <ibiblio name="central" m2compatible="true"/>
    <chain name="token-provider" returnFirst="true">
      <ibiblio name="central-same-version" m2compatible="true"/>
      <ibiblio name="central-4.0.0" m2compatible="true" usepoms="false" checkconsistency="false"
               pattern="[organisation]/[module]/4.0.0/[artifact]-4.0.0.[ext]"/>
    </chain>
  </resolvers>
  <modules>
    <module organisation="org.apache.spark" name="spark-token-provider-kafka-0-10_2.13"
            resolver="token-provider"/>
  </modules>
</ivysettings>
"""


def connector_version(spark_version: str) -> str:
    """Return the connector to use with a Spark, the newest published that is not newer.

    Raises PipelineError for a Spark that is not a 4.
    """
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", spark_version)
    if found is None or int(found[1]) != 4:
        raise PipelineError(
            f"PySpark {spark_version} is not supported: pip install 'pyspark>=4.0,<5'"
        )
    line, patch = (int(found[1]), int(found[2])), int(found[3])
    if line > max(LAST_CONNECTORS):
        line = max(LAST_CONNECTORS)
        patch = LAST_CONNECTORS[line]
    patch = min(patch, LAST_CONNECTORS[line])
    return f"{line[0]}.{line[1]}.{patch}"


def spark_version(jar_names: Iterable[str]) -> str | None:
    """Read Spark's version from the names of the jars in its distribution."""
    for name in jar_names:
        if found := re.fullmatch(r"spark-core_2\.13-(.+)\.jar", name):
            return found[1]
    return None


def connector_settings(jar_names: frozenset[str], version: str, folder: Path) -> Mapping[str, str]:
    """Return the Spark settings that put the connector on the class path.

    ``jar_names`` are the jars of the Spark distribution and ``version`` is its version; ``folder``
    holds Ivy's settings, written by `prepare`, and its cache. Empty where the distribution holds
    the connector already, as an image may.
    """
    if _holds(jar_names, "spark-sql-kafka-0-10_2.13"):
        return {}
    present = [f"{org}:{name}" for org, name in _OFTEN_PRESENT if _holds(jar_names, name)]
    return {
        "spark.jars.packages": f"{CONNECTOR}:{connector_version(version)}",
        "spark.jars.excludes": ",".join(present),
        "spark.jars.ivySettings": str(folder / "ivysettings.xml"),
        "spark.jars.ivy": str(folder / "ivy"),
    }


def prepare(folder: Path) -> None:
    """Write Ivy's settings into a folder, made if need be.

    Raises PipelineError where the folder cannot be written.
    """
    path = folder / "ivysettings.xml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != IVY_SETTINGS:
            # Renamed into place, because another session may be reading it right now.
            draft = folder / "ivysettings.xml.tmp"
            draft.write_text(IVY_SETTINGS, "utf-8")
            draft.replace(path)
    except OSError as error:
        raise PipelineError(
            f"the cache folder {folder} cannot be written ({error.strerror}): "
            "choose another with --cache or ODRADEK_CACHE"
        ) from error


def _holds(jar_names: frozenset[str], name: str) -> bool:
    pattern = re.compile(re.escape(name) + r"-\d[^/]*\.jar")
    return any(pattern.fullmatch(jar) for jar in jar_names)
