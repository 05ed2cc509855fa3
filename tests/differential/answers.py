"""Two answers side by side: what differs by nature is passed over, all else is found.

Ids that each broker makes up for itself are paired where they first come, and from then on one
stands for the other, in answers and in the requests that are drawn.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import iterate_batches
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages.describe_producers import ProducerState
from odradek.protocol.messages.write_txn_markers import WritableTxnMarkerResult
from tests.differential.wire import Outcome, read_answer

# Ids that a broker makes up, by the names of their fields.
MADE_UP = frozenset(
    (
        *("topic_id", "member_id", "leader", "session_id", "cluster_id", "log_dir"),
        *("client_instance_id", "subscription_id", "replica_directory_id"),
    )
)
# Numbers that each broker counts for itself: it matters whether there is one.
COUNTED = frozenset(
    {"producer_id", "finalized_features_epoch", "total_bytes", "usable_bytes"}
)
# What a codec makes of a batch has no one size: it matters whether there is anything.
SIZES = frozenset({"partition_size"})
_NOTHING = ("", 0, -1, None, bytes(16))
_HOUR_MS = 3_600_000
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHORT_UUID = re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])")
_PIECES = frozenset({"partitions", "partition_responses"})
# What tells the items of a list from each other, by the names of their fields.
_IDENTITY = (
    "name",
    "topic",
    "topic_id",
    "topic_name",
    "group_id",
    "key",
    "api_key",
    "index",
    "partition",
    "partition_index",
    "partition_id",
    "batch_index",
    "resource_type",
    "resource_name",
    "member_id",
    "group_instance_id",
    "node_id",
    "broker_id",
    "source",
    "user",
    "entity_type",
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two answers differ."""

    api: str
    version: int
    path: str
    ours: str
    theirs: str

    def __str__(self) -> str:
        return (
            f"{self.api} v{self.version} {self.path}\n  ours:    {self.ours}"
            f"\n  Kafka's: {self.theirs}"
        )


