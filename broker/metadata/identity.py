"""The ids of the node and of the cluster, which the data keeps (Kafka's meta.properties)."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from odradek.broker.ids import random_id
from odradek.config.resolution import Layer
from odradek.protocol.wire import encode_uuid
from odradek.storage.files import FileSystem
from odradek.storage.meta_properties import read_cluster_id, read_properties


def with_node_id(fs: FileSystem, meta: Path, static: Layer) -> Layer:
    """Return static settings with the node id of the data, unless they have one."""
    if {"node.id", "broker.id"} & static.values.keys() or not fs.exists(meta):
        return static
    found = read_properties(fs, meta)
    if "node.id" not in found:
        return static
    values = {**static.values, "node.id": found["node.id"]}
    origins = {**static.origins, "node.id": str(meta)}
    return replace(static, values=values, origins=origins)


def new_cluster_id(
    fs: FileSystem, directory: Path, given: str | None, random_source: random.Random
) -> str:
    """Return the id for a new database: of the settings, of the data, or a random one."""
    return given or read_cluster_id(fs, directory) or encode_uuid(random_id(random_source))
