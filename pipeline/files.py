"""Reach the files of whatever file system Spark itself reads and writes.

Spark gives Python no file system, but Java's is a call away: the one, with the credentials, that
Spark goes through. A path is local, ``s3a://``, ``hdfs://`` or any other that Hadoop knows.
"""

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession


def list_names(spark: SparkSession, folder: str) -> list[str]:
    """Return the names of what is in a folder, none for a folder that is not there."""
    files, path = _locate(spark, folder)
    if not files.exists(path):
        return []
    return [str(status.getPath().getName()) for status in files.listStatus(path)]


def qualify(spark: SparkSession, name: str) -> str:
    """Return a path with its file system and all folders above it: ``file:/home/me/tables/t``."""
    files, path = _locate(spark, name)
    return str(path.makeQualified(files.getUri(), files.getWorkingDirectory()))


def exists(spark: SparkSession, name: str) -> bool:
    """Say whether there is a file or folder of this name."""
    files, path = _locate(spark, name)
    return bool(files.exists(path))


def modified_ms(spark: SparkSession, name: str) -> int:
    """Return when a file was last written, in milliseconds since 1970."""
    files, path = _locate(spark, name)
    return int(files.getFileStatus(path).getModificationTime())


def remove(spark: SparkSession, name: str) -> None:
    """Remove a file, or a folder with all in it; nothing happens where there is none."""
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
    """Write a small file as UTF-8, with its folder; it is there whole or not at all."""
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
