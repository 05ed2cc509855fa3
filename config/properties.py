"""Java properties files: server.properties, and the files that hold passwords."""

from __future__ import annotations

import re
from collections.abc import Iterator

from odradek.config.errors import raise_any

_BLANK = " \t\f"
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NEWLINE = re.compile(r"\r\n|\r|\n")
_SURROGATE = re.compile("[\ud800-\udfff]")

Settings = dict[str, tuple[str, str]]  # name to value and origin


def from_properties(text: str, file: str = "server.properties") -> Settings:
    r"""Read a Java properties file (java.util.Properties.load); of equal keys the last counts.

    A line is `key=value`, `key: value` or `key value`. Lines that begin with # or ! are
    comments. A backslash at the end of a line continues it; elsewhere it begins an escape:
    \t \n \r \f, \uXXXX, or the character itself. Raise ConfigError for a malformed \u.
    """
    settings: Settings = {}
    problems = []
    for number, line in _logical_lines(text):
        origin = f"{file} line {number}"
        key, value = _split(line)
        try:
            settings[_unescape(key)] = (_unescape(value), origin)
        except ValueError:
            problems.append(f"{origin}: Malformed \\uxxxx encoding.")
    raise_any(problems)
    return settings


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each logical line that has a setting, with the number of its first natural line."""
    logical, first, continues = "", 0, False
    for number, natural in enumerate(_NEWLINE.split(text), 1):
        line = natural.lstrip(_BLANK)
        if not logical:
            first = number
            if line[:1] in ("#", "!"):
                continue
        logical += line
        continues = (len(logical) - len(logical.rstrip("\\"))) % 2 == 1
        if continues:
            logical = logical[:-1]
        elif logical:
            yield first, logical
            logical = ""
    if continues and logical:
        yield first, logical


def _split(line: str) -> tuple[str, str]:
    """Split a logical line at the first separator that no backslash escapes."""
    end, escaped = 0, False
    while end < len(line) and (escaped or line[end] not in "=:" + _BLANK):
        escaped = line[end] == "\\" and not escaped
        end += 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str) -> str:
    r"""Replace escapes; raise ValueError for \u without four hexadecimal digits."""
    plain = _ESCAPE.sub(_unescaped, text)
    if not _SURROGATE.search(plain):
        return plain
    # Java's characters are UTF-16: two escapes can make one character of ours.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _unescaped(escape: re.Match[str]) -> str:
    mark = escape[1]
    if mark == "u":
        raise ValueError(escape.string)
    return chr(int(mark[1:], 16)) if len(mark) > 1 else _ESCAPED.get(mark, mark)
