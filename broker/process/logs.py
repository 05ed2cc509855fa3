"""The broker's log on standard error: lines for a person, or one JSON object per line for tools.

    {"time":"2026-11-22T21:14:03.120Z","level":"INFO","logger":"odradek.storage.rolling",
     "message":"rolled segment topic=a partition=0 base=42","topic":"a","partition":0,"base":42}

The fields come from the message: `key=%d` in its template names a field, whose value keeps its
type. An exception is a string, with its traceback.

Some texts in the log come from clients: line ends and control characters are escaped as in Python,
so that no client can forge lines, or send control codes to the terminal of a reader.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType

from odradek.config.printable import printable
from odradek.storage.errors import CorruptFile

logger = logging.getLogger(__name__)

TEXT, JSON = "text", "json"

_TEXT_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_TEXT_FORMAT_OF = "%(asctime)s %(levelname)-7s [{}] %(name)s: %(message)s"
# The conversions that logging replaces by arguments, and the names before them: `peer=%s:%d`.
_CONVERSION = re.compile(r"%(?:%|[-#0 +]*\d*(?:\.\d+)?[a-zA-Z])")
_FIELD = re.compile(
    rf"(?:(?<=\s)|^)([a-zA-Z][\w.]*)=({_CONVERSION.pattern}(?:[:-]{_CONVERSION.pattern})*)"
)
_OWN = ("time", "level", "logger", "message", "exception")


class TextFormatter(logging.Formatter):
    """Writes a record as a line, with its traceback after it."""

    def __init__(self, node_id: int | None = None) -> None:
        """With a node id each line has it: several brokers write to one log."""
        super().__init__(_TEXT_FORMAT if node_id is None else _TEXT_FORMAT_OF.format(node_id))
        self._second, self._time = -1, ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Return the local time; the text of a second is formatted once."""
        second = int(record.created)
        if second != self._second:
            self._second = second
            self._time = time.strftime(self.default_time_format, time.localtime(second))
        return f"{self._time},{int(record.msecs):03d}"

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line; use `extra={"is_multiline": True}` only for the broker's own texts."""
        text = super().formatMessage(record)
        return text if getattr(record, "is_multiline", False) else printable(text)


class JsonFormatter(logging.Formatter):
    """Writes a record as a JSON object in one line."""

    def __init__(self, node_id: int | None = None) -> None:
        """With a node id each line has it: several brokers write to one log."""
        super().__init__()
        self._own = {} if node_id is None else {"node_id": node_id}

    def format(self, record: logging.LogRecord) -> str:
        """Return the object; arguments of types that JSON does not have become text."""
        entry: dict[str, object] = {
            "time": _moment(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **self._own,
        }
        for name, value in _fields(record):
            entry[name if name not in _OWN else f"{name}_"] = value
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


def set_up(level: str, form: str) -> None:
    """Write the log to standard error, from `level` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == JSON else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler])
    # DEBUG excludes Numba's own log, which is 2 MB per start.
    logging.getLogger("numba").setLevel(max(logging.root.level, logging.INFO))
    # Data that no line shows is not looked up: that saves a third of a line's time.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # documented: records get no source location
    if form == JSON:  # Python itself would write these as lines of text
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught


def name_worker(node_id: int) -> None:
    """Add a broker's node id to each line from now on."""
    for handler in logging.root.handlers:
        if handler.formatter is not None:
            handler.setFormatter(type(handler.formatter)(node_id))  # type: ignore[arg-type]


def as_json(message: str, **fields: object) -> str:
    """Return a line for a message outside of the log."""
    now = _moment(datetime.now(UTC).timestamp())
    entry = {"time": now, "level": "INFO", "logger": __name__, "message": message, **fields}
    return json.dumps(entry, default=str, ensure_ascii=False)


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """Yield the names in a record's template with their arguments."""
    arguments = record.args
    if not isinstance(arguments, tuple) or not isinstance(record.msg, str):
        return
    taken, end = 0, 0
    for found in _FIELD.finditer(record.msg):
        taken += _count(record.msg[end : found.start()])
        end, count = found.end(), _count(found[2])
        values = arguments[taken : taken + count]
        taken += count
        is_plain = count == 1 and isinstance(values[0], int | float | None)
        yield found[1], values[0] if is_plain else _text(found[2], values)
    for one in arguments:
        if isinstance(one, CorruptFile):
            yield from (("file", str(one.path)), ("position", one.position))
            if one.offset is not None:
                yield "offset", one.offset


def _count(template: str) -> int:
    return sum(one != "%%" for one in _CONVERSION.findall(template))


def _text(template: str, values: tuple[object, ...]) -> str:
    # %r is for readers of text, to show where a value ends.
    return template.replace("%r", "%s") % values


def _moment(seconds: float) -> str:
    at = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return at.replace("+00:00", "Z")


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    logger.critical("ended by a bug", exc_info=(kind, error, trace))
