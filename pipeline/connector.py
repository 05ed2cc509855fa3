"""Choose the jars that a session needs in addition to Spark's own, and the place to fetch them.

Spark's Kafka source is not part of PySpark, nor are Delta Lake, Iceberg, Avro and Protobuf: they
are jars on Maven Central that Spark fetches, with their dependencies, through Ivy when a session
starts (``spark.jars.packages``). By default Ivy asks the user's local Maven repository (``~/.m2``)
first. Where that holds a POM without its jar, which Maven leaves behind whenever it only needed
the POM, Ivy chooses it and then fails with "download failed". So Ivy gets settings that name Maven
Central alone, and a cache folder of its own, filled from Maven Central alone.

This module also handles two other failures:

- PySpark releases appear without such a jar: `Package.coordinates`.
- Connectors later than 4.0.0 request a token provider of their own version, which Maven Central
  may lack. The settings then use 4.0.0's jar in its place. It serves only Kafka delegation
  tokens, and connectors 4.1.2 and 4.2.0 were seen to read with it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TypeAlias

from odradek.dataclass import dataclass
from odradek.pipeline.errors import PipelineError

Version: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Package:
    """A package of Maven Central, and the versions of Spark that it was published for.

    ``published`` maps Spark's version to the package's coordinates, as Maven Central listed them
    in November 2026. ``class_name`` names a class in it; Spark needs ``settings`` to use it.
    """

    published: Mapping[Version, str]
    class_name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    serves_later_lines: bool = True  # whether it works with a Spark newer than all of these

    def coordinates(self, spark_version: str) -> str:
        """Return the coordinates to request from Maven Central for Spark's version.

        They are of the newest release of the same line, such as 4.1, that is not newer than
        Spark, or else of the line's oldest. A line without a release uses the newest of the lines
        before it: Spark 4.3.0 was seen to read with connector 4.2.0. Raises PipelineError for a
        Spark that is not a 4, and for a Spark that the package does not work with.
        """
        found = re.match(r"(\d+)\.(\d+)\.(\d+)", spark_version)
        if found is None or int(found[1]) != 4:
            raise PipelineError(
                f"PySpark {spark_version} is not supported: pip install 'pyspark>=4.0,<5'"
            )
        spark = (int(found[1]), int(found[2]), int(found[3]))
        line = [version for version in self.published if version[:2] == spark[:2]]
        if not (line or self.serves_later_lines):
            module = next(iter(self.published.values())).split(":")[1]
            name = re.split(r"[-_]\d", module)[0]
            major, minor, _ = max(self.published)
            raise PipelineError(
                f"{name} has nothing for Spark {spark_version} yet: "
                f"pip install 'pyspark<{major}.{minor + 1}'"
            )
        earlier = [version for version in self.published if version <= spark]
        chosen = max((version for version in line if version <= spark), default=None)
        return self.published[chosen or min(line, default=max(earlier))]


def _of_spark(module: str, class_name: str, *versions: str) -> Package:
    """Return the package of a Spark module; each version is for the Spark of the same version."""
    coordinates = {}
    for version in versions:
        major, minor, patch = version.split(".")
        name = f"org.apache.spark:{module}_2.13:{version}"  # every Spark 4 has Scala 2.13
        coordinates[int(major), int(minor), int(patch)] = name
    return Package(coordinates, f"org.apache.spark.sql.{class_name}")


_RELEASES = (
    *("4.0.0", "4.0.1", "4.0.2", "4.0.3", "4.0.4"),
    *("4.1.0", "4.1.1", "4.1.2", "4.1.3"),
    "4.2.0",
)
KAFKA = _of_spark("spark-sql-kafka-0-10", "kafka010.KafkaSourceProvider", *_RELEASES)
AVRO = _of_spark("spark-avro", "avro.AvroDataToCatalyst", "4.0.0", "4.0.1", "4.0.2", "4.1.1")
PROTOBUF = _of_spark("spark-protobuf", "protobuf.ProtobufDataToCatalyst", *_RELEASES)
DELTA = Package(
    {
        (4, 0, 0): "io.delta:delta-spark_2.13:4.0.1",
        (4, 1, 0): "io.delta:delta-spark_4.1_2.13:4.4.0",
        (4, 2, 0): "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
    "io.delta.sql.DeltaSparkSessionExtension",
    {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    # It uses Spark's internals: with 4.3.0 its MERGE ends in NoSuchMethodError.
    serves_later_lines=False,
)
# Its SQL extensions are left out: MERGE and catalogs need none, and Delta Lake has the setting.
ICEBERG = Package(
    {
        (4, 0, 0): "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
        (4, 1, 0): "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    },
    "org.apache.iceberg.spark.SparkCatalog",
    serves_later_lines=False,  # it uses Spark's internals, too
)

# Dependencies of the packages that a Spark distribution already holds: organisation, jar name.
# Leaving these out fetches 10 MB instead of 63 MB, and never a second version of the same class.
_OFTEN_PRESENT = (
    ("com.fasterxml.jackson.core", "jackson-annotations"),
    ("com.fasterxml.jackson.core", "jackson-core"),
    ("com.fasterxml.jackson.core", "jackson-databind"),
    ("com.fasterxml.jackson.datatype", "jackson-datatype-jdk8"),
    ("com.google.code.findbugs", "jsr305"),
    ("org.antlr", "antlr4-runtime"),
    ("org.apache.hadoop", "hadoop-client-api"),
    ("org.apache.hadoop", "hadoop-client-runtime"),
    ("org.lz4", "lz4-java"),
    ("at.yawk.lz4", "lz4-java"),  # the same classes under the name that Spark 4.2 took
    ("org.scala-lang", "scala-library"),
    ("org.scala-lang.modules", "scala-parallel-collections_2.13"),
    ("org.slf4j", "slf4j-api"),
    ("org.tukaani", "xz"),
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


def spark_version(jar_names: Iterable[str]) -> str | None:
    """Read Spark's version from the names of the jars in its distribution."""
    for name in jar_names:
        if found := re.fullmatch(r"spark-core_2\.13-(.+)\.jar", name):
            return found[1]
    return None


