"""The outcome of each cleaning, as a record that is kept and shown: a result, or a failure.

Runs are kept in a file and written to the log as lines of JSON:

    {"outcome": "CLEANED", "topic": "orders", "partition": 0, "topic_id": "…", "at_ms": …,
     "result": {"reason": "DIRTY", "first_dirty_offset": 0, …, "store": null}}
    {"outcome": "FAILED", …, "failure": {"exception": "CorruptFile: …", "file": "…", …}}
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import TypeVar

from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.rules.policy import Reason
from odradek.cleaner.rules.quarantine import Quarantined
from odradek.dataclass import dataclass
from odradek.protocol.wire import encode_uuid
from odradek.storage.metering import StoreUse

T = TypeVar("T")

_HEAD: Mapping[str, str] = {"topic": "str", "partition": "int", "at_ms": "int"}
_TOPIC_ID_BYTES = 16

# The values of fields that an older line lacks, since they were not counted yet.
_BLANKS: Mapping[str, object] = {
    "int": 0, "float": 0.0, "bool": False, "int | None": None, "StoreUse | None": None
}  # fmt: skip
_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "int | None": (int, type(None)),
    "str | None": (str, type(None)),
}


class DamagedRun(Exception):
    """A line is no run; the message says why."""


@dataclass(frozen=True, slots=True)
class Run:
    """One cleaning that has ended: it has either a result or a failure."""

    topic: str
    partition: int
    topic_id: bytes
    at_ms: int  # when it ended
    result: CleanResult | None
    failure: Quarantined | None

    @property
    def outcome(self) -> str:
        """CLEANED or FAILED."""
        return "CLEANED" if self.result is not None else "FAILED"


def result_as_json(result: CleanResult) -> dict[str, object]:
    """Return all values that a cleaning reports, and those derived from them."""
    return {
        **dataclasses.asdict(result),
        "reason": result.reason.name,
        "reclaimed_bytes": result.reclaimed_bytes,
        "removed_records": result.start_records - result.end_records,
        "is_partial": result.is_partial,
    }


def run_as_json(run: Run) -> dict[str, object]:
    """Return a run in the form that is kept and shown."""
    found: dict[str, object] = {
        "outcome": run.outcome,
        "topic": run.topic,
        "partition": run.partition,
        "topic_id": encode_uuid(run.topic_id),
        "at_ms": run.at_ms,
    }
    if run.result is not None:
        found["result"] = result_as_json(run.result)
    if run.failure is not None:
        found["failure"] = dataclasses.asdict(run.failure)
    return found


def encode_run(run: Run) -> bytes:
    """Return a run as one line."""
    return json.dumps(run_as_json(run), separators=(",", ":")).encode() + b"\n"


def decode_run(line: bytes) -> Run:
    """Read a line; fields that a later version added are left out. Raises DamagedRun."""
    try:
        read = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DamagedRun(str(error)) from error
    if not isinstance(read, dict):
        raise DamagedRun("it is no object")
    result, failure = read.get("result"), read.get("failure")
    if (result is None) == (failure is None):
        raise DamagedRun("it is neither a result nor a failure")
    return _made(
        Run,
        _HEAD,
        read,
        topic_id=_topic_id(read.get("topic_id")),
        result=None if result is None else _result(result),
        failure=None if failure is None else _made(Quarantined, _kinds(Quarantined), failure),
    )


def _result(read: object) -> CleanResult:
    name = read.get("reason") if isinstance(read, dict) else None
    if not isinstance(name, str) or name not in Reason.__members__:
        raise DamagedRun(f"{name!r} is no reason")
    return _made(CleanResult, _kinds(CleanResult), read, reason=Reason[name])


def _kinds(cls: type) -> dict[str, str]:
    return {field.name: str(field.type) for field in dataclasses.fields(cls)}


def _made(make: Callable[..., T], kinds: Mapping[str, str], read: object, **known: object) -> T:
    """Create a value from the fields of a JSON object, except for the `known` ones."""
    if not isinstance(read, dict):
        raise DamagedRun(f"{read!r} is no object")
    values = {
        name: _checked(name, kind, read.get(name))
        for name, kind in kinds.items()
        if name not in known
    }
    return make(**values, **known)


def _checked(name: str, kind: str, value: object) -> object:
    if value is None and kind in _BLANKS:
        return _BLANKS[kind]
    if kind == "StoreUse | None":
        return _made(StoreUse, _kinds(StoreUse), value)
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "bool"):
        raise DamagedRun(f"{value!r} is no {name}")
    return value


def _topic_id(text: object) -> bytes:
    try:
        found = base64.urlsafe_b64decode(f"{text}==")
    except ValueError as error:
        raise DamagedRun(f"{text!r} is no topic id") from error
    if len(found) != _TOPIC_ID_BYTES:
        raise DamagedRun(f"{text!r} is no topic id")
    return found
