"""Merges the texts of /metrics of several workers; each sample gets a label with its broker: pure.

    # HELP kafka_… its meaning                    once a family
    # TYPE kafka_… gauge
    kafka_…{broker="1",topic="prices"} 7.0
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")


def merge_metrics(texts: Mapping[int, bytes]) -> bytes:
    """Return one text in the order of the first one, whose families come once."""
    heads: dict[bytes, list[bytes]] = {}
    samples: dict[bytes, list[bytes]] = {}
    for node_id, text in texts.items():
        label = b'{broker="%d"' % node_id
        family = b""
        is_new = False
        for line in text.splitlines(keepends=True):
            if line.startswith(b"# HELP "):
                family = line.split(b" ", 3)[2].rstrip()
                is_new = family not in heads
                heads.setdefault(family, [])
                samples.setdefault(family, [])
            if line.startswith(b"#"):
                if is_new:
                    heads[family].append(line)
            elif found := _NAME.match(line):
                samples[family].append(_labelled(line, found.end(), label))
    parts = (line for family in heads for line in (*heads[family], *samples[family]))
    return b"".join(parts)


def _labelled(line: bytes, at: int, label: bytes) -> bytes:
    name, rest = line[:at], line[at:]
    if not rest.startswith(b"{"):
        return name + label + b"}" + rest
    return name + label + (b"" if rest.startswith(b"{}") else b",") + rest[1:]