def package_settings(
    packages: Iterable[Package], jar_names: frozenset[str], version: str, folder: Path
) -> Mapping[str, str]:
    """Return the Spark settings that put packages on the class path, and set them up.

    ``jar_names`` are the jars at hand, in the Spark distribution, as an image may have them, or
    named in ``spark.jars``: none of these is fetched. ``version`` is Spark's; ``folder`` holds
    Ivy's settings, written by `prepare`, and its cache.
    """
    settings: dict[str, str] = {}
    wanted = []
    for package in packages:
        settings.update(package.settings)
        coordinates = package.coordinates(version)
        if not _holds(jar_names, coordinates.split(":")[1]):
            wanted.append(coordinates)
    if not wanted:
        return settings
    present = [f"{org}:{name}" for org, name in _OFTEN_PRESENT if _holds(jar_names, name)]
    return settings | {
        "spark.jars.packages": ",".join(wanted),
        "spark.jars.excludes": ",".join(present),
        "spark.jars.ivySettings": str(folder / "ivysettings.xml"),
        "spark.jars.ivy": str(folder / "ivy"),
    }


def prepare(folder: Path) -> None:
    """Write Ivy's settings into a folder, which is created if necessary.

    Raises PipelineError where the folder cannot be written.
    """
    path = folder / "ivysettings.xml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != IVY_SETTINGS:
            # Renamed into place, because another session may be reading it right now, or writing
            # it, too.
            with NamedTemporaryFile("w", dir=folder, encoding="utf-8", delete=False) as draft:
                draft.write(IVY_SETTINGS)
            Path(draft.name).chmod(0o644)
            Path(draft.name).replace(path)
    except OSError as error:
        raise PipelineError(
            f"the cache folder {folder} cannot be written ({error.strerror}): "
            "choose another with --cache or ODRADEK_CACHE"
        ) from error


def _holds(jar_names: frozenset[str], name: str) -> bool:
    # Ivy puts the organisation before the name of a jar that it has fetched.
    pattern = re.compile(r"(?:[\w.-]+_)?" + re.escape(name) + r"-\d[^/]*\.jar")
    return any(pattern.fullmatch(jar) for jar in jar_names)
