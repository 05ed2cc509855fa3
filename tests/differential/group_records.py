"""The records of __consumer_offsets that both brokers have written, decoded by Kafka's own tool.

Records of different groups may lie in another order, those of one group not. Times are passed
over, but for how long an offset is to be kept; ids that each broker made up are paired.
"""

from __future__ import annotations

import base64
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.processes import kafka_tool
from tests.differential.answers import Difference, Pairs

_TOOL = ("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--print-data-log")
_BATCH = re.compile(r"baseOffset: .* producerId: (-?\d+) .* isTransactional: (\w+) .*")
_RECORD = re.compile(r"\| offset: \d+ .*? key: (\{.*?\}) payload: (.*)")
_MARKER = re.compile(r"\| offset: \d+ .*endTxnMarker: (\w+) .*")
_TOMBSTONE = " null"
_TIMES = ("commitTimestamp", "expireTimestamp", "currentStateTimestamp")

Found = tuple[str, Difference]


def differences(data: Sequence[Path], groups: Sequence[str], pairs: Pairs) -> Iterator[Found]:
    """Compare what ours and Kafka's data directory hold of some groups, record by record."""
    ours, theirs = (_by_group(directory, pairs) for directory in data)
    for group in groups:
        mine, other = _in_one_order(ours[group]), _in_one_order(theirs[group])
        for number in range(max(len(mine), len(other))):
            one, two = (
                said[number] if number < len(said) else "nothing" for said in (mine, other)
            )
            if one != two:
                path = f"[{group}].records[{number}]"
                yield f"records of {group}", Difference("__consumer_offsets", 0, path, one, two)
                break  # those that follow are shifted


def _by_group(data: Path, pairs: Pairs) -> dict[str, list[str]]:
    """Return the records of each group, in their order; a marker is one of every group."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    in_transaction: dict[str, set[str]] = defaultdict(set)  # groups by producer
    producer = ""
    for path in sorted(data.glob("__consumer_offsets-*/*.log")):
        for line in kafka_tool([*_TOOL, "--files", str(path)]).stdout.splitlines():
            if batch := _BATCH.fullmatch(line):
                producer = batch[1] if batch[2] == "true" else ""
            elif marker := _MARKER.fullmatch(line):
                for group in in_transaction.pop(producer, ()):
                    found[group].append(f"{marker[1]} of its transaction")
            elif record := _RECORD.fullmatch(line):
                key = json.loads(record[1])
                named = key["data"]
                group = named["group"] if "group" in named else named["groupId"]
                if producer:
                    in_transaction[producer].add(group)
                told = f"{bool(producer)} {json.dumps(key)}"
                if record[2].startswith("{"):
                    found[group].append(f"{told} {_plain(json.loads(record[2]), pairs)}")
                else:
                    found[group].append(told + _TOMBSTONE)
    return found


def _in_one_order(records: list[str]) -> list[str]:
    """Sort tombstones that follow each other: Kafka's are in the order of its hash maps."""
    runs = groupby(records, key=lambda one: one.endswith(_TOMBSTONE))
    return [one for gone, run in runs for one in (sorted(run) if gone else run)]


def _plain(value: Any, pairs: Pairs) -> Any:
    """Leave out the times of a value, and put ours in the place of Kafka's ids."""
    if isinstance(value, dict):
        plain = {name: _plain(one, pairs) for name, one in value.items() if name not in _TIMES}
        if "topicId" in value:
            topic_id = base64.urlsafe_b64decode(value["topicId"] + "==")
            plain["topicId"] = pairs.as_ours(topic_id).hex()
        if "expireTimestamp" in value:
            plain["kept for"] = value["expireTimestamp"] - value["commitTimestamp"]
        return plain
    if isinstance(value, list):
        # Members are in the order of Kafka's hash map.
        return sorted((_plain(one, pairs) for one in value), key=str)
    return pairs.as_ours(value)
