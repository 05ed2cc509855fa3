"""The broker's log on standard error: lines for a person, or a JSON object a line for a collector.

    {"time":"2026-11-22T21:14:03.120Z","level":"INFO","logger":"storage.rolling",
     "message":"rolled segment topic=a partition=0 base=42","topic":"a","partition":0,"base":42}

The fields are those of the message: `key=%d` in its template names one, whose value keeps its
type. An exception is a string, with its traceback.

Clients choose some of what is told: line ends and control characters are written as Python writes
them, so that nobody can write lines of his own, or anything to the terminal of who reads them.
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

from config.printable import printable
from storage.errors import CorruptFile

logger = logging.getLogger(__name__)

TEXT, JSON = "text", "json"

_TEXT_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
# What logging puts in place of the arguments, and the names before it: `peer=%s:%d`.
_CONVERSION = re.compile(r"%(?:%|[-#0 +]*\d*(?:\.\d+)?[a-zA-Z])")
_FIELD = re.compile(
    rf"(?:(?<=\s)|^)([a-zA-Z][\w.]*)=({_CONVERSION.pattern}(?:[:-]{_CONVERSION.pattern})*)"
)
_OWN = ("time", "level", "logger", "message", "exception")


class TextFormatter(logging.Formatter):
    """Writes a record as a line, with its traceback after it."""

    def __init__(self) -> None:
        super().__init__(_TEXT_FORMAT)
        self._second, self._time = -1, ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Return the local time; a second's is made once for all that it brings."""
        second = int(record.created)
        if second != self._second:
            self._second = second
            self._time = time.strftime(self.default_time_format, time.localtime(second))
        return f"{self._time},{int(record.msecs):03d}"

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line; `extra={"is_multiline": True}` is for text of our own alone."""
        text = super().formatMessage(record)
        return text if getattr(record, "is_multiline", False) else printable(text)


class JsonFormatter(logging.Formatter):
    """Writes a record as a JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object, whatever the arguments are: what JSON does not know is text."""
        told: dict[str, object] = {
            "time": _moment(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _fields(record):
            told[name if name not in _OWN else f"{name}_"] = value
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str, ensure_ascii=False)


def set_up(level: str, form: str) -> None:
    """Write the log to standard error, from a level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == JSON else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler])
    # Who asks for DEBUG does not mean the compiler, which tells 2 MB about the kernels.
    logging.getLogger("numba").setLevel(max(logging.root.level, logging.INFO))
    # What no line tells is not looked up either: that is a third of what a line costs.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # documented: no place in the code
    if form == JSON:  # what Python itself would write as lines of text
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught


def as_json(message: str, **fields: object) -> str:
    """Return the line for what is told outside of the log."""
    now = _moment(datetime.now(UTC).timestamp())
    told = {"time": now, "level": "INFO", "logger": __name__, "message": message, **fields}
    return json.dumps(told, default=str, ensure_ascii=False)


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
    # %r is for a reader of text, who has to see where a value ends.
    return template.replace("%r", "%s") % values


def _moment(seconds: float) -> str:
    at = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return at.replace("+00:00", "Z")


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    logger.critical("ended by a bug", exc_info=(kind, error, trace))
