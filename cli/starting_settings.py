"""The server.properties that `odradek init` writes: the settings that people change, with docs.

A name and its sentence come from the declared options; here is only the choice, and the values
that are examples because the option has no default.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from odradek.config.effective import declared_options
from odradek.config.option import Option, fallbacks_of
from odradek.config.topic import TopicConfig
from odradek.dataclass import dataclass

LINE_COLUMNS = 98
_HEAD = """\
The settings of a broker: `odradek serve --config FILE`, and `odradek doctor --config FILE` checks
them. They have Kafka's names, and docs/configs.md lists all of them. A line that begins with #
sets nothing: it shows the default, or an example. KAFKA_… variables of the environment and --set
win over this file. SIGHUP makes a running broker read it again.\
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, and names of settings; `examples` are the values of those without a default."""

    title: str
    names: tuple[str, ...]
    examples: Mapping[str, str]


SECTIONS = (
    Section(
        "Identity, addresses and data",
        ("node.id", "listeners", "advertised.listeners", "metrics.listener", "log.dirs"),
        {"advertised.listeners": "PLAINTEXT://broker.example.com:9092"},
    ),
    Section(
        "Topics",
        ("num.partitions", "auto.create.topics.enable", "message.max.bytes", "compression.type"),
        {},
    ),
    Section(
        "Retention",
        ("log.cleanup.policy", "log.retention.ms", "log.retention.bytes", "log.segment.bytes"),
        {"log.retention.ms": "604800000"},
    ),
    Section(
        "The cleaner of compacted topics",
        (
            "log.cleaner.threads", "log.cleaner.min.cleanable.ratio",
            "log.cleaner.delete.retention.ms", "log.cleaner.min.compaction.lag.ms",
            "log.cleaner.dedupe.buffer.size", "log.cleaner.io.max.bytes.per.second",
        ),
        {"log.cleaner.io.max.bytes.per.second": "50000000"},
    ),
    Section("Durability", ("log.flush.acks.all",), {}),
    Section(
        "Consumer groups",
        ("offsets.retention.minutes", "group.initial.rebalance.delay.ms"),
        {},
    ),
    Section(
        "Security (docs/security.md)",
        (
            "listener.security.protocol.map", "ssl.keystore.location", "ssl.keystore.type",
            "sasl.enabled.mechanisms", "authorizer.class.name", "super.users",
            "odradek.admin.token",
        ),
        {
            "ssl.keystore.location": "/etc/odradek/broker.pem",
            "ssl.keystore.type": "PEM",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
            "odradek.admin.token": "at-least-8-characters",
        },
    ),
    Section(
        "Several brokers (docs/cluster.md), shared topics (docs/object-storage.md)",
        ("odradek.workers", "odradek.catalog.url", "odradek.object.store.url"),
        {
            "odradek.catalog.url": "postgresql://odradek@db.example.com/odradek",
            "odradek.object.store.url": "s3://bucket/prefix",
        },
    ),
)  # fmt: skip


def starting_settings(data: Path) -> str:
    """Return a server.properties with the data in a folder.

    Raises ValueError for a folder that log.dirs cannot name.
    """
    if "," in str(data) or str(data) != " ".join(str(data).split()):
        raise ValueError(
            f"log.dirs cannot name {data}, for its comma or spaces: choose another FOLDER"
        )
    declared = {one.name: one for one in (*declared_options(), *fallbacks_of(TopicConfig))}
    set_here = {
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "metrics.listener": "127.0.0.1:9308",
        "log.dirs": str(data).replace("\\", "\\\\"),
    }
    lines = [*_comment(_HEAD)]
    for section in SECTIONS:
        lines += ["", f"# ---- {section.title} ----"]
        for name in section.names:
            lines += ["", *_setting(declared[name], set_here, section.examples)]
    return "\n".join(lines) + "\n"


def _setting(
    option: Option, set_here: Mapping[str, str], examples: Mapping[str, str]
) -> Iterator[str]:
    yield from _comment(option.doc)
    name = option.name
    if name in set_here:
        yield f"{name}={set_here[name]}"
        return
    if name in examples:
        yield "# For example:"
    yield f"#{name}={examples.get(name, option.default_text)}"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, LINE_COLUMNS - 2, break_on_hyphens=False)]