class Pairs:
    """Which of Kafka's ids stands for which of ours."""

    def __init__(self, our_port: int, their_port: int) -> None:
        self._ports = our_port, their_port
        self._ours: dict[Any, Any] = {}
        self._theirs: dict[Any, Any] = {}

    def differences(
        self, api: str, version: int, ours: Outcome, theirs: Outcome
    ) -> list[Difference]:
        """Return where two outcomes of a request differ."""
        ends = [(one.connection, one.answer is None) for one in (ours, theirs)]
        if ends[0] != ends[1]:
            return [Difference(api, version, ".outcome", str(ours), str(theirs))]
        if ours.answer is None or theirs.answer is None:
            return []
        if not api.isalnum():
            return []  # a label: no API that could be decoded
        mine = read_answer(api, version, ours.answer)
        other = read_answer(api, version, theirs.answer)
        return self.between(api, version, mine, other)

    def between(self, api: str, version: int, ours: Any, theirs: Any) -> list[Difference]:
        """Return where two decoded answers differ."""
        return [
            Difference(api, version, path, one, two)
            for path, one, two in self._compare(ours, theirs, "")
        ]

    def pair(self, ours: Any, theirs: Any) -> None:
        """Let two ids stand for each other."""
        self._ours[theirs], self._theirs[ours] = ours, theirs

    def for_kafka(self, request: Any) -> Any:
        """Return a request with Kafka's ids in the place of ours."""
        if is_dataclass(request) and not isinstance(request, type):
            changed = {
                one.name: self.for_kafka(getattr(request, one.name)) for one in fields(request)
            }
            return replace(request, **changed)
        if isinstance(request, list):
            return [self.for_kafka(one) for one in request]
        if isinstance(request, bool) or request is None:
            return request
        return self._theirs.get(request, request)

    def as_ours(self, value: Any) -> Any:
        """Return our id that one of Kafka's stands for; any other value as it is."""
        return self._ours.get(value, value)

    def _compare(self, ours: Any, theirs: Any, path: str) -> Iterator[tuple[str, str, str]]:
        if is_dataclass(ours) and is_dataclass(theirs):
            for one in fields(ours):
                name = one.name
                yield from self._compare_field(
                    name, getattr(ours, name), getattr(theirs, name), f"{path}.{name}"
                )
        elif isinstance(ours, list) and isinstance(theirs, list):
            yield from self._compare_lists(ours, theirs, path)
        elif ours != theirs:
            yield path, repr(ours), repr(theirs)

    def _compare_field(
        self, name: str, ours: Any, theirs: Any, path: str
    ) -> Iterator[tuple[str, str, str]]:
        if name in MADE_UP:
            if not self._is_pair(ours, theirs):
                yield path, repr(ours), repr(theirs)
        elif name == "port":
            if (ours, theirs) != self._ports and ours != theirs:
                yield path, repr(ours), repr(theirs)
        elif name in COUNTED:
            if (ours < 0) != (theirs < 0):
                yield path, repr(ours), repr(theirs)
        elif name in SIZES:
            if (ours > 0) != (theirs > 0):
                yield path, repr(ours), repr(theirs)
        elif name == "records":
            yield from self._compare(_records(ours), _records(theirs), path)
        elif isinstance(ours, str) and isinstance(theirs, str):
            yield from self._compare(self._sentence(ours), self._sentence(theirs), path)
        elif isinstance(ours, int) and isinstance(theirs, int):
            yield from self._compare(_time(ours), _time(theirs), path)
        else:
            yield from self._compare(ours, theirs, path)

    def _is_pair(self, ours: Any, theirs: Any) -> bool:
        """Return whether two ids stand for each other; two that are new do from now on."""
        if theirs in self._ours or ours in self._theirs:
            return bool(self._ours.get(theirs) == ours)
        if ours == theirs:
            return True
        if ours in _NOTHING or theirs in _NOTHING or type(ours) is not type(theirs):
            return False
        if isinstance(ours, str) and self._sentence(ours) != self._sentence(theirs):
            return False
        self.pair(ours, theirs)
        return True

    def _compare_lists(
        self, ours: list[Any], theirs: list[Any], path: str
    ) -> Iterator[tuple[str, str, str]]:
        """Compare items that are named alike; neither broker promises an order."""
        if not any(is_dataclass(one) for one in (*ours, *theirs)):
            if ours != theirs:
                yield path, repr(ours), repr(theirs)
            return
        shared = _made_up(ours) & _made_up(theirs)  # ids that came with the request
        mine = _named([(self._name(one, shared, is_ours=True), one) for one in ours])
        other = _named([(self._name(one, shared, is_ours=False), one) for one in theirs])
        both = [name for name in mine if name in other]
        only_mine = [name for name in mine if name not in other]
        only_other = [name for name in other if name not in mine]
        # Items whose names are ids that come for the first time.
        while only_mine and only_other and _is_unnamed(only_mine[0]):
            first, second = only_mine.pop(0), only_other.pop(0)
            yield from self._compare(mine[first], other[second], f"{path}[new]")
        for name in both:
            yield from self._compare(mine[name], other[name], f"{path}[{name}]")
        for name in only_mine:
            yield f"{path}[{name}]", _short(mine[name]), "absent"
        for name in only_other:
            yield f"{path}[{name}]", "absent", _short(other[name])

    def _name(self, item: Any, shared: set[Any], *, is_ours: bool) -> str:
        """Name an item of a list by what identifies it, its ids being ours."""
        parts = []
        if isinstance(item, WritableTxnMarkerResult):
            parts.append(str(item.producer_id))  # the one that was asked for
        elif isinstance(item, ProducerState):
            parts.append(f"{item.producer_epoch} {item.last_sequence}")
        elif hasattr(item, "entity"):  # whose quotas an entry is about
            parts += sorted(f"{one.entity_type}={one.entity_name}" for one in item.entity)
        for name in _IDENTITY:
            if not hasattr(item, name):
                continue
            value = getattr(item, name)
            if name in MADE_UP and not is_ours:
                value = self._ours.get(value, value)
            is_known = value in _NOTHING or value in self._theirs or value in shared
            if name in MADE_UP and not is_known:
                value = "new"
            parts.append(str(value))
        return " ".join(parts)

    def _sentence(self, text: str) -> str:
        for port in self._ports:
            text = text.replace(f":{port}", ":PORT")
        return _SHORT_UUID.sub("ID", _UUID.sub("UUID", text))


def _made_up(items: list[Any]) -> set[Any]:
    names = [name for name in _IDENTITY if name in MADE_UP]
    return {getattr(one, name) for one in items for name in names if hasattr(one, name)}


def _is_unnamed(name: str) -> bool:
    return "new" in name.split()


def _named(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Key items by their names; a topic that comes in pieces is put together."""
    made: dict[str, Any] = {}
    for name, item in items:
        pieces = [one.name for one in fields(item) if one.name in _PIECES]
        if name in made and pieces:
            for piece in pieces:
                both = getattr(made[name], piece) + getattr(item, piece)
                made[name] = replace(made[name], **{piece: both})
            continue
        unique, number = name, 1
        while unique in made:
            number += 1
            unique = f"{name} #{number}"
        made[unique] = item
    return made


def _time(value: int) -> Any:
    """Let one moment of now be like another."""
    now = int(time.time() * 1000)
    return "now" if now - _HOUR_MS < value < now + _HOUR_MS else value


def _records(data: Any) -> Any:
    """Spell batches out, but for what a codec or a clock may choose."""
    if data is None:
        return None
    found = []
    try:
        for position, header in iterate_batches(data):
            content = [
                (one.offset, _time(one.timestamp), bytes(one.key or b""), bytes(one.value or b""))
                for one in decode_records(data, position)
            ]
            found.append(
                (
                    header.base_offset,
                    header.leader_epoch,
                    header.attributes,
                    _time(header.max_timestamp),
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    content,
                )
            )
    except ProtocolError:
        return bytes(data)
    return found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:200]}…{text[-100:]}"
