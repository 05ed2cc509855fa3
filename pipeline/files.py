"""Access files through the file system that Spark itself reads and writes.

Spark gives Python no file system, but Python can call Java's: the same file system, with the same
credentials. A path is local, ``s3a://``, ``hdfs://`` or any other that Hadoop knows.
"""

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession


def list_names(spark: SparkSession, folder: str) -> list[str]:
    """Return the names in a folder, none if the folder does not exist."""
    files, path = _locate(spark, folder)
    if not files.exists(path):
        return []
    return [str(status.getPath().getName()) for status in files.listStatus(path)]


def qualify(spark: SparkSession, name: str) -> str:
    """Return a path with its file system and all folders above it: ``file:/home/me/tables/t``."""
    files, path = _locate(spark, name)
    return str(path.makeQualified(files.getUri(), files.getWorkingDirectory()))


def exists(spark: SparkSession, name: str) -> bool:
    """Return whether a file or folder of this name exists."""
    files, path = _locate(spark, name)
    return bool(files.exists(path))


def modified_ms(spark: SparkSession, name: str) -> int:
    """Return the time of a file's last change, in milliseconds since 1970."""
    files, path = _locate(spark, name)
    return int(files.getFileStatus(path).getModificationTime())


def remove(spark: SparkSession, name: str) -> None:
    """Remove a file, or a folder with its contents; do nothing if there is none."""
    files, path = _locate(spark, name)
    files.delete(path, True)


def read_text(spark: SparkSession, name: str) -> str:
    """Read a small file as UTF-8."""
    files, path = _locate(spark, name)
    stream = files.open(path)
    try:
        return bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()


def write_text(spark: SparkSession, name: str, text: str) -> None:
    """Write a small file as UTF-8, and create its folder; readers see the whole file or none."""
    files, draft = _locate(spark, f"{name}.draft")
    stream = files.create(draft, True)
    try:
        stream.write(text.encode())
    finally:
        stream.close()
    final = _locate(spark, name)[1]
    if not files.rename(draft, final):
        files.delete(final, False)
        files.rename(draft, final)


def _locate(spark: SparkSession, name: str) -> tuple[JavaObject, JavaObject]:
    """Return Hadoop's file system for a path, and the path."""
    assert spark._jvm is not None, "a session that is not running"
    path = spark._jvm.org.apache.hadoop.fs.Path(name)
    return path.getFileSystem(spark._jsc.hadoopConfiguration()), path
